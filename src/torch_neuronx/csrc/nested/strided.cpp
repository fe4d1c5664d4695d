// Nested tensors of the strided layout: a dense buffer on the device, sizes on the CPU. What ATen composes of dense
// operators on the buffer or on its parts is bound to ATen's functions; the rest is refused in words. (The jagged
// layout is torch's Python over dense tensors and needs nothing here.)
#include <ATen/NativeFunctions.h>
#include <torch/library.h>

namespace {

namespace n = at::native;
using at::Scalar;
using at::Tensor;

void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.schema().operator_name(),
                              ": there is no such op on a strided nested tensor on neuron. Make it with "
                              "layout=torch.jagged, which has the most ops, or take it apart with unbind(), or move it "
                              "with .cpu().");
}

void bind_metadata(torch::Library& m) {
  m.impl("_nested_tensor_size", TORCH_FN(n::_nested_tensor_size));
  m.impl("_nested_tensor_strides", TORCH_FN(n::_nested_tensor_strides));
  m.impl("_nested_tensor_storage_offsets", TORCH_FN(n::_nested_tensor_storage_offsets));
  m.impl("is_same_size", TORCH_FN(n::nested_is_same_size));
  m.impl("detach", TORCH_FN(n::detach));
  m.impl("alias", TORCH_FN(n::alias_nested));
  m.impl("values", TORCH_FN(n::values_nested));
  m.impl("view", TORCH_FN(n::view_nested));
  m.impl("unbind.int", TORCH_FN(n::NestedTensor_unbind));
  m.impl("select.int", TORCH_FN(n::select_nested));
  m.impl("narrow", TORCH_FN(n::narrow_nested_symint));
  m.impl("chunk", TORCH_FN(n::chunk_nested_tensor));
  m.impl("split_with_sizes", TORCH_FN(n::split_with_sizes_nested));
  m.impl("transpose.int", TORCH_FN(n::transpose_nested));
  m.impl("squeeze", TORCH_FN(n::squeeze_nested));
  m.impl("squeeze.dim", static_cast<Tensor (*)(const Tensor&, int64_t)>(n::squeeze_dim_nested));
  m.impl("squeeze.dims", static_cast<Tensor (*)(const Tensor&, at::IntArrayRef)>(n::squeeze_dim_nested));
  m.impl("unsqueeze", TORCH_FN(n::unsqueeze_nested));
}

void bind_copies(torch::Library& m) {
  m.impl("empty_like", TORCH_FN(n::empty_like_nested));
  m.impl("ones_like", TORCH_FN(n::ones_like));
  m.impl("clone", TORCH_FN(n::clone_nested));
  m.impl("copy_", TORCH_FN(n::copy_nested_));
  m.impl("_to_copy", TORCH_FN(n::_to_copy_nested));
  m.impl("zero_", TORCH_FN(n::zero_nested_));
  m.impl("fill_.Scalar", static_cast<Tensor& (*)(Tensor&, const Scalar&)>(n::fill_nested_));
  m.impl("fill_.Tensor", static_cast<Tensor& (*)(Tensor&, const Tensor&)>(n::fill_nested_));
  m.impl("normal_", TORCH_FN(n::normal_nested_));
  m.impl("cat", TORCH_FN(n::cat_nested));
  m.impl("to_padded_tensor", TORCH_FN(n::NestedTensor_to_padded_tensor_generic));
}

void bind_elementwise(torch::Library& m) {
  m.impl("abs", TORCH_FN(n::NestedTensor_abs));
  m.impl("abs_", TORCH_FN(n::NestedTensor_abs_));
  m.impl("sgn", TORCH_FN(n::NestedTensor_sgn));
  m.impl("sgn_", TORCH_FN(n::NestedTensor_sgn_));
  m.impl("neg", TORCH_FN(n::NestedTensor_neg));
  m.impl("neg_", TORCH_FN(n::NestedTensor_neg_));
  m.impl("relu", TORCH_FN(n::NestedTensor_relu));
  m.impl("relu_", TORCH_FN(n::NestedTensor_relu_));
  m.impl("gelu", TORCH_FN(n::NestedTensor_gelu));
  m.impl("gelu_", TORCH_FN(n::NestedTensor_gelu_));
  m.impl("silu", TORCH_FN(n::NestedTensor_silu));
  m.impl("silu_", TORCH_FN(n::NestedTensor_silu_));
  m.impl("tanh", TORCH_FN(n::NestedTensor_tanh));
  m.impl("tanh_", TORCH_FN(n::NestedTensor_tanh_));
  m.impl("cos", TORCH_FN(n::NestedTensor_cos));
  m.impl("sin", TORCH_FN(n::NestedTensor_sin));
  m.impl("sqrt", TORCH_FN(n::NestedTensor_sqrt));
  m.impl("isnan", TORCH_FN(n::NestedTensor_isnan));
  m.impl("isinf", TORCH_FN(n::NestedTensor_isinf));
  m.impl("isposinf", TORCH_FN(n::NestedTensor_isposinf));
  m.impl("isneginf", TORCH_FN(n::NestedTensor_isneginf));
  m.impl("logical_not", TORCH_FN(n::NestedTensor_logical_not));
  m.impl("logical_not_", TORCH_FN(n::NestedTensor_logical_not_));
  m.impl("add.Tensor", TORCH_FN(n::NestedTensor_add_Tensor));
  m.impl("add_.Tensor", TORCH_FN(n::NestedTensor_add__Tensor));
  m.impl("sub.Tensor", TORCH_FN(n::NestedTensor_sub_Tensor));
  m.impl("mul.Tensor", TORCH_FN(n::NestedTensor_mul_Tensor));
  m.impl("mul_.Tensor", TORCH_FN(n::NestedTensor_mul__Tensor));
  m.impl("mul.Scalar", TORCH_FN(n::NestedTensor_mul_Scalar));
  m.impl("mul_.Scalar", TORCH_FN(n::NestedTensor_mul__Scalar));
  m.impl("div.Tensor", TORCH_FN(n::NestedTensor_div_Tensor));
  m.impl("div.Scalar", TORCH_FN(n::NestedTensor_div_Scalar));
  m.impl("eq.Scalar", TORCH_FN(n::eq_scalar_nested));
  m.impl("eq.Tensor", TORCH_FN(n::eq_tensor_nested));
  m.impl("ge.Scalar", TORCH_FN(n::ge_scalar_nested));
  m.impl("gt.Scalar", TORCH_FN(n::gt_scalar_nested));
  m.impl("masked_fill.Scalar", TORCH_FN(n::NestedTensor_masked_fill));
  m.impl("native_dropout", TORCH_FN(n::native_dropout_nested));
  m.impl("native_dropout_backward", TORCH_FN(n::native_dropout_backward));
}

void bind_products_and_reductions(torch::Library& m) {
  m.impl("bmm", TORCH_FN(n::bmm_nested));
  m.impl("matmul", TORCH_FN(n::matmul_nested));
  m.impl("matmul.out", TORCH_FN(n::matmul_out_nested));
  m.impl("linear", TORCH_FN(n::nested_linear));
  m.impl("embedding", TORCH_FN(n::NestedTensor_embedding));
  m.impl("_softmax", TORCH_FN(n::softmax_nested));
  m.impl("_nested_tensor_softmax_with_shape", TORCH_FN(n::NestedTensor_softmax_dropout));
  m.impl("_safe_softmax", TORCH_FN(n::_safe_softmax));
  m.impl("all.dim", TORCH_FN(n::NestedTensor_all));
}

void bind_gradients(torch::Library& m) {
  m.impl("gelu_backward", TORCH_FN(n::gelu_backwards_nested));
  m.impl("silu_backward", TORCH_FN(n::silu_backward_nested));
  m.impl("threshold_backward", TORCH_FN(n::threshold_backwards_nested));
  m.impl("linear_backward", TORCH_FN(n::nested_linear_backward));
  m.impl("matmul_backward", TORCH_FN(n::matmul_backward_nested));
  m.impl("_softmax_backward_data", TORCH_FN(n::nested_softmax_backward));
  m.impl("_nested_select_backward", TORCH_FN(n::_nested_select_backward_symint));
  m.impl("value_selecting_reduction_backward", TORCH_FN(n::value_selecting_reduction_backward_nested_symint));
}

}  // namespace

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  bind_metadata(m);
  bind_copies(m);
  bind_elementwise(m);
  bind_products_and_reductions(m);
  bind_gradients(m);
}

// From dense tensors to a nested one.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_nested_view_from_buffer", TORCH_FN(n::_nested_view_from_buffer));
  m.impl("_nested_tensor_from_mask", TORCH_FN(n::NestedTensor_nested_tensor_from_mask));
  m.impl("_nested_tensor_from_mask_left_aligned", TORCH_FN(n::NestedTensor_nested_tensor_from_mask_left_aligned));
}
