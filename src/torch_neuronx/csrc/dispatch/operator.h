// One bound overload: what its row in the lowering table told us, and its executables by key.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "dispatch/entry.h"
#include "dispatch/key.h"

namespace neuron::dispatch {

// What a written argument may share with the arguments that are read, as the CPU has it.
enum class Sharing : uint8_t {
  Any,      // the program sees values, so whatever overlaps is right
  Same,     // the whole of a tensor, but no part of it: elementwise ops
  Nothing,  // gather, scatter, index_*, cat
};

// To which dtype a run-time number is converted, where torch refuses one that does not fit.
enum class Fit : uint8_t {
  Free,      // an operand: it wraps or becomes infinite
  Self,      // that of the first tensor
  Promoted,  // that of the result: a fraction beside integers has the default dtype
  Computed,  // that of the result's arithmetic: float for float16
};

struct Operator {
  std::string name;  // "aten::add.Tensor"
  bool pointwise = false;
  bool random = false;
  bool drawn_on_cpu = false;  // a random op that the CPU has too: it can take the CPU's numbers
  bool host_inputs = false;
  bool overlap = false;  // may write a tensor whose elements share memory
  Sharing sharing = Sharing::Any;
  Fit fit = Fit::Free;
  std::vector<bool> operand;          // per argument: a Scalar or float that is passed at run time
  std::vector<bool> written;          // per argument
  std::vector<bool> unread;           // per argument: overwritten without being read when it is whole
  std::vector<c10::IValue> defaults;  // per argument, None when the schema has none

  explicit Operator(const c10::FunctionSchema& schema);

  // The cached entry of a key, or null.
  std::shared_ptr<const Entry> find(const Key& key);
  void remember(const Key& key, std::shared_ptr<const Entry> entry);
  void clear();

  std::atomic<uint64_t> executed{0};  // native runs since the last clear

  // Makes entries in place of eager's resolve(): a compiled graph's own. Borrowed: the graph outlives it.
  PyObject* resolver = nullptr;

  // Held while a key is resolved, so that two threads compile it once.
  std::mutex resolving;

 private:
  std::mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<const Entry>, KeyHash> entries_;
};

// The record of an operator, made on first use.
Operator& operator_of(const c10::OperatorHandle& handle);

// A compiled graph's record, for as long as the graph lives.
void enter_graph(Operator& op);
void leave_graph(Operator& op);

// Drops every cached executable in memory, those of compiled graphs too. The GIL is held.
void clear_executables();

// Native runs by overload, ops that never ran left out.
inline void count_native(Operator& op) { op.executed.fetch_add(1, std::memory_order_relaxed); }
std::vector<std::pair<std::string, uint64_t>> executed_counts();
void clear_executed_counts();

// Runs a call whose arguments are on `stack` and leaves its returns there.
void run_call(const c10::FunctionSchema& schema, Operator& op, torch::jit::Stack* stack);

// The same for an op of the dispatcher.
void run_boxed(const c10::OperatorHandle& handle, Operator& op, torch::jit::Stack* stack);

}  // namespace neuron::dispatch
