// CSR, CSC, BSR and BSC tensors: what is metadata, or composed of operators that run on the indices and values.
#include <ATen/NativeFunctions.h>
#include <torch/library.h>

namespace {

namespace n = at::native;

// Shape, indices and values; nothing here reads an element.
void bind_metadata(torch::Library& m) {
  m.impl("empty.memory_format", TORCH_FN(n::empty_sparse_compressed));
  m.impl("empty_like", TORCH_FN(n::empty_like_sparse_csr));
  m.impl("sparse_dim", TORCH_FN(n::sparse_dim_sparse_csr));
  m.impl("dense_dim", TORCH_FN(n::dense_dim_sparse_csr));
  m.impl("_nnz", TORCH_FN(n::_nnz_sparse_csr));
  m.impl("values", TORCH_FN(n::values_sparse_csr));
  m.impl("crow_indices", TORCH_FN(n::crow_indices_sparse_csr));
  m.impl("col_indices", TORCH_FN(n::col_indices_sparse_csr));
  m.impl("ccol_indices", TORCH_FN(n::ccol_indices_sparse_csr));
  m.impl("row_indices", TORCH_FN(n::row_indices_sparse_csr));
  m.impl("resize_", TORCH_FN(n::resize_sparse_csr_));
  m.impl("resize_as_sparse_", TORCH_FN(n::resize_as_sparse_compressed_));
}

void bind_copies(torch::Library& m) {
  m.impl("clone", TORCH_FN(n::clone_sparse_compressed));
  m.impl("copy_", TORCH_FN(n::copy_sparse_compressed_));
  m.impl("fill_.Scalar", TORCH_FN(n::fill_sparse_csr_));
  m.impl("normal_", TORCH_FN(n::normal_sparse_csr_));
  m.impl("zero_", TORCH_FN(n::zero_sparse_csr_));
  m.impl("_to_dense", TORCH_FN(n::sparse_compressed_to_dense));
  m.impl("_to_sparse", static_cast<at::Tensor (*)(const at::Tensor&, std::optional<at::Layout>, at::OptionalIntArrayRef,
                                                  std::optional<int64_t>)>(n::sparse_compressed_to_sparse));
  m.impl("_to_sparse.sparse_dim",
         static_cast<at::Tensor (*)(const at::Tensor&, int64_t)>(n::sparse_compressed_to_sparse));
  m.impl("_to_sparse_csr", TORCH_FN(n::sparse_compressed_to_sparse_csr));
  m.impl("_to_sparse_csc", TORCH_FN(n::sparse_compressed_to_sparse_csc));
}

void bind_arithmetic(torch::Library& m) {
  m.impl("add.Tensor", TORCH_FN(n::add_sparse_csr));
  m.impl("add_.Tensor", TORCH_FN(n::add_sparse_csr_));
  m.impl("mul.Tensor", TORCH_FN(n::mul_sparse_csr));
  m.impl("mul_.Tensor", TORCH_FN(n::mul_sparse_csr_));
  m.impl("mul.out", TORCH_FN(n::mul_out_sparse_csr));
  m.impl("mul.Scalar", TORCH_FN(n::mul_scalar_sparse_csr));
  m.impl("mul_.Scalar", TORCH_FN(n::mul__scalar_sparse_csr));
  m.impl("select.int", TORCH_FN(n::select_sparse_csr));
  m.impl("select_copy.int", TORCH_FN(n::select_copy_sparse_csr));
  m.impl("sum", TORCH_FN(n::sum_csr));
  m.impl("sum.dim_IntList", TORCH_FN(n::sum_sparse_compressed));
  m.impl("mm", TORCH_FN(n::_sparse_csr_mm));
  m.impl("mm.out", TORCH_FN(n::_sparse_csr_mm_out));
  m.impl("addmm", TORCH_FN(n::addmm_sparse_compressed_dense));
  m.impl("sparse_mask", TORCH_FN(n::sparse_mask_sparse_compressed));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  bind_metadata(m);
  bind_copies(m);
  bind_arithmetic(m);
}
