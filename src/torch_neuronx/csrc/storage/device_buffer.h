// A DeviceBuffer is the value of one storage: the context of its c10::DataPtr.
#pragma once

#include <Python.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>

namespace at {
class Tensor;
}

namespace neuron {

// handle: the runtime's array, always one-dimensional, or null while nothing was written.
// A view never touches it; an op reads it as a value and replaces it as a whole.
struct DeviceBuffer {
  PyObject* handle = nullptr;  // owned; touched only with the GIL held
  size_t nbytes = 0;           // the storage's size; numel * itemsize(dtype) == nbytes when handle is set
  int64_t numel = 0;           // elements of the handle
  c10::ScalarType dtype = c10::ScalarType::Undefined;  // of the handle, Undefined while handle is null
  c10::DeviceIndex device = 0;
  uint64_t version = 0;  // counts replacements of the handle

  // What data_ptr() shows: the start of a range of addresses no other buffer ever had and nothing
  // is mapped at, so two storages never seem to overlap and a stray read faults at once.
  uintptr_t address = 0;
  // The ledger's list of live buffers.
  DeviceBuffer* previous = nullptr;
  DeviceBuffer* next = nullptr;

  // Counts the bytes against the device; raises OutOfMemoryError when they do not fit.
  DeviceBuffer(size_t nbytes, c10::DeviceIndex device);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  // Takes ownership of `array` and drops the old handle. The GIL must be held.
  void replace(PyObject* array, c10::ScalarType dtype, int64_t numel);

  // The buffer behind a storage; raises when the storage is not on `neuron`.
  static DeviceBuffer& of(const c10::StorageImpl& storage);
  static DeviceBuffer& of(const at::Tensor& tensor);

  // A new buffer as the DataPtr of a storage to be.
  static c10::DataPtr make(size_t nbytes, c10::DeviceIndex device);
};

// Drops one reference from any thread: takes the GIL if this thread has it not, and leaves the
// object alone once the interpreter is going away.
void release_object(PyObject* object) noexcept;

// Set at interpreter exit: deleters then leave Python objects alone.
void mark_python_finalizing();
bool python_finalizing();

}  // namespace neuron
