// How a view reads its storage; the same rules as lowering/views.py.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace neuron::dispatch {

// Non-overlapping and without holes.
bool is_dense(c10::IntArrayRef sizes, c10::IntArrayRef strides);

// Whether one dynamic slice of the storage, reshaped to the chain of strides, reads the view.
bool block_fits(c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t storage_numel, int64_t offset);

// Raises when a storage was made smaller than what the tensor shows of it.
void check_bounds(const at::TensorBase& t, const char* op, const char* argument);

}  // namespace neuron::dispatch
