// Pinned memory: aligned host memory this backend knows to be its own, cached by size.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace neuron {

at::HostAllocator* host_allocator();
bool is_pinned(const void* data);

}  // namespace neuron
