#include "device/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstring>
#include <mutex>

#include "device/guard.h"
#include "max_devices.h"

namespace neuron {
namespace {

constexpr size_t kStateSize = 2 * sizeof(uint64_t);

at::Tensor byte_tensor(size_t count) {
  return at::Tensor(at::detail::empty_cpu({static_cast<int64_t>(count)}, at::kByte));
}

// A CPU generator in the state that `bytes` (of `count`) describe, or none.
at::Generator twin_from(const char* bytes, size_t count) {
  if (count == 0) {
    return at::Generator();
  }
  const at::Tensor state = byte_tensor(count);
  std::memcpy(state.mutable_data_ptr(), bytes, count);
  at::Generator twin = at::detail::createCPUGenerator();
  twin.set_state(state);
  return twin;
}

size_t twin_state_size() {
  static const auto size = static_cast<size_t>(at::detail::createCPUGenerator().get_state().numel());
  return size;
}

c10::DeviceIndex checked(c10::DeviceIndex device) {
  const c10::DeviceIndex index = device == -1 ? current_device() : device;
  check_device_index(index);
  return index;
}

}  // namespace

NeuronGenerator::NeuronGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, device),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

std::pair<uint64_t, uint64_t> NeuronGenerator::philox_engine_inputs(uint64_t increment) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t offset = offset_;
  offset_ += increment;
  return {seed_, offset};
}

at::Generator NeuronGenerator::cpu_twin() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!twin_.defined()) {
    twin_ = at::detail::createCPUGenerator(seed_);
  }
  return twin_;
}

void NeuronGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
  twin_ = at::Generator();
}

void NeuronGenerator::set_offset(uint64_t offset) {
  TORCH_CHECK(!twin_.defined(),
              "set_offset() on a neuron generator that has drawn the CPU's numbers (TORCH_NEURONX_RNG=cpu or "
              "debug.cpu_random()): the CPU's sequence has no offset to move to. Use manual_seed() or set_state().");
  offset_ = offset;
}

uint64_t NeuronGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void NeuronGenerator::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK_TYPE(state.layout() == c10::kStrided && state.device().is_cpu() &&
                       state.dtype() == c10::scalarTypeToTypeMeta(at::kByte),
                   "RNG state must be a torch.ByteTensor on the CPU, got dtype ", state.dtype(), " on ", state.device(),
                   ". Pass what get_rng_state() returned.");
  const auto count = static_cast<size_t>(state.numel());
  TORCH_CHECK(state.is_contiguous() && (count == kStateSize || count == kStateSize + twin_state_size()),
              "RNG state is wrong size: neuron generators have ", kStateSize, " bytes (",
              kStateSize + twin_state_size(), " once the CPU's numbers were drawn), got ", count,
              ". Pass what get_rng_state() of a neuron device returned.");
  const auto* bytes = static_cast<const char*>(state.data());
  twin_ = twin_from(bytes + kStateSize, count - kStateSize);
  std::memcpy(&seed_, bytes, sizeof(seed_));
  std::memcpy(&offset_, bytes + sizeof(seed_), sizeof(offset_));
}

c10::intrusive_ptr<c10::TensorImpl> NeuronGenerator::get_state() const {
  const at::Tensor twin = twin_.defined() ? twin_.get_state() : at::Tensor();
  const size_t twin_size = twin.defined() ? static_cast<size_t>(twin.numel()) : 0;
  const at::Tensor state = byte_tensor(kStateSize + twin_size);
  auto* bytes = static_cast<char*>(state.mutable_data_ptr());
  std::memcpy(bytes, &seed_, sizeof(seed_));
  std::memcpy(bytes + sizeof(seed_), &offset_, sizeof(offset_));
  if (twin_size > 0) {
    std::memcpy(bytes + kStateSize, twin.const_data_ptr(), twin_size);
  }
  return state.getIntrusivePtr();
}

NeuronGenerator* NeuronGenerator::clone_impl() const {
  auto* copy = new NeuronGenerator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  copy->twin_ = twin_.defined() ? twin_.clone() : at::Generator();
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static auto* generators = new std::array<at::Generator, kMaxDevices>();
  static auto* made = new std::array<std::once_flag, kMaxDevices>();
  const auto index = static_cast<size_t>(checked(device));
  std::call_once((*made)[index], [index] {
    (*generators)[index] = at::make_generator<NeuronGenerator>(static_cast<c10::DeviceIndex>(index));
  });
  return (*generators)[index];
}

at::Generator new_generator(c10::DeviceIndex device) { return at::make_generator<NeuronGenerator>(checked(device)); }

NeuronGenerator& generator_for(const std::optional<at::Generator>& generator, c10::DeviceIndex device) {
  const bool given = generator.has_value() && generator->defined();
  const at::Generator& chosen = given ? *generator : default_generator(device);
  TORCH_CHECK(chosen.device().type() == c10::DeviceType::PrivateUse1,
              "Expected a 'neuron' device type for generator but found '", chosen.device().type(),
              "'. Use torch.Generator('neuron').");
  return *static_cast<NeuronGenerator*>(chosen.unsafeGetGeneratorImpl());
}

}  // namespace neuron
