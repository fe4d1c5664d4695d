// Ops that change only what a tensor says about its storage, or which storage that is.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

namespace neuron::ops {

at::Tensor& set_source_storage_offset(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef sizes,
                                      at::IntArrayRef strides);
at::Tensor& set_source_storage(at::Tensor& self, at::Storage source);
at::Tensor& set_nothing(at::Tensor& self);

// A plain clone: copy-on-write needs memory whose address is its owner.
at::Tensor lazy_clone(const at::Tensor& self);

// Whether `tensor.data = from` may keep the tensor object: Module.to() then keeps its parameters.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from);

void record_stream(at::Tensor& self, at::Stream stream);

}  // namespace neuron::ops
