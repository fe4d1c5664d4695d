// The ledger of device memory: which buffers live, how many bytes they hold, and the cap on them.
// Memory itself comes with the first value written, inside the runtime.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace neuron {
struct DeviceBuffer;
}

namespace neuron::ledger {

using Stats = c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t kAlignment = 64;  // what the host target needs to share memory with the CPU

// Counts a new buffer and gives it its address. Raises OutOfMemoryError beyond the cap.
void open(DeviceBuffer& buffer);
void close(DeviceBuffer& buffer) noexcept;

// The live buffer whose range of addresses holds `address`, or null.
DeviceBuffer* find(uintptr_t address);

struct LiveBuffer {
  c10::DeviceIndex device;
  uintptr_t address;
  size_t nbytes;
  bool written;
};
std::vector<LiveBuffer> live_buffers();

Stats stats(c10::DeviceIndex device);
void reset_peak(c10::DeviceIndex device);
void reset_accumulated(c10::DeviceIndex device);

// Bytes one logical device may hold: TORCH_NEURONX_HOST_MEMORY_LIMIT, else the machine's memory.
std::pair<size_t, size_t> free_and_total(c10::DeviceIndex device);
void set_fraction(double fraction, c10::DeviceIndex device);

}  // namespace neuron::ledger
