#include "dispatch/alerts.h"

#include <ATen/Context.h>

#include "dispatch/operator.h"
#include "dispatch/python_call.h"
#include "errors.h"
#include "gil.h"
#include "python_ref.h"

namespace neuron::dispatch {
namespace {

std::string caller_of(const c10::OperatorHandle& handle, const torch::jit::Stack& stack) {
  const Gil gil;
  const c10::FunctionSchema& schema = handle.schema();
  const size_t count = schema.arguments().size();
  Ref arguments(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(arguments.get(), static_cast<Py_ssize_t>(i), to_python(torch::jit::peek(stack, i, count)));
  }
  Ref module(PyImport_ImportModule("torch_neuronx.eager.deterministic"));
  if (!module) {
    throw_python_error();
  }
  Ref caller(PyObject_CallMethod(module.get(), "caller", "sO", operator_of(handle).name.c_str(), arguments.get()));
  if (!caller) {
    throw_python_error();
  }
  return caller.get() == Py_None ? std::string() : std::string(PyUnicode_AsUTF8(caller.get()));
}

}  // namespace

void alert_not_deterministic(const c10::OperatorHandle& handle, const torch::jit::Stack& stack) {
  if (!at::globalContext().deterministicAlgorithms()) [[likely]] {
    return;
  }
  const std::string caller = caller_of(handle, stack);
  if (!caller.empty()) {
    at::globalContext().alertNotDeterministic(caller);
  }
}

}  // namespace neuron::dispatch
