// How a view reads its storage; the same rules as lowering/views.py.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace neuron::dispatch {

// Non-overlapping and without holes.
bool is_dense(c10::IntArrayRef sizes, c10::IntArrayRef strides);

// Whether one dynamic slice of the storage, reshaped to the chain of strides, reads the view.
bool block_fits(c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t storage_numel, int64_t offset);

}  // namespace neuron::dispatch
