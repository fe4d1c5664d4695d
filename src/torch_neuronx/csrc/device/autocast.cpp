// torch.autocast("neuron"): torch's own lists of ops to lower, to keep in float32 and to promote, as CUDA has them.
#include <ATen/autocast_mode.h>

#include "module.h"

namespace neuron {
namespace {

// torch's lists name these without a namespace.
using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;

Tensor refuse_binary_cross_entropy(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: in a lower "
              "precision the sigmoid before them rounds to 0 or 1, and the loss to infinity. "
              "Use binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, which are safe.");
}

// torch starts with float16, which has no advantage here. The setting belongs to a thread: this sets the main one.
bool prefer_bfloat16(PyObject*) {
  at::autocast::set_autocast_dtype(at::kPrivateUse1, at::kBFloat16);
  return true;
}

PyMethodDef no_methods[] = {{nullptr, nullptr, 0, nullptr}};
const ModulePart part(no_methods, &prefer_bfloat16);

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define NEURON_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(NEURON_LOWER)
#undef NEURON_LOWER

#define NEURON_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(NEURON_FP32)
  // CUDA's lists leave its log_softmax in the low precision; CPU autocast computes it in float32, and so do we.
  NEURON_FP32(cross_entropy_loss)
#undef NEURON_FP32

#define NEURON_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(NEURON_FP32_SET_OPT_DTYPE)
#undef NEURON_FP32_SET_OPT_DTYPE

  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)

#define NEURON_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(NEURON_PROMOTE)
#undef NEURON_PROMOTE

  m.impl("binary_cross_entropy", TORCH_FN(refuse_binary_cross_entropy));
}

}  // namespace
}  // namespace neuron
