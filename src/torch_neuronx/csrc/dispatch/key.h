// The key of a call: everything that changes the program, and nothing that does not.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <vector>

#include "storage/device_buffer.h"

namespace neuron::dispatch {

struct Operator;

struct Key {
  c10::SmallVector<int64_t, 48> words;
  size_t hash = 0;

  bool operator==(const Key& other) const { return hash == other.hash && words == other.words; }
};

struct KeyHash {
  size_t operator()(const Key& key) const { return key.hash; }
};

// A tensor argument as a view of a storage slot.
struct TensorLeaf {
  at::Tensor tensor;
  int32_t slot;
  int32_t offset_param;  // index of its storage offset among the parameters, or -1 when dense and whole
  bool fits;             // views.block_fits
  bool written;
};

struct SlotLeaf {
  c10::StorageImpl* storage;
  DeviceBuffer* buffer;
  c10::ScalarType dtype;  // of the handle, or of the first view when nothing was written yet
  int64_t numel;
  bool present;  // an argument of the program; false for memory nobody wrote that is only overwritten
};

// A number passed at run time.
struct ScalarLeaf {
  c10::ScalarType dtype;
  int32_t param;
  bool weak;
};

// One schema argument, or one element of a list argument.
struct Argument {
  enum class Kind : uint8_t { Attribute, Tensor, Scalar, List } kind;
  int32_t index = -1;  // into tensors or scalars; for a List the number of elements that follow
};

// A call taken apart. `arguments` is a pre-order walk of the schema's arguments.
struct CallView {
  Key key;
  c10::SmallVector<Argument, 16> arguments;
  c10::SmallVector<TensorLeaf, 8> tensors;
  c10::SmallVector<SlotLeaf, 8> slots;
  c10::SmallVector<ScalarLeaf, 8> scalars;
  c10::SmallVector<int64_t, 8> params;
  c10::DeviceIndex device = -1;
  std::optional<at::Generator> generator;
  int32_t rng_param = -1;         // index of (seed, offset) among the parameters
  bool flat = false;              // pointwise over equal dense operands: keyed on the element count
  const char* refusal = nullptr;  // the core cannot describe this call: run it on the CPU
};

// Raises torch's error when what is written overlaps what is read in a way the op does not allow.
void check_sharing(const Operator& op, const CallView& call);

// Takes the call apart. Moves CPU index tensors to the device (in `stack`) when the op allows it.
// Raises for tensors on different devices.
void view_call(Operator& op, const c10::FunctionSchema& schema, torch::jit::Stack* stack, CallView& call);

}  // namespace neuron::dispatch
