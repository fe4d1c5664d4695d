// Run-time checks of ops (an index out of range) are read when the program next waits.
#pragma once

#include <Python.h>
#include <c10/core/Device.h>

#include <memory>

#include "dispatch/entry.h"

namespace neuron::dispatch {

// Keeps the error code of an op until somebody waits. Steals `code`; the GIL must be held.
void defer_check(c10::DeviceIndex device, PyObject* code, std::shared_ptr<const Entry> entry, const std::string& op);

// Reads every kept code of the device and raises the first error. The GIL must not be needed by the
// caller: it is taken here.
void raise_deferred(c10::DeviceIndex device);

}  // namespace neuron::dispatch
