// What in-place and out= forms on sparse tensors end with: the target takes the result's indices and values over.
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/native/SparseTensorUtils.h>
#include <torch/csrc/autograd/python_variable.h>

#include "errors.h"
#include "module.h"

namespace neuron {
namespace {

void assign_coo(const at::Tensor& target, const at::Tensor& source) {
  at::SparseTensorImpl* impl = at::sparse::get_sparse_impl(target);
  const at::Tensor indices = source._indices();
  const at::Tensor values = source._values();
  impl->resize_and_clear_(source.sparse_dim(), source.dense_dim(), source.sizes());
  impl->set_indices_and_values_unsafe(indices, values);
  impl->set_coalesced(source.is_coalesced());
}

void assign_compressed(const at::Tensor& target, const at::Tensor& source) {
  const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(source);
  static_cast<at::SparseCsrTensorImpl*>(target.unsafeGetTensorImpl())
      ->set_member_tensors(compressed, plain, source.values(), source.sizes());
}

// assign_sparse(target, source): both of one sparse layout, dtype and device.
PyObject* assign_sparse(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    TORCH_CHECK_TYPE(count == 2 && THPVariable_Check(args[0]) && THPVariable_Check(args[1]),
                     "assign_sparse takes two tensors");
    const at::Tensor& target = THPVariable_Unpack(args[0]);
    const at::Tensor& source = THPVariable_Unpack(args[1]);
    TORCH_CHECK(target.layout() == source.layout() && target.scalar_type() == source.scalar_type() &&
                    target.device() == source.device(),
                "assign_sparse: target and source differ in layout, dtype or device");
    if (target.is_sparse()) {
      assign_coo(target, source);
    } else {
      TORCH_CHECK(at::sparse_csr::is_sparse_compressed(target), "assign_sparse: the target is dense");
      assign_compressed(target, source);
    }
    Py_RETURN_NONE;
  });
}

PyMethodDef methods[] = {
    {"assign_sparse", method(assign_sparse), METH_FASTCALL, "Gives a sparse tensor the indices and values of another."},
    {nullptr, nullptr, 0, nullptr}};

const ModulePart part(methods);

}  // namespace
}  // namespace neuron
