// The allocator torch sees. It hands out DeviceBuffers; memory comes with the first value written.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StorageImpl.h>

namespace neuron {

c10::DeviceAllocator* device_allocator();

// A resizable storage of `nbytes` on `device`, without going through the current device.
c10::intrusive_ptr<c10::StorageImpl> new_storage(size_t nbytes, c10::DeviceIndex device);

}  // namespace neuron
