// Operators of sparse layouts that take dense tensors alone, and so arrive under the dense key.
#include <ATen/NativeFunctions.h>
#include <torch/library.h>

namespace n = at::native;

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_to_sparse", static_cast<at::Tensor (*)(const at::Tensor&, std::optional<at::Layout>, at::OptionalIntArrayRef,
                                                  std::optional<int64_t>)>(n::dense_to_sparse));
  m.impl("_to_sparse.sparse_dim", static_cast<at::Tensor (*)(const at::Tensor&, int64_t)>(n::dense_to_sparse));
  m.impl("_to_sparse_csr", TORCH_FN(n::dense_to_sparse_csr));
  m.impl("_to_sparse_csc", TORCH_FN(n::dense_to_sparse_csc));
  m.impl("_to_sparse_bsr", TORCH_FN(n::dense_to_sparse_bsr));
  m.impl("_to_sparse_bsc", TORCH_FN(n::dense_to_sparse_bsc));
}
