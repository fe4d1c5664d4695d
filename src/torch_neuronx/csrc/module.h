// How a stratum adds its functions to torch_neuronx._C without touching module.cpp.
//
//   static PyMethodDef methods[] = {{"name", ...}, {nullptr, nullptr, 0, nullptr}};
//   static const neuron::ModulePart part(methods);
//
#pragma once

#include <Python.h>

#include <cstdint>

namespace neuron {

struct ModulePart {
  // `methods` ends with a null entry and lives for ever; `setup`, if given, adds types or constants
  // and returns false with a Python error set when it fails.
  explicit ModulePart(PyMethodDef* methods, bool (*setup)(PyObject* module) = nullptr);
};

// A vectorcall method under the type PyMethodDef declares.
template <typename Function>
PyCFunction method(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

// The i-th argument as an integer; raises what Python would.
int64_t integer_argument(PyObject* const* args, Py_ssize_t count, Py_ssize_t i);

}  // namespace neuron
