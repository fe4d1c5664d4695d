#include "device/allocator.h"

#include "device/guard.h"
#include "device/stream.h"
#include "runtime/bridge.h"
#include "storage/device_buffer.h"
#include "storage/ledger.h"

namespace neuron {
namespace {

struct NeuronAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t nbytes) override {
    runtime::ensure_initialized();
    return DeviceBuffer::make(nbytes, current_device());
  }

  // torch asks this of copy-on-write storages alone, and neuron makes none: see _lazy_clone.
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false,
                                "copying neuron memory by address: addresses on neuron are names, not places. "
                                "Use tensor.clone() or tensor.copy_().");
  }

  bool initialized() override { return runtime::is_initialized(); }

  // Freed buffers are given back at once: there is nothing to empty but the records of finished work.
  void emptyCache(c10::MempoolId_t) override { forget_finished_work(); }

  // A value lives as long as the work that reads it, whichever stream that is on.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  ledger::Stats getDeviceStats(c10::DeviceIndex device) override {
    check_device_index(device);
    return ledger::stats(device);
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    check_device_index(device);
    ledger::reset_accumulated(device);
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    check_device_index(device);
    ledger::reset_peak(device);
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    check_device_index(device);
    return ledger::free_and_total(device);
  }
};

NeuronAllocator allocator;
REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &allocator)

}  // namespace

c10::DeviceAllocator* device_allocator() { return &allocator; }

c10::intrusive_ptr<c10::StorageImpl> new_storage(size_t nbytes, c10::DeviceIndex device) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t{}, static_cast<int64_t>(nbytes),
                                               DeviceBuffer::make(nbytes, device), &allocator, /*resizable=*/true);
}

}  // namespace neuron
