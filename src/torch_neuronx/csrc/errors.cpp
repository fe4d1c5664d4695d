#include "errors.h"

#include <torch/csrc/Exceptions.h>

namespace neuron {

void throw_python_error() {
  python_error error;
  error.persist();
  throw error;
}

void set_python_error() noexcept {
  try {
    torch::translate_exception_to_python(std::current_exception());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "torch_neuronx: an unknown C++ exception reached Python");
  }
}

}  // namespace neuron
