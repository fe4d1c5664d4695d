// Changing the size of a storage that may already hold a value.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <optional>

namespace neuron {

// Gives the storage `nbytes`, keeping the bytes it has; the rest is undefined.
void resize_storage(c10::StorageImpl& storage, size_t nbytes);

// Sets sizes and strides (contiguous when absent) and grows the storage if they need more.
void resize_tensor(c10::TensorImpl& tensor, at::IntArrayRef sizes, at::OptionalIntArrayRef strides);

namespace ops {

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef sizes, std::optional<at::MemoryFormat> memory_format);

}  // namespace ops
}  // namespace neuron
