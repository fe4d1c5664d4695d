#include "python_ref.h"

namespace neuron {
namespace {

PyObject* set_eval_frame(PyObject* callback) {
  static PyObject* function = [] {
    const Ref module(PyImport_ImportModule("torch._C._dynamo.eval_frame"));
    return module ? PyObject_GetAttrString(module.get(), "set_eval_frame") : nullptr;
  }();
  PyObject* previous = function == nullptr ? nullptr : PyObject_CallOneArg(function, callback);
  if (previous == nullptr) {
    PyErr_Clear();
  }
  return previous;
}

}  // namespace

NoDynamo::NoDynamo() : callback_(set_eval_frame(Py_None)) {}

NoDynamo::~NoDynamo() {
  if (callback_ == nullptr) {
    return;
  }
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);  // an error on its way must survive
  Py_XDECREF(set_eval_frame(callback_));
  PyErr_Restore(type, value, trace);
  Py_DECREF(callback_);
}

}  // namespace neuron
