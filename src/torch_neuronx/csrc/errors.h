// Errors crossing between Python and C++.
#pragma once

#include <Python.h>

namespace neuron {

// Turns the pending Python error into a C++ exception that becomes the same Python error again
// when it reaches Python. The GIL must be held and an error must be set.
[[noreturn]] void throw_python_error();

// Sets the Python error for the C++ exception being handled: call it in `catch (...)`.
void set_python_error() noexcept;

// Runs `body`, which returns a new reference, as the body of a method of the extension module.
template <typename Body>
PyObject* guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

}  // namespace neuron
