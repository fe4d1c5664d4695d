// What torch asks every accelerator for: the PrivateUse1 hooks.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "device/allocator.h"
#include "device/generator.h"
#include "device/guard.h"
#include "device/host_allocator.h"
#include "ops/resize.h"
#include "runtime/bridge.h"
#include "storage/device_buffer.h"
#include "storage/ledger.h"

namespace neuron {
namespace {

struct NeuronHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    check_device_index(device);
    return runtime::is_initialized();
  }
  void init() const override { runtime::ensure_initialized(); }

  c10::DeviceIndex deviceCount() const override { return device_count(); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { exchange_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return exchange_device(device); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? c10::DeviceIndex{-1} : exchange_device(device);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return new_generator(device); }

  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return host_allocator(); }

  at::Device getDeviceFromPtr(void* data) const override {
    const DeviceBuffer* buffer = ledger::find(reinterpret_cast<uintptr_t>(data));
    TORCH_CHECK(buffer != nullptr, "neuron: no tensor holds the address ", data, ". Pass the device explicitly.");
    return {c10::DeviceType::PrivateUse1, buffer->device};
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), nbytes);
  }
};

// Leaked: torch may call hooks from static destructors.
[[maybe_unused]] const bool registered = (at::RegisterPrivateUse1HooksInterface(new NeuronHooks()), true);

}  // namespace
}  // namespace neuron
