// torch_neuronx._C: a plain CPython module put together from the parts the strata register.
#include "module.h"

#include <vector>

#include "errors.h"

#include <c10/util/Exception.h>

namespace neuron {
namespace {

struct Part {
  PyMethodDef* methods;
  bool (*setup)(PyObject*);
};

// A function-local static: parts register themselves before main, in no particular order.
std::vector<Part>& parts() {
  static std::vector<Part> all;
  return all;
}

bool add_part(PyObject* module, const Part& part) {
  return PyModule_AddFunctions(module, part.methods) == 0 && (part.setup == nullptr || part.setup(module));
}

}  // namespace

ModulePart::ModulePart(PyMethodDef* methods, bool (*setup)(PyObject*)) { parts().push_back({methods, setup}); }

int64_t integer_argument(PyObject* const* args, Py_ssize_t count, Py_ssize_t i) {
  TORCH_CHECK_TYPE(i < count, "expected at least ", i + 1, " arguments, got ", count);
  const long long value = PyLong_AsLongLong(args[i]);
  if (value == -1 && PyErr_Occurred() != nullptr) {
    throw_python_error();
  }
  return value;
}

}  // namespace neuron

PyMODINIT_FUNC PyInit__C() {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                   "torch_neuronx._C",
                                   "The C++ core of the neuron device.",
                                   -1,
                                   nullptr,
                                   nullptr,
                                   nullptr,
                                   nullptr,
                                   nullptr};
  PyObject* module = PyModule_Create(&definition);
  if (module == nullptr) {
    return nullptr;
  }
  for (const neuron::Part& part : neuron::parts()) {
    if (!neuron::add_part(module, part)) {
      Py_DECREF(module);
      return nullptr;
    }
  }
  return module;
}
