// The C++ core's way to the Python runtime. Every function takes the GIL itself.
#pragma once

#include <Python.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

namespace neuron::runtime {

// Number of logical devices: TORCH_NEURONX_HOST_DEVICES for the host target (1..64, default 1).
// Cheap: reads the environment once and starts nothing.
c10::DeviceIndex device_count();

// Starts the runtime and binds the lowering table at the first device op. Raises in a forked child.
void ensure_initialized();
bool is_initialized();
bool in_bad_fork();

// A new one-dimensional runtime array holding a copy of `numel` elements at `data`.
// Returns a new reference.
PyObject* from_host(const void* data, c10::ScalarType dtype, int64_t numel, c10::DeviceIndex device);

// The same, filled with zeros.
PyObject* zeros(c10::ScalarType dtype, int64_t numel, c10::DeviceIndex device);

// Whether the array's memory was donated to another. The GIL must be held.
bool is_deleted(PyObject* array);

// Waits until the array is computed and returns the address of its host-visible memory, valid as
// long as the array lives and is not donated. Raises the op's error when its computation failed.
const void* host_pointer(PyObject* array);

// Waits for an array to have its value; one that was donated meanwhile is none, and that is no error.
void wait_for(PyObject* array);

// Waits for one completion token. Steals the reference. Raises the op's error when it failed, under
// the op's name if there is one.
void wait_token(PyObject* token, const char* op);

// Raises the first error that an already finished op left behind (index out of range, ...).
void raise_deferred_errors(c10::DeviceIndex device);

// Turns the pending Python error of a failed execution into one that names the op.
[[noreturn]] void throw_execution_error(const std::string& op);

// The device that factory calls without tensors go to.
c10::DeviceIndex current_device();

}  // namespace neuron::runtime
