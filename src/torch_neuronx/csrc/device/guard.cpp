#include "device/guard.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <utility>

#include "device/event.h"
#include "device/stream.h"
#include "runtime/bridge.h"

namespace neuron {
namespace {

thread_local c10::DeviceIndex current = 0;

c10::Device device_at(c10::DeviceIndex index) { return {c10::DeviceType::PrivateUse1, index}; }

struct NeuronGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }

  c10::Device getDevice() const override { return device_at(current); }
  c10::Device exchangeDevice(c10::Device device) const override {
    return device_at(exchange_device(resolve_device(device)));
  }
  void setDevice(c10::Device device) const override { exchange_device(resolve_device(device)); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current = device.has_index() ? device.index() : current;
  }

  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }

  c10::Stream getStream(c10::Device device) const override { return current_stream(resolve_device(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override { return default_stream(resolve_device(device)); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high) const override {
    return pooled_stream(resolve_device(device), high ? -1 : 0);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return pooled_stream(resolve_device(device), priority);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }
  bool queryStream(const c10::Stream& stream) const override { return query_stream(stream); }
  void synchronizeStream(const c10::Stream& stream) const override { synchronize_stream(stream); }
  void synchronizeDevice(c10::DeviceIndex device) const override { synchronize_device(device); }
  void* getStreamNativeHandle(c10::Stream stream) const override { return stream_handle(stream); }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex device, c10::EventFlag flag) const override {
    record_event(event, stream, device, flag);
  }
  void block(void* event, const c10::Stream& stream) const override { block_stream(event, stream); }
  bool queryEvent(void* event) const override { return query_event(event); }
  void synchronizeEvent(void* event) const override { synchronize_event(event); }
  double elapsedTime(void* start, void* end, c10::DeviceIndex) const override { return elapsed_time(start, end); }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { destroy_event(event); }

  // Values are counted references inside the runtime: work keeps alive what it reads.
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, NeuronGuard)

}  // namespace

c10::DeviceIndex device_count() noexcept {
  try {
    return runtime::device_count();
  } catch (...) {
    return 0;  // torch asks this while it decides which accelerator there is: no place for an error
  }
}

c10::DeviceIndex current_device() noexcept { return current; }

c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  check_device_index(device);
  return std::exchange(current, device);
}

void check_device_index(int64_t device) {
  const int count = runtime::device_count();
  TORCH_CHECK(device >= 0 && device < count, "neuron: invalid device ordinal ", device, ": this process has ", count,
              count == 1 ? " neuron device (index 0)" : " neuron devices (from index 0)",
              ". Use a smaller index, or start with TORCH_NEURONX_HOST_DEVICES=N to have N devices.");
}

c10::DeviceIndex resolve_device(c10::Device device) {
  TORCH_CHECK(device.type() == c10::DeviceType::PrivateUse1, "expected a neuron device, got ", device,
              ". Use 'neuron' or 'neuron:<index>'.");
  if (!device.has_index()) {
    return current;
  }
  check_device_index(device.index());
  return device.index();
}

}  // namespace neuron
