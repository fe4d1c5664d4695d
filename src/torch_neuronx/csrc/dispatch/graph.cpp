// A compiled graph is a call with a long list of arguments: the same key, cache and launch as an operator's.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/function_schema.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>

#include "device/allocator.h"
#include "dispatch/operator.h"
#include "dispatch/padding.h"
#include "dispatch/python_call.h"
#include "errors.h"
#include "gil.h"
#include "module.h"
#include "python_ref.h"
#include "runtime/bridge.h"
#include "storage/device_buffer.h"

namespace neuron::dispatch {
namespace {

constexpr const char* kCapsule = "torch_neuronx.graph";

struct Graph {
  c10::FunctionSchema schema;
  Operator op;
  PyObject* resolver;  // owned

  Graph(c10::FunctionSchema s, PyObject* resolve) : schema(std::move(s)), op(schema), resolver(Py_NewRef(resolve)) {
    op.resolver = resolver;
    enter_graph(op);
  }
  ~Graph() {
    leave_graph(op);
    Py_DECREF(resolver);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
};

c10::FunctionSchema schema_of(const std::string& name, size_t arguments, size_t returns) {
  std::vector<c10::Argument> args, outs;
  for (size_t i = 0; i < arguments; ++i) {
    args.emplace_back("input " + std::to_string(i), c10::AnyType::get());
  }
  for (size_t i = 0; i < returns; ++i) {
    outs.emplace_back("", c10::AnyType::get());
  }
  return {name, "", std::move(args), std::move(outs)};
}

void delete_graph(PyObject* capsule) { delete static_cast<Graph*>(PyCapsule_GetPointer(capsule, kCapsule)); }

// make_graph(name, arguments, returns, written positions, float positions, random, resolve) -> capsule
PyObject* make_graph(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    TORCH_CHECK(count == 7, "make_graph takes 7 arguments");
    const auto arguments = static_cast<size_t>(integer_argument(args, count, 1));
    const auto returns = static_cast<size_t>(integer_argument(args, count, 2));
    auto graph = std::make_unique<Graph>(schema_of(PyUnicode_AsUTF8(args[0]), arguments, returns), args[6]);
    const auto set = [](std::vector<bool>& flags, PyObject* positions) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(positions); ++i) {
        flags.at(static_cast<size_t>(PyLong_AsLong(PyTuple_GET_ITEM(positions, i)))) = true;
      }
    };
    set(graph->op.written, args[3]);
    set(graph->op.operand, args[4]);
    graph->op.random = PyObject_IsTrue(args[5]) == 1;
    PyObject* capsule = PyCapsule_New(graph.get(), kCapsule, delete_graph);
    if (capsule != nullptr) {
      static_cast<void>(graph.release());
    }
    return capsule;
  });
}

c10::IValue argument(PyObject* object) {
  if (THPVariable_Check(object)) {
    return THPVariable_Unpack(object);
  }
  if (object == Py_None) {
    return {};
  }
  if (PyBool_Check(object)) {
    return object == Py_True;
  }
  if (PyLong_Check(object)) {
    const int64_t value = PyLong_AsLongLong(object);
    if (value == -1 && PyErr_Occurred() != nullptr) {
      throw_python_error();
    }
    return value;
  }
  if (PyFloat_Check(object)) {
    return PyFloat_AS_DOUBLE(object);
  }
  TORCH_CHECK_TYPE(false, "a compiled graph takes tensors, integers, floats and None, and got a ",
                   Py_TYPE(object)->tp_name);
}

// run_graph(capsule, [arguments]) -> [returns]; the list is emptied, so that nothing else keeps the arguments alive.
PyObject* run_graph(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    TORCH_CHECK(count == 2 && PyList_Check(args[1]), "run_graph takes a graph and a list");
    auto* graph = static_cast<Graph*>(PyCapsule_GetPointer(args[0], kCapsule));
    if (graph == nullptr) {
      throw_python_error();
    }
    runtime::ensure_initialized();
    const Ref keep(Py_NewRef(args[0]));
    const auto given = static_cast<size_t>(PyList_GET_SIZE(args[1]));
    TORCH_CHECK(given == graph->schema.arguments().size(), graph->op.name, " takes ", graph->schema.arguments().size(),
                " arguments and was given ", given);
    torch::jit::Stack stack;
    stack.reserve(given);
    for (size_t i = 0; i < given; ++i) {
      stack.push_back(argument(PyList_GET_ITEM(args[1], static_cast<Py_ssize_t>(i))));
    }
    PyList_SetSlice(args[1], 0, PyList_GET_SIZE(args[1]), nullptr);
    run_call(graph->schema, graph->op, &stack);
    Ref returns(PyList_New(static_cast<Py_ssize_t>(stack.size())));
    for (size_t i = 0; i < stack.size(); ++i) {
      PyList_SET_ITEM(returns.get(), static_cast<Py_ssize_t>(i), to_python(stack[i]));
    }
    return returns.release();
  });
}

// with_capacity(tensor, elements, poison) -> the tensor, its storage as long as that; itself when it is so already.
PyObject* with_capacity(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    TORCH_CHECK(count == 3 && THPVariable_Check(args[0]), "with_capacity takes a tensor, a size and a flag");
    at::Tensor tensor = THPVariable_Unpack(args[0]);
    const int64_t capacity = integer_argument(args, count, 1);
    const auto wanted = static_cast<size_t>(capacity) * tensor.itemsize();
    if (tensor.storage().nbytes() == wanted) {
      return Py_NewRef(args[0]);
    }
    const at::AutoDispatchBelowADInplaceOrView below;
    if (extent_of(tensor) > capacity || tensor.is_conj() || tensor.is_neg()) {
      tensor = tensor.resolve_conj().resolve_neg().clone(at::MemoryFormat::Contiguous);
    }
    const c10::DeviceIndex device = tensor.device().index();
    auto storage = new_storage(wanted, device);
    DeviceBuffer::of(*storage).replace(padded_copy(tensor, capacity, PyObject_IsTrue(args[2]) == 1),
                                       tensor.scalar_type(), capacity);
    auto impl = c10::make_intrusive<c10::TensorImpl>(
        c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), tensor.dtype());
    impl->set_sizes_and_strides(tensor.sizes(), tensor.strides());
    return THPVariable_Wrap(at::Tensor(std::move(impl)));
  });
}

PyMethodDef methods[] = {
    {"make_graph", method(make_graph), METH_FASTCALL,
     "(name, arguments, returns, written, floats, random, resolve) -> graph"},
    {"with_capacity", method(with_capacity), METH_FASTCALL, "(tensor, elements, poison) -> tensor"},
    {"run_graph", method(run_graph), METH_FASTCALL, "(graph, [arguments]) -> [returns]"},
    {nullptr, nullptr, 0, nullptr}};

const ModulePart part(methods);

}  // namespace
}  // namespace neuron::dispatch
