#include "storage/device_buffer.h"

#include <ATen/core/Tensor.h>

#include <atomic>
#include <utility>

#include "gil.h"
#include "storage/ledger.h"

namespace neuron {
namespace {

std::atomic<bool> finalizing{false};

void delete_buffer(void* context) { delete static_cast<DeviceBuffer*>(context); }

// A storage that shares a buffer without owning it came back from a DLPack capsule.
DeviceBuffer& find_shared(const c10::StorageImpl& storage) {
  const auto address = reinterpret_cast<uintptr_t>(storage.data_ptr().get());
  DeviceBuffer* buffer = ledger::find(address);
  TORCH_CHECK(buffer != nullptr, "reading a storage on ", storage.device(), " whose memory (address ", address,
              ") was not allocated by the neuron device: memory of another library cannot be adopted. "
              "Copy it: make a CPU tensor of it, then call .to('neuron').");
  TORCH_CHECK(buffer->address == address, "reading a storage on ", storage.device(),
              " that starts inside another one: a view exported through DLPack has lost its offset. "
              "Export tensor.clone() instead of the view.");
  return *buffer;
}

}  // namespace

DeviceBuffer::DeviceBuffer(size_t nbytes, c10::DeviceIndex device) : nbytes(nbytes), device(device) {
  ledger::open(*this);
}

DeviceBuffer::~DeviceBuffer() {
  ledger::close(*this);
  release_object(handle);
}

void DeviceBuffer::replace(PyObject* array, c10::ScalarType new_dtype, int64_t new_numel) {
  PyObject* old = std::exchange(handle, array);
  dtype = new_dtype;
  numel = new_numel;
  ++version;
  Py_XDECREF(old);
}

DeviceBuffer& DeviceBuffer::of(const c10::StorageImpl& storage) {
  TORCH_CHECK(storage.device_type() == c10::DeviceType::PrivateUse1, "expected a storage on neuron, but it is on ",
              storage.device(), ". Move the tensor with .to('neuron') first.");
  const c10::DataPtr& data = storage.data_ptr();
  if (data.get_deleter() == &delete_buffer) [[likely]] {
    return *static_cast<DeviceBuffer*>(data.get_context());
  }
  return find_shared(storage);
}

DeviceBuffer& DeviceBuffer::of(const at::Tensor& tensor) {
  return of(*tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

c10::DataPtr DeviceBuffer::make(size_t nbytes, c10::DeviceIndex device) {
  auto* buffer = new DeviceBuffer(nbytes, device);
  return {reinterpret_cast<void*>(buffer->address), buffer, &delete_buffer,
          c10::Device(c10::DeviceType::PrivateUse1, device)};
}

void release_object(PyObject* object) noexcept {
  if (object == nullptr || python_finalizing() || Py_IsInitialized() == 0) {
    return;
  }
  if (PyGILState_Check()) {
    Py_DECREF(object);
    return;
  }
  Gil gil;
  Py_DECREF(object);
}

void mark_python_finalizing() { finalizing.store(true, std::memory_order_release); }

bool python_finalizing() { return finalizing.load(std::memory_order_acquire); }

}  // namespace neuron
