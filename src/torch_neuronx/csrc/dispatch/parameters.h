// Run-time numbers travel as one int64 vector; vectors seen lately are kept on the device.
#pragma once

#include <Python.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

namespace neuron::dispatch {

// A new reference to a device array of these 64-bit words. The GIL must be held.
PyObject* parameter_array(c10::IntArrayRef words, c10::DeviceIndex device);

// Forgets every kept vector.
void clear_parameters();

}  // namespace neuron::dispatch
