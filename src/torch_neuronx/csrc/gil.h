// Scoped ownership of the interpreter lock.
#pragma once

#include <Python.h>

namespace neuron {

// Holds the GIL for a scope, whether or not this thread has it already.
class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

// Gives the GIL up for a scope, if this thread has it.
class NoGil {
 public:
  NoGil() : saved_(PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~NoGil() {
    if (saved_ != nullptr) {
      PyEval_RestoreThread(saved_);
    }
  }
  NoGil(const NoGil&) = delete;
  NoGil& operator=(const NoGil&) = delete;

 private:
  PyThreadState* saved_;
};

}  // namespace neuron
