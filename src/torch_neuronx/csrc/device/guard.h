// The current device of each thread.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace neuron {

// A count that never throws: 0 when the device cannot be used.
c10::DeviceIndex device_count() noexcept;

c10::DeviceIndex current_device() noexcept;

// Returns the device that was current before.
c10::DeviceIndex exchange_device(c10::DeviceIndex device);

// Raises unless 0 <= device < device_count().
void check_device_index(int64_t device);

// The index of `device`, the current device when it has none; raises unless it exists and is on neuron.
c10::DeviceIndex resolve_device(c10::Device device);

}  // namespace neuron
