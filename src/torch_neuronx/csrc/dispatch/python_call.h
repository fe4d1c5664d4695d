// The slow paths, in Python: resolving a key that was not seen before, and running an op on the CPU.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>

#include "dispatch/entry.h"
#include "dispatch/key.h"

namespace neuron::dispatch {

struct Operator;

struct Resolution {
  std::shared_ptr<const Entry> entry;  // null when out= arguments must be resized first
  struct Resize {
    int64_t position;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
  };
  std::vector<Resize> resizes;
};

// Asks torch_neuronx.eager for the entry of a call. Raises what it raises.
Resolution resolve(Operator& op, const c10::FunctionSchema& schema, const torch::jit::Stack& stack,
                   const CallView& call);

// Runs the op on CPU copies of its arguments; replaces the arguments on the stack by its returns.
void run_on_host(Operator& op, const c10::FunctionSchema& schema, torch::jit::Stack* stack, const std::string& reason);

// The same for a random op that is to take the CPU's numbers (runtime::random_on_cpu).
void draw_on_cpu(Operator& op, const c10::FunctionSchema& schema, torch::jit::Stack* stack);

// Runs an op on sparse arguments in torch_neuronx.sparse; replaces the arguments on the stack by its returns.
void run_sparse(const c10::FunctionSchema& schema, torch::jit::Stack* stack);

// A Python object for a stack value (tensors are wrapped, integers stay integers).
PyObject* to_python(const c10::IValue& value);

}  // namespace neuron::dispatch
