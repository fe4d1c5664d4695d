// The last call of a compiled graph: one that looks the same runs the same executable without a key being made.
#pragma once

#include <ATen/core/stack.h>
#include <Python.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <vector>

#include "dispatch/entry.h"
#include "dispatch/key.h"
#include "dispatch/operator.h"
#include "python_ref.h"

namespace neuron::dispatch {

using PyArguments = c10::SmallVector<Ref, 16>;

// The GIL must be held for everything here.
class Replay {
 public:
  // Keeps what a call looked like; `stack` ends with its arguments.
  void record(const std::shared_ptr<const Entry>& entry, const CallView& call, const torch::jit::Stack& stack,
              size_t count);

  // The recorded call's entry when these arguments look the same, with `call` made ready to run; else null.
  std::shared_ptr<const Entry> match(const PyArguments& arguments, CallView& call) const;

 private:
  struct Seen {
    enum class Kind : uint8_t { None, Tensor, Operand, Float, Int, Bool } kind = Kind::None;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
    int32_t param = -1;  // of an operand
    int32_t slot = -1;
    int64_t value = 0;  // of an attribute, bit by bit; of a tensor its offset
    size_t layout = 0;  // where its sizes and strides are in layouts_
    size_t ndim = 0;
  };

  bool matches_tensor(const Seen& seen, PyObject* object, CallView& call) const;

  std::weak_ptr<const Entry> entry_;  // clear_executables() lets executables go
  std::vector<Seen> seen_;
  std::vector<int64_t> layouts_;
  std::vector<SlotLeaf> slots_;  // their pointers are not used
  c10::SmallVector<int64_t, 8> params_;
  c10::DeviceIndex device_ = -1;
  int32_t rng_param_ = -1;
  c10::ScalarType default_dtype_ = c10::ScalarType::Undefined;
};

// As run_call in operator.h; `replay` keeps what the call looked like.
void run_recorded(const c10::FunctionSchema& schema, Operator& op, torch::jit::Stack* stack, Replay* replay);

// Runs an entry on a call that was taken apart: draws its random state and gives its results.
std::vector<at::Tensor> run_entry(const std::shared_ptr<const Entry>& entry, CallView& call, Operator& op);

// The return that `spec` describes, a view of `base`.
at::Tensor view_of(const at::Tensor& base, const ReturnSpec& spec);

}  // namespace neuron::dispatch
