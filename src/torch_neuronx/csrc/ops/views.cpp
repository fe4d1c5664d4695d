#include "ops/views.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/clone_ops.h>

#include "device/allocator.h"
#include "device/guard.h"
#include "device/stream.h"
#include "ops/resize.h"

namespace neuron::ops {

at::Tensor& set_source_storage_offset(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef sizes,
                                      at::IntArrayRef strides) {
  at::native::checkSetStorage(self, std::move(source), offset, sizes, strides);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  resize_tensor(*impl, sizes, strides.data() == nullptr ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(strides));
  return self;
}

at::Tensor& set_source_storage(at::Tensor& self, at::Storage source) {
  const auto numel = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_source_storage_offset(self, std::move(source), 0, {numel}, {});
}

at::Tensor& set_nothing(at::Tensor& self) {
  at::Storage nothing(new_storage(0, self.device().index()));
  return set_source_storage_offset(self, std::move(nothing), 0, {0}, {});
}

at::Tensor lazy_clone(const at::Tensor& self) { return at::_ops::clone::call(self, at::MemoryFormat::Preserve); }

bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto dense = [](const at::Tensor& tensor) {
    return tensor.key_set().has_any(c10::DispatchKeySet(c10::DispatchKey::Dense)) &&
           (tensor.device().is_cpu() || tensor.device().is_privateuseone());
  };
  return (dense(self) && dense(from)) || self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

// Nothing to record: work keeps alive the values it reads, on whichever stream it was started.
void record_stream(at::Tensor& self, at::Stream stream) {
  TORCH_CHECK(self.device().type() == stream.device_type(), "record_stream: the tensor is on ", self.device(),
              " but the stream is on ", stream.device(), ". Use a stream of the tensor's device.");
  stream_handle(stream);  // raises when there is no such stream
}

}  // namespace neuron::ops
