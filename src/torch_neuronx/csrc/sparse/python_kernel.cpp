// Every other operator on a sparse tensor runs in torch_neuronx.sparse: natively when it has a kernel there, on the
// CPU, counted, when it has none.
#include <torch/library.h>

#include "dispatch/python_call.h"
#include "runtime/bridge.h"

namespace {

void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  neuron::runtime::ensure_initialized();
  neuron::dispatch::run_sparse(op.schema(), stack);
}

torch::CppFunction kernel() { return torch::CppFunction::makeFromBoxedFunction<&run>(); }

}  // namespace

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) { m.fallback(kernel()); }

TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) { m.fallback(kernel()); }

// On dense tensors, but about the indices of sparse ones.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_convert_indices_from_coo_to_csr", kernel());
  m.impl("_convert_indices_from_coo_to_csr.out", kernel());
  m.impl("_convert_indices_from_csr_to_coo", kernel());
  m.impl("_convert_indices_from_csr_to_coo.out", kernel());
  m.impl("_validate_compressed_sparse_indices", kernel());
  m.impl("_spdiags", kernel());
}
