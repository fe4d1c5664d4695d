// Tensors in arrays with room to spare, for programs that serve many sizes.
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

namespace neuron::dispatch {

// Elements from a tensor's first one to its last.
int64_t extent_of(const at::Tensor& tensor);

// A new array of `capacity` elements that begins with the tensor's: its layout holds there without an offset. What lies
// behind is zeros, or what would show at once. The tensor's own dtype must be its array's. The GIL is held.
PyObject* padded_copy(const at::Tensor& tensor, int64_t capacity, bool poison);

}  // namespace neuron::dispatch
