// Random numbers: a seed and a counter. The numbers themselves are made on the device (Philox 4x32-10).
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <optional>
#include <utility>

namespace neuron {

class NeuronGenerator final : public c10::GeneratorImpl {
 public:
  explicit NeuronGenerator(c10::DeviceIndex device);

  // (seed, offset) for one op, moving the offset on by `increment` counters. Takes the mutex.
  std::pair<uint64_t, uint64_t> philox_engine_inputs(uint64_t increment);

  // The CPU generator that takes its place where the CPU's numbers are asked for. It starts at the seed, at the first
  // such draw, and goes on from there until this generator is seeded again. Takes the mutex.
  at::Generator cpu_twin();

  void set_current_seed(uint64_t seed) override;  // and starts counting from 0
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;

  // 16 bytes: seed, then offset, each little-endian; then the CPU twin's state if there is one.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

 private:
  NeuronGenerator* clone_impl() const override;

  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
  at::Generator twin_;  // undefined until it is asked for
};

const at::Generator& default_generator(c10::DeviceIndex device = -1);  // -1: the current device
at::Generator new_generator(c10::DeviceIndex device = -1);

// The generator an op uses: the one given, or the default of its device.
NeuronGenerator& generator_for(const std::optional<at::Generator>& generator, c10::DeviceIndex device);

}  // namespace neuron
