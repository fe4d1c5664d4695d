// What a key maps to: an executable and how its results become the op's returns.
#pragma once

#include <Python.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <string>
#include <vector>

namespace neuron::dispatch {

enum class ResultKind : uint8_t {
  Fresh,        // a new tensor
  Write,        // the new value of a slot
  Count,        // int64: the valid rows of the fresh result `slot`
  Check,        // int32 error code of the op's run-time checks
  ColumnCount,  // as Count, and the result's columns lie one behind the other
};

struct ResultSpec {
  ResultKind kind;
  c10::ScalarType dtype;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t storage_numel;  // elements of the flat array
  int64_t slot;
};

// How one schema return is made.
struct ReturnSpec {
  enum class Kind : uint8_t { Result, Argument, List, Integer, None, ViewOfResult, ViewOfArgument } kind;
  int64_t index = 0;
  std::vector<ReturnSpec> items;                  // of a List
  std::vector<int64_t> sizes = {}, strides = {};  // of a view
  int64_t offset = 0;                             // of a view, from where the viewed tensor starts
};

// One argument of a program whose inputs are padded: a tensor's elements from its first one on, in an array of
// `capacity` elements, or the array of a slot as it is.
struct InputSpec {
  int64_t tensor = -1;  // index among the call's tensors, or -1
  int64_t slot = -1;    // index among the call's slots, when `tensor` is -1
  int64_t capacity = 0;
};

struct Entry {
  bool fallback = false;  // run on the CPU; `reason` says why
  std::string reason;
  PyObject* execute = nullptr;   // the executable's bound method
  PyObject* handlers = nullptr;  // tuple, one per result
  std::vector<ResultSpec> results;
  std::vector<ReturnSpec> returns;
  uint64_t rng_blocks = 0;
  // Results take the sizes of the first tensor argument: the key was flattened to its element count.
  bool like_first = false;
  bool padded = false;  // the program takes `inputs`, and `sizes` behind the call's parameters
  bool poison = false;  // for tests: padding that is made is NaN or 123 instead of zeros
  std::vector<InputSpec> inputs = {};
  std::vector<int64_t> sizes = {};
  std::vector<std::pair<std::string, std::string>> checks;  // (exception name, message)

  Entry() = default;
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
};

}  // namespace neuron::dispatch
