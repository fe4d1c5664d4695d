// A compiled graph is a call with a long list of arguments: the same key, cache and launch as an operator's.
#include <Python.h>
#include <structmember.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/function_schema.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>

#include "device/allocator.h"
#include "dispatch/operator.h"
#include "dispatch/padding.h"
#include "dispatch/python_call.h"
#include "dispatch/replay.h"
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
  Replay replay;       // of calls through a GraphCall

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

Graph& graph_of(PyObject* capsule) {
  auto* graph = static_cast<Graph*>(PyCapsule_GetPointer(capsule, kCapsule));
  if (graph == nullptr) {
    throw_python_error();
  }
  return *graph;
}

// Takes the items out of a list, so that nothing else keeps the arguments alive.
PyArguments emptied(PyObject* list) {
  PyArguments arguments;
  const Py_ssize_t count = PyList_GET_SIZE(list);
  arguments.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    arguments.emplace_back(Py_NewRef(PyList_GET_ITEM(list, i)));
  }
  PyList_SetSlice(list, 0, count, nullptr);
  return arguments;
}

PyObject* run_on_stack(Graph& graph, PyArguments arguments, Replay* replay) {
  torch::jit::Stack stack;
  stack.reserve(arguments.size());
  for (const Ref& object : arguments) {
    stack.push_back(argument(object.get()));
  }
  arguments.clear();
  run_recorded(graph.schema, graph.op, &stack, replay);
  Ref returns(PyList_New(static_cast<Py_ssize_t>(stack.size())));
  for (size_t i = 0; i < stack.size(); ++i) {
    PyList_SET_ITEM(returns.get(), static_cast<Py_ssize_t>(i), to_python(stack[i]));
  }
  return returns.release();
}

void check_count(const Graph& graph, size_t given) {
  TORCH_CHECK(given == graph.schema.arguments().size(), graph.op.name, " takes ", graph.schema.arguments().size(),
              " arguments and was given ", given);
}

// run_graph(capsule, [arguments]) -> [returns]; the list is emptied.
PyObject* run_graph(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    TORCH_CHECK(count == 2 && PyList_Check(args[1]), "run_graph takes a graph and a list");
    Graph& graph = graph_of(args[0]);
    runtime::ensure_initialized();
    const Ref keep(Py_NewRef(args[0]));
    check_count(graph, static_cast<size_t>(PyList_GET_SIZE(args[1])));
    return run_on_stack(graph, emptied(args[1]), nullptr);
  });
}

// As make_return in kernel.cpp, for arguments that are Python objects.
PyObject* replayed_return(const ReturnSpec& spec, const std::vector<at::Tensor>& results,
                          const PyArguments& arguments) {
  const auto index = static_cast<size_t>(spec.index);
  switch (spec.kind) {
    case ReturnSpec::Kind::Result:
      return to_python(results[index]);
    case ReturnSpec::Kind::Argument:
      return Py_NewRef(arguments[index].get());
    case ReturnSpec::Kind::Integer:
      return PyLong_FromLongLong(spec.index);
    case ReturnSpec::Kind::ViewOfResult:
      return to_python(view_of(results[index], spec));
    case ReturnSpec::Kind::ViewOfArgument:
      return to_python(view_of(THPVariable_Unpack(arguments[index].get()), spec));
    case ReturnSpec::Kind::List:  // graphs have none
    case ReturnSpec::Kind::None:
      break;
  }
  Py_RETURN_NONE;
}

PyObject* replayed(Graph& graph, const std::shared_ptr<const Entry>& entry, CallView& call,
                   const PyArguments& arguments) {
  const auto results = run_entry(entry, call, graph.op);
  const size_t count = graph.schema.returns().size();
  Ref returns(PyList_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; i < count; ++i) {
    PyObject* made = replayed_return(entry->returns[i], results, arguments);
    if (made == nullptr) {
      throw_python_error();
    }
    PyList_SET_ITEM(returns.get(), static_cast<Py_ssize_t>(i), made);
  }
  return returns.release();
}

// What AOTAutograd calls with a list of arguments, which is emptied: a graph that needs nothing of Python on the way.
struct GraphCall {
  PyObject ob_base;
  vectorcallfunc vectorcall;
  PyObject* capsule;
  PyObject* constants;  // a tuple, behind the arguments
  PyObject* owner;      // answers the core's questions
  PyObject* dict;       // Dynamo's wrappers look for attributes
  PyObject* weak;
  bool single;  // returns its one result, not a list of it
};

PyObject* call_graph(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
  return guarded([&]() -> PyObject* {
    auto* call = reinterpret_cast<GraphCall*>(self);
    TORCH_CHECK_TYPE(PyVectorcall_NARGS(flags) == 1 && names == nullptr && PyList_Check(args[0]),
                     "a compiled graph is called with one list of arguments");
    Graph& graph = graph_of(call->capsule);
    runtime::ensure_initialized();
    const Ref keep(Py_NewRef(self));
    const Py_ssize_t constants = PyTuple_GET_SIZE(call->constants);
    check_count(graph, static_cast<size_t>(PyList_GET_SIZE(args[0]) + constants));
    PyArguments arguments = emptied(args[0]);
    for (Py_ssize_t i = 0; i < constants; ++i) {
      arguments.emplace_back(Py_NewRef(PyTuple_GET_ITEM(call->constants, i)));
    }
    CallView view;
    const std::shared_ptr<const Entry> entry = graph.replay.match(arguments, view);
    Ref returns(entry != nullptr ? replayed(graph, entry, view, arguments)
                                 : run_on_stack(graph, std::move(arguments), &graph.replay));
    return call->single ? Py_NewRef(PyList_GET_ITEM(returns.get(), 0)) : returns.release();
  });
}

int traverse_call(PyObject* self, visitproc visit, void* arg) {
  auto* call = reinterpret_cast<GraphCall*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(call->constants);
  Py_VISIT(call->owner);
  Py_VISIT(call->dict);
  return 0;
}

int clear_call(PyObject* self) {
  Py_CLEAR(reinterpret_cast<GraphCall*>(self)->dict);
  return 0;
}

void delete_call(PyObject* self) {
  auto* call = reinterpret_cast<GraphCall*>(self);
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (call->weak != nullptr) {
    PyObject_ClearWeakRefs(self);
  }
  Py_CLEAR(call->dict);
  Py_CLEAR(call->constants);
  Py_CLEAR(call->capsule);
  Py_CLEAR(call->owner);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

PyMemberDef call_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(GraphCall, vectorcall), READONLY, nullptr},
                              {"__dictoffset__", T_PYSSIZET, offsetof(GraphCall, dict), READONLY, nullptr},
                              {"__weaklistoffset__", T_PYSSIZET, offsetof(GraphCall, weak), READONLY, nullptr},
                              {"owner", T_OBJECT_EX, offsetof(GraphCall, owner), READONLY, "the graph this calls"},
                              {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef call_attributes[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                                 {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot call_slots[] = {{Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
                            {Py_tp_traverse, reinterpret_cast<void*>(&traverse_call)},
                            {Py_tp_clear, reinterpret_cast<void*>(&clear_call)},
                            {Py_tp_dealloc, reinterpret_cast<void*>(&delete_call)},
                            {Py_tp_members, call_members},
                            {Py_tp_getset, call_attributes},
                            {0, nullptr}};

PyType_Spec call_spec = {
    "torch_neuronx._C.GraphCall", sizeof(GraphCall), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    call_slots};

PyTypeObject* call_type = nullptr;

// graph_call(graph, constants, single, owner) -> what calls the graph
PyObject* graph_call(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    TORCH_CHECK(count == 4 && PyTuple_Check(args[1]), "graph_call takes a graph, a tuple, a flag and its owner");
    graph_of(args[0]);
    auto* call = PyObject_GC_New(GraphCall, call_type);
    if (call == nullptr) {
      return nullptr;
    }
    call->vectorcall = call_graph;
    call->capsule = Py_NewRef(args[0]);
    call->constants = Py_NewRef(args[1]);
    call->single = PyObject_IsTrue(args[2]) == 1;
    call->owner = Py_NewRef(args[3]);
    call->dict = call->weak = nullptr;
    PyObject_GC_Track(call);
    return reinterpret_cast<PyObject*>(call);
  });
}

bool add_call_type(PyObject* module) {
  call_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&call_spec));
  return call_type != nullptr &&
         PyModule_AddObjectRef(module, "GraphCall", reinterpret_cast<PyObject*>(call_type)) == 0;
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
    {"graph_call", method(graph_call), METH_FASTCALL, "(graph, constants, single, owner) -> GraphCall"},
    {"run_graph", method(run_graph), METH_FASTCALL, "(graph, [arguments]) -> [returns]"},
    {nullptr, nullptr, 0, nullptr}};

const ModulePart part(methods, add_call_type);

}  // namespace
}  // namespace neuron::dispatch
