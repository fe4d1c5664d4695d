// COO tensors: what is metadata, or composed of operators that run on the indices and values.
#include <ATen/NativeFunctions.h>
#include <torch/library.h>

namespace {

namespace n = at::native;

// Shape, indices and values; nothing here reads an element.
void bind_metadata(torch::Library& m) {
  m.impl("_sparse_coo_tensor_with_dims", TORCH_FN(n::new_with_dims_sparse));
  m.impl("_sparse_coo_tensor_with_dims_and_tensors", TORCH_FN(n::new_with_dims_and_tensor_sparse_symint));
  m.impl("empty.memory_format", TORCH_FN(n::empty_sparse));
  m.impl("empty_like", TORCH_FN(n::empty_like_sparse_coo));
  m.impl("zeros.out", TORCH_FN(n::zeros_sparse_out));
  m.impl("sparse_dim", TORCH_FN(n::sparse_dim_sparse));
  m.impl("_dimI", TORCH_FN(n::sparse_dim_sparse));
  m.impl("dense_dim", TORCH_FN(n::dense_dim_sparse));
  m.impl("_dimV", TORCH_FN(n::dense_dim_sparse));
  m.impl("_nnz", TORCH_FN(n::_nnz_sparse));
  m.impl("is_coalesced", TORCH_FN(n::is_coalesced_sparse));
  m.impl("_coalesced_", TORCH_FN(n::_coalesced_sparse_));
  m.impl("_indices", TORCH_FN(n::_indices_sparse));
  m.impl("_values", TORCH_FN(n::_values_sparse));
  m.impl("indices", TORCH_FN(n::indices_sparse));
  m.impl("values", TORCH_FN(n::values_sparse));
  m.impl("sparse_resize_", TORCH_FN(n::sparse_resize_));
  m.impl("sparse_resize_and_clear_", TORCH_FN(n::sparse_resize_and_clear_));
  m.impl("resize_as_sparse_", TORCH_FN(n::resize_as_sparse_));
  m.impl("zero_", TORCH_FN(n::zero_sparse_));
}

void bind_copies(torch::Library& m) {
  m.impl("clone", TORCH_FN(n::clone_sparse));
  m.impl("copy_", TORCH_FN(n::copy_sparse_wrapper_));
  m.impl("copy_sparse_to_sparse_", TORCH_FN(n::copy_sparse_));
  m.impl("_to_dense", TORCH_FN(n::sparse_to_dense));
  m.impl("_to_sparse", static_cast<at::Tensor (*)(const at::Tensor&, std::optional<at::Layout>, at::OptionalIntArrayRef,
                                                  std::optional<int64_t>)>(n::sparse_coo_to_sparse));
  m.impl("_to_sparse.sparse_dim", static_cast<at::Tensor (*)(const at::Tensor&, int64_t)>(n::sparse_coo_to_sparse));
  m.impl("_to_sparse_csr", TORCH_FN(n::coo_to_sparse_csr));
  m.impl("_to_sparse_csc", TORCH_FN(n::coo_to_sparse_csc));
  m.impl("_to_sparse_bsr", TORCH_FN(n::coo_to_sparse_bsr));
  m.impl("_to_sparse_bsc", TORCH_FN(n::coo_to_sparse_bsc));
}

void bind_rearrangements(torch::Library& m) {
  m.impl("_sparse_broadcast_to", TORCH_FN(n::sparse_broadcast_to));
  m.impl("cat", TORCH_FN(n::cat_sparse));
  m.impl("narrow_copy", TORCH_FN(n::narrow_copy_sparse));
  m.impl("permute", TORCH_FN(n::permute_sparse_coo));
  m.impl("unsqueeze", TORCH_FN(n::unsqueeze_sparse));
  m.impl("view_as_real", TORCH_FN(n::view_as_real_sparse));
  m.impl("view_as_complex", TORCH_FN(n::view_as_complex_sparse));
}

// Composed of operators on dense tensors and of the kernels in torch_neuronx.sparse.
void bind_arithmetic(torch::Library& m) {
  m.impl("add.Tensor", TORCH_FN(n::add_sparse));
  m.impl("add_.Tensor", TORCH_FN(n::add_sparse_));
  m.impl("sub.Tensor", TORCH_FN(n::sub_sparse));
  m.impl("sub_.Tensor", TORCH_FN(n::sub_sparse_));
  m.impl("sub.out", TORCH_FN(n::sub_out_sparse));
  m.impl("mul.Tensor", TORCH_FN(n::mul_sparse));
  m.impl("mul_.Tensor", TORCH_FN(n::mul_sparse_));
  m.impl("div.Tensor", static_cast<at::Tensor (*)(const at::Tensor&, const at::Tensor&)>(n::div_sparse));
  m.impl("div_.Tensor", static_cast<at::Tensor& (*)(at::Tensor&, const at::Tensor&)>(n::div_sparse_));
  m.impl("div.out",
         static_cast<at::Tensor& (*)(const at::Tensor&, const at::Tensor&, at::Tensor&)>(n::div_out_sparse_zerodim));
  using Mode = std::optional<std::string_view>;
  m.impl("div.Tensor_mode", static_cast<at::Tensor (*)(const at::Tensor&, const at::Tensor&, Mode)>(n::div_sparse));
  m.impl("div_.Tensor_mode", static_cast<at::Tensor& (*)(at::Tensor&, const at::Tensor&, Mode)>(n::div_sparse_));
  m.impl("div.out_mode", static_cast<at::Tensor& (*)(const at::Tensor&, const at::Tensor&, Mode, at::Tensor&)>(
                             n::div_out_sparse_zerodim));
  m.impl("floor_divide", TORCH_FN(n::floor_divide_sparse));
  m.impl("floor_divide_.Tensor", TORCH_FN(n::floor_divide_sparse_));
  m.impl("floor_divide.out", TORCH_FN(n::floor_divide_out_sparse_zerodim));
  m.impl("pow.Tensor_Scalar", TORCH_FN(n::pow_sparse_scalar));
  m.impl("pow.Tensor_Scalar_out", TORCH_FN(n::pow_out_sparse_scalar));
}

void bind_reductions(torch::Library& m) {
  using Dtype = std::optional<at::ScalarType>;
  using P = const std::optional<at::Scalar>&;
  m.impl("any", TORCH_FN(n::any_sparse));
  m.impl("sum", TORCH_FN(n::sum_coo));
  m.impl("sum.dim_IntList", TORCH_FN(n::sum_sparse_coo));
  m.impl("native_norm", static_cast<at::Tensor (*)(const at::Tensor&, const at::Scalar&)>(n::norm_sparse));
  m.impl("native_norm.ScalarOpt_dim_dtype",
         static_cast<at::Tensor (*)(const at::Tensor&, P, at::IntArrayRef, bool, Dtype)>(n::norm_sparse));
  m.impl("norm.ScalarOpt_dim_dtype", TORCH_FN(n::sparse_dtype_norm));
  m.impl("norm.ScalarOpt_dim", TORCH_FN(n::sparse_norm));
}

void bind_products(torch::Library& m) {
  m.impl("mm", static_cast<at::Tensor (*)(const at::Tensor&, const at::Tensor&)>(n::_sparse_mm));
  m.impl("mm.out", TORCH_FN(n::_sparse_mm_out));
  m.impl("mv", TORCH_FN(n::mv_sparse));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  bind_metadata(m);
  bind_copies(m);
  bind_rearrangements(m);
  bind_arithmetic(m);
  bind_reductions(m);
  bind_products(m);
}
