// Functions that keep zero: they run on the values and leave the indices alone.
#include <ATen/NativeFunctions.h>
#include <torch/library.h>

namespace n = at::native;

// One function in its three forms, as torch names its kernels for a layout.
#define NEURON_BIND_FORMS(name, kernel)            \
  m.impl(#name, TORCH_FN(n::kernel));              \
  m.impl(#name ".out", TORCH_FN(n::kernel##_out)); \
  m.impl(#name "_", TORCH_FN(n::kernel##_))

#define NEURON_BIND_ALL(layout)                                 \
  NEURON_BIND_FORMS(abs, abs_##layout);                         \
  NEURON_BIND_FORMS(asin, asin_##layout);                       \
  NEURON_BIND_FORMS(asinh, asinh_##layout);                     \
  NEURON_BIND_FORMS(atan, atan_##layout);                       \
  NEURON_BIND_FORMS(atanh, atanh_##layout);                     \
  NEURON_BIND_FORMS(ceil, ceil_##layout);                       \
  NEURON_BIND_FORMS(deg2rad, deg2rad_##layout);                 \
  NEURON_BIND_FORMS(erf, erf_##layout);                         \
  NEURON_BIND_FORMS(erfinv, erfinv_##layout);                   \
  NEURON_BIND_FORMS(expm1, expm1_##layout);                     \
  NEURON_BIND_FORMS(floor, floor_##layout);                     \
  NEURON_BIND_FORMS(frac, frac_##layout);                       \
  NEURON_BIND_FORMS(log1p, log1p_##layout);                     \
  NEURON_BIND_FORMS(rad2deg, rad2deg_##layout);                 \
  NEURON_BIND_FORMS(round, round_##layout);                     \
  NEURON_BIND_FORMS(sgn, sgn_##layout);                         \
  NEURON_BIND_FORMS(sign, sign_##layout);                       \
  NEURON_BIND_FORMS(sin, sin_##layout);                         \
  NEURON_BIND_FORMS(sinh, sinh_##layout);                       \
  NEURON_BIND_FORMS(sqrt, sqrt_##layout);                       \
  NEURON_BIND_FORMS(tan, tan_##layout);                         \
  NEURON_BIND_FORMS(tanh, tanh_##layout);                       \
  NEURON_BIND_FORMS(trunc, trunc_##layout);                     \
  m.impl("isinf", TORCH_FN(n::isinf_##layout));                 \
  m.impl("isnan", TORCH_FN(n::isnan_##layout));                 \
  m.impl("isneginf", TORCH_FN(n::isneginf_##layout));           \
  m.impl("isneginf.out", TORCH_FN(n::isneginf_##layout##_out)); \
  m.impl("isposinf", TORCH_FN(n::isposinf_##layout));           \
  m.impl("isposinf.out", TORCH_FN(n::isposinf_##layout##_out)); \
  m.impl("neg", TORCH_FN(n::neg_##layout));                     \
  m.impl("neg_", TORCH_FN(n::neg_##layout##_));                 \
  m.impl("relu", TORCH_FN(n::relu_##layout));                   \
  m.impl("relu_", TORCH_FN(n::relu_##layout##_));               \
  m.impl("signbit", TORCH_FN(n::signbit_##layout));             \
  m.impl("signbit.out", TORCH_FN(n::signbit_##layout##_out))

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  NEURON_BIND_ALL(sparse);
  NEURON_BIND_FORMS(nan_to_num, nan_to_num_sparse);
  m.impl("conj_physical.out", TORCH_FN(n::conj_physical_out_sparse));
  m.impl("neg.out", TORCH_FN(n::neg_out_sparse));
  m.impl("threshold_backward", TORCH_FN(n::threshold_backward_sparse));
  m.impl("threshold_backward.grad_input", TORCH_FN(n::threshold_backward_sparse_out));
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  NEURON_BIND_ALL(sparse_csr);
  m.impl("angle", TORCH_FN(n::angle_sparse_csr));
  m.impl("angle.out", TORCH_FN(n::angle_sparse_csr_out));
  m.impl("_conj_physical", TORCH_FN(n::conj_physical_sparse_csr));
  m.impl("conj_physical.out", TORCH_FN(n::conj_physical_sparse_csr_out));
  m.impl("conj_physical_", TORCH_FN(n::conj_physical_sparse_csr_));
  m.impl("neg.out", TORCH_FN(n::neg_sparse_csr_out));
  m.impl("threshold_backward", TORCH_FN(n::threshold_backward_sparse_compressed));
  m.impl("threshold_backward.grad_input", TORCH_FN(n::threshold_backward_sparse_compressed_out));
}
