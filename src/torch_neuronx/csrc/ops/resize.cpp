#include "ops/resize.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "gil.h"
#include "ops/deterministic.h"
#include "runtime/bridge.h"
#include "storage/device_buffer.h"

#include <c10/util/accumulate.h>

namespace neuron {
namespace {

// By way of the host: growing a storage that has a value is rare, and a value cannot be grown in place.
void copy_prefix(DeviceBuffer& from, DeviceBuffer& to) {
  Gil gil;
  if (from.handle == nullptr || from.nbytes == 0 || to.nbytes == 0) {
    return;
  }
  auto bytes = std::make_unique<char[]>(to.nbytes);
  std::memcpy(bytes.get(), runtime::host_pointer(from.handle), std::min(from.nbytes, to.nbytes));
  const bool fits = to.nbytes % c10::elementSize(from.dtype) == 0;
  const auto dtype = fits ? from.dtype : c10::ScalarType::Byte;
  const auto numel = static_cast<int64_t>(to.nbytes / c10::elementSize(dtype));
  to.replace(runtime::from_host(bytes.get(), dtype, numel, to.device), dtype, numel);
}

}  // namespace

void resize_storage(c10::StorageImpl& storage, size_t nbytes) {
  TORCH_CHECK(storage.resizable(),
              "Trying to resize storage that is not resizable: it shares memory it does not own. "
              "Clone the tensor first.");
  DeviceBuffer& old = DeviceBuffer::of(storage);
  runtime::ensure_initialized();
  c10::DataPtr data = DeviceBuffer::make(nbytes, old.device);
  auto& fresh = *static_cast<DeviceBuffer*>(data.get_context());
  copy_prefix(old, fresh);
  fresh.version = old.version + 1;
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(nbytes);
}

void resize_tensor(c10::TensorImpl& tensor, at::IntArrayRef sizes, at::OptionalIntArrayRef strides) {
  if (tensor.sizes() == sizes && (!strides.has_value() || tensor.strides() == *strides)) {
    return;
  }
  const auto itemsize = tensor.dtype().itemsize();
  const auto offset = static_cast<size_t>(tensor.storage_offset());
  const size_t nbytes = strides.has_value() ? at::detail::computeStorageNbytes(sizes, *strides, itemsize, offset)
                                            : at::detail::computeStorageNbytesContiguous(sizes, itemsize, offset);
  // Memory first: when there is none, the tensor keeps its shape.
  c10::StorageImpl& storage = *tensor.unsafe_storage().unsafeGetStorageImpl();
  if (c10::multiply_integers(sizes) > 0 && nbytes > storage.nbytes()) {
    resize_storage(storage, nbytes);
  }
  if (strides.has_value()) {
    tensor.set_sizes_and_strides(sizes, *strides);
  } else {
    tensor.set_sizes_contiguous(sizes);
  }
}

namespace ops {
namespace {

// What was added beyond `before` bytes.
void fill_added(const at::Tensor& self, size_t before) {
  const auto itemsize = static_cast<int64_t>(self.itemsize());
  const int64_t old = static_cast<int64_t>(before) / itemsize;
  const int64_t added = static_cast<int64_t>(self.storage().nbytes()) / itemsize - old;
  if (added > 0 && must_fill()) [[unlikely]] {
    auto tail = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(self.storage()), self.key_set(), self.dtype());
    tail.unsafeGetTensorImpl()->set_storage_offset(old);
    tail.unsafeGetTensorImpl()->set_sizes_contiguous({added});
    fill_if_deterministic(tail);
  }
}

}  // namespace

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef sizes,
                          std::optional<at::MemoryFormat> memory_format) {
  at::detail::check_size_nonnegative(sizes);
  const size_t before = self.unsafeGetTensorImpl()->unsafe_storage().nbytes();
  resize_tensor(*self.unsafeGetTensorImpl(), sizes, std::nullopt);
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve, "resize_: unsupported memory format ", *memory_format,
                ". Use contiguous_format or channels_last.");
    self.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  }
  fill_added(self, before);
  return self;
}

}  // namespace ops
}  // namespace neuron
