#include "dispatch/python_call.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>

#include "dispatch/operator.h"
#include "errors.h"
#include "gil.h"
#include "python_ref.h"

namespace neuron::dispatch {
namespace {

PyObject* handler(const char* module, const char* name) {
  Ref imported(PyImport_ImportModule(module));
  if (!imported) {
    throw_python_error();
  }
  PyObject* function = PyObject_GetAttrString(imported.get(), name);
  if (function == nullptr) {
    throw_python_error();
  }
  return function;
}

PyObject* eager_resolve() {
  static PyObject* function = handler("torch_neuronx.eager.resolve", "resolve");
  return function;
}

PyObject* eager_host() {
  static PyObject* function = handler("torch_neuronx.eager.host", "run");
  return function;
}

PyObject* eager_draw() {
  static PyObject* function = handler("torch_neuronx.eager.cpu_random", "draw");
  return function;
}

PyObject* sparse_run() {
  static PyObject* function = handler("torch_neuronx.sparse.calls", "run");
  return function;
}

PyObject* checked(PyObject* object) {
  if (object == nullptr) {
    throw_python_error();
  }
  return object;
}

PyObject* int_tuple(c10::IntArrayRef values) {
  Ref tuple(checked(PyTuple_New(static_cast<Py_ssize_t>(values.size()))));
  for (size_t i = 0; i < values.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), checked(PyLong_FromLongLong(values[i])));
  }
  return tuple.release();
}

// ("T", dtype, sizes, strides, slot, offset parameter or -1, fits, conj, neg) for a tensor,
// ("S", dtype, parameter, weak) for a run-time number.
PyObject* describe_tensor(const CallView& call, const TensorLeaf& leaf) {
  const at::Tensor& t = leaf.tensor;
  const int64_t numel = t.numel();
  const int64_t one = 1;
  Ref sizes(int_tuple(call.flat ? c10::IntArrayRef(&numel, 1) : t.sizes()));
  Ref strides(int_tuple(call.flat ? c10::IntArrayRef(&one, 1) : t.strides()));
  return checked(Py_BuildValue("(siOOiiiii)", "T", static_cast<int>(t.scalar_type()), sizes.get(), strides.get(),
                               static_cast<int>(leaf.slot), static_cast<int>(leaf.offset_param),
                               static_cast<int>(leaf.fits), static_cast<int>(t.is_conj()),
                               static_cast<int>(t.is_neg())));
}

PyObject* describe_scalar(const ScalarLeaf& leaf) {
  return checked(Py_BuildValue("(siii)", "S", static_cast<int>(leaf.dtype), static_cast<int>(leaf.param),
                               static_cast<int>(leaf.weak)));
}

// Walks the call's arguments beside the stack values they came from.
class Describer {
 public:
  explicit Describer(const CallView& call) : call_(call) {}

  PyObject* next(const c10::IValue& value) {
    const Argument argument = call_.arguments[position_++];
    switch (argument.kind) {
      case Argument::Kind::Tensor:
        return describe_tensor(call_, call_.tensors[argument.index]);
      case Argument::Kind::Scalar:
        return describe_scalar(call_.scalars[argument.index]);
      case Argument::Kind::List:
        return list(value, argument.index);
      case Argument::Kind::Attribute:
        break;
    }
    return to_python(value);
  }

 private:
  PyObject* list(const c10::IValue& value, int32_t count) {
    const c10::List<c10::IValue> items = value.toList();
    Ref tuple(checked(PyTuple_New(count)));
    for (int32_t i = 0; i < count; ++i) {
      PyTuple_SET_ITEM(tuple.get(), i, next(items.get(static_cast<size_t>(i))));
    }
    return checked(Py_BuildValue("(sO)", "L", tuple.get()));
  }

  const CallView& call_;
  size_t position_ = 0;
};

std::vector<int64_t> int_vector(PyObject* tuple) {
  std::vector<int64_t> values(static_cast<size_t>(PyTuple_GET_SIZE(tuple)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i)));
  }
  return values;
}

std::string text(PyObject* object) {
  const char* utf8 = PyUnicode_AsUTF8(object);
  if (utf8 == nullptr) {
    throw_python_error();
  }
  return utf8;
}

ReturnSpec return_spec(PyObject* object) {
  if (object == Py_None) {
    return {ReturnSpec::Kind::None, 0, {}};
  }
  if (PyList_Check(object)) {
    ReturnSpec spec{ReturnSpec::Kind::List, 0, {}};
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) {
      spec.items.push_back(return_spec(PyList_GET_ITEM(object, i)));
    }
    return spec;
  }
  const std::string kind = text(PyTuple_GET_ITEM(object, 0));
  if (kind == "view") {
    const bool result = text(PyTuple_GET_ITEM(object, 1)) == "result";
    return {result ? ReturnSpec::Kind::ViewOfResult : ReturnSpec::Kind::ViewOfArgument,
            PyLong_AsLongLong(PyTuple_GET_ITEM(object, 2)),
            {},
            int_vector(PyTuple_GET_ITEM(object, 3)),
            int_vector(PyTuple_GET_ITEM(object, 4)),
            PyLong_AsLongLong(PyTuple_GET_ITEM(object, 5))};
  }
  const int64_t index = PyLong_AsLongLong(PyTuple_GET_ITEM(object, 1));
  const auto known = kind == "result"     ? ReturnSpec::Kind::Result
                     : kind == "argument" ? ReturnSpec::Kind::Argument
                                          : ReturnSpec::Kind::Integer;
  return {known, index, {}};
}

// (kind, dtype, sizes, strides, storage numel, slot)
ResultSpec result_spec(PyObject* t) {
  return {static_cast<ResultKind>(PyLong_AsLong(PyTuple_GET_ITEM(t, 0))),
          static_cast<c10::ScalarType>(PyLong_AsLong(PyTuple_GET_ITEM(t, 1))),
          int_vector(PyTuple_GET_ITEM(t, 2)),
          int_vector(PyTuple_GET_ITEM(t, 3)),
          PyLong_AsLongLong(PyTuple_GET_ITEM(t, 4)),
          PyLong_AsLongLong(PyTuple_GET_ITEM(t, 5))};
}

// (((tensor, slot, capacity), ...), sizes, poison)
void read_padding(PyObject* padding, Entry& entry) {
  PyObject* inputs = PyTuple_GET_ITEM(padding, 0);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); ++i) {
    const auto numbers = int_vector(PyTuple_GET_ITEM(inputs, i));
    entry.inputs.push_back({numbers.at(0), numbers.at(1), numbers.at(2)});
  }
  entry.sizes = int_vector(PyTuple_GET_ITEM(padding, 1));
  entry.poison = PyObject_IsTrue(PyTuple_GET_ITEM(padding, 2)) == 1;
  entry.padded = true;
}

// ("run", execute, handlers, results, returns, rng_blocks, checks[, padding])
std::shared_ptr<const Entry> run_entry(PyObject* answer, bool flat) {
  auto entry = std::make_shared<Entry>();
  entry->execute = Py_NewRef(PyTuple_GET_ITEM(answer, 1));
  entry->handlers = Py_NewRef(PyTuple_GET_ITEM(answer, 2));
  PyObject* results = PyTuple_GET_ITEM(answer, 3);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(results); ++i) {
    entry->results.push_back(result_spec(PyTuple_GET_ITEM(results, i)));
  }
  PyObject* returns = PyTuple_GET_ITEM(answer, 4);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(returns); ++i) {
    entry->returns.push_back(return_spec(PyTuple_GET_ITEM(returns, i)));
  }
  entry->rng_blocks = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(answer, 5));
  PyObject* checks = PyTuple_GET_ITEM(answer, 6);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(checks); ++i) {
    PyObject* check = PyTuple_GET_ITEM(checks, i);
    entry->checks.emplace_back(text(PyTuple_GET_ITEM(check, 0)), text(PyTuple_GET_ITEM(check, 1)));
  }
  entry->like_first = flat;
  if (PyTuple_GET_SIZE(answer) > 7) {
    read_padding(PyTuple_GET_ITEM(answer, 7), *entry);
  }
  return entry;
}

Resolution parse(PyObject* answer, bool flat) {
  Resolution resolution;
  const std::string kind = text(PyTuple_GET_ITEM(answer, 0));
  if (kind == "run") {
    resolution.entry = run_entry(answer, flat);
  } else if (kind == "fallback") {
    auto entry = std::make_shared<Entry>();
    entry->fallback = true;
    entry->reason = text(PyTuple_GET_ITEM(answer, 1));
    resolution.entry = std::move(entry);
  } else {
    PyObject* resizes = PyTuple_GET_ITEM(answer, 1);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(resizes); ++i) {
      PyObject* r = PyTuple_GET_ITEM(resizes, i);
      resolution.resizes.push_back({PyLong_AsLongLong(PyTuple_GET_ITEM(r, 0)), int_vector(PyTuple_GET_ITEM(r, 1)),
                                    int_vector(PyTuple_GET_ITEM(r, 2))});
    }
  }
  if (PyErr_Occurred() != nullptr) {
    throw_python_error();
  }
  return resolution;
}

PyObject* describe_slots(const CallView& call) {
  Ref slots(checked(PyTuple_New(static_cast<Py_ssize_t>(call.slots.size()))));
  for (size_t i = 0; i < call.slots.size(); ++i) {
    const SlotLeaf& slot = call.slots[i];
    PyTuple_SET_ITEM(slots.get(), static_cast<Py_ssize_t>(i),
                     checked(Py_BuildValue("(iLi)", static_cast<int>(slot.dtype), static_cast<long long>(slot.numel),
                                           static_cast<int>(slot.present))));
  }
  return slots.release();
}

PyObject* stack_tuple(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const size_t count = schema.arguments().size();
  Ref tuple(checked(PyTuple_New(static_cast<Py_ssize_t>(count))));
  for (size_t i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), to_python(torch::jit::peek(stack, i, count)));
  }
  return tuple.release();
}

c10::IValue from_python(PyObject* object, const c10::TypePtr& type) {
  if (object == Py_None) {
    return type->kind() == c10::TypeKind::TensorType ? c10::IValue(at::Tensor()) : c10::IValue();
  }
  if (THPVariable_Check(object)) {
    return THPVariable_Unpack(object);
  }
  if (PyList_Check(object) || PyTuple_Check(object)) {
    Ref items(checked(PySequence_Tuple(object)));
    c10::List<at::Tensor> tensors;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i) {
      tensors.push_back(THPVariable_Unpack(PyTuple_GET_ITEM(items.get(), i)));
    }
    return tensors;
  }
  if (PyBool_Check(object)) {
    return object == Py_True;
  }
  if (PyLong_Check(object)) {
    return static_cast<int64_t>(PyLong_AsLongLong(object));
  }
  if (PyFloat_Check(object)) {
    return PyFloat_AsDouble(object);
  }
  if (PyComplex_Check(object)) {
    return c10::complex<double>(PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object));
  }
  TORCH_CHECK(false, "an op that ran on the CPU returned a ", Py_TYPE(object)->tp_name,
              ", which the core cannot pass on");
}

// Replaces the arguments on the stack by the returns in a tuple.
void push_returns(PyObject* out, const c10::FunctionSchema& schema, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, schema.arguments().size());
  const auto& returns = schema.returns();
  for (size_t i = 0; i < returns.size(); ++i) {
    PyObject* item = PyTuple_GetItem(out, static_cast<Py_ssize_t>(i));
    torch::jit::push(*stack, from_python(checked(item), returns[i].type()));
  }
}

}  // namespace

PyObject* to_python(const c10::IValue& value) {
  if (value.isNone()) {
    return Py_NewRef(Py_None);
  }
  if (value.isTensor()) {
    const at::Tensor& t = value.toTensor();
    return t.defined() ? checked(THPVariable_Wrap(t)) : Py_NewRef(Py_None);
  }
  if (value.isBool()) {
    return PyBool_FromLong(value.toBool());
  }
  if (value.isInt()) {
    return checked(PyLong_FromLongLong(value.toInt()));
  }
  if (value.isUnsigned()) {
    return checked(PyLong_FromUnsignedLongLong(value.toUInt()));
  }
  if (value.isDouble()) {
    return checked(PyFloat_FromDouble(value.toDouble()));
  }
  if (value.isComplexDouble()) {
    return checked(PyComplex_FromDoubles(value.toComplexDouble().real(), value.toComplexDouble().imag()));
  }
  if (value.isString()) {
    return checked(PyUnicode_FromString(value.toStringRef().c_str()));
  }
  if (value.isDevice()) {
    return checked(THPDevice_New(value.toDevice()));
  }
  if (value.isGenerator()) {
    return checked(THPGenerator_Wrap(value.toGenerator()));
  }
  if (value.isList()) {
    const c10::List<c10::IValue> items = value.toList();
    Ref list(checked(PyList_New(static_cast<Py_ssize_t>(items.size()))));
    for (size_t i = 0; i < items.size(); ++i) {
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), to_python(items.get(i)));
    }
    return list.release();
  }
  TORCH_CHECK(false, "the core cannot pass a ", value.tagKind(), " to Python");
}

Resolution resolve(Operator& op, const c10::FunctionSchema& schema, const torch::jit::Stack& stack,
                   const CallView& call) {
  Gil gil;
  const NoDynamo unobserved;
  const size_t count = schema.arguments().size();
  Ref arguments(checked(PyTuple_New(static_cast<Py_ssize_t>(count))));
  Describer describer(call);
  for (size_t i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(arguments.get(), static_cast<Py_ssize_t>(i), describer.next(torch::jit::peek(stack, i, count)));
  }
  Ref slots(describe_slots(call));
  Ref answer(checked(PyObject_CallFunction(op.resolver ? op.resolver : eager_resolve(), "sOOiii", op.name.c_str(),
                                           arguments.get(), slots.get(), static_cast<int>(call.params.size()),
                                           static_cast<int>(call.rng_param), static_cast<int>(call.device))));
  return parse(answer.get(), call.flat);
}

void run_on_host(Operator& op, const c10::FunctionSchema& schema, torch::jit::Stack* stack, const std::string& reason) {
  TORCH_CHECK(op.resolver == nullptr, op.name, " cannot take one of its arguments: ", reason,
              ". A compiled graph takes dense tensors, numbers and None.");
  Gil gil;
  const NoDynamo unobserved;
  Ref arguments(stack_tuple(schema, *stack));
  Ref out(checked(PyObject_CallFunction(eager_host(), "sOs", op.name.c_str(), arguments.get(), reason.c_str())));
  push_returns(out.get(), schema, stack);
}

void draw_on_cpu(Operator& op, const c10::FunctionSchema& schema, torch::jit::Stack* stack) {
  Gil gil;
  const NoDynamo unobserved;
  Ref arguments(stack_tuple(schema, *stack));
  Ref out(checked(PyObject_CallFunction(eager_draw(), "sO", op.name.c_str(), arguments.get())));
  push_returns(out.get(), schema, stack);
}

void run_sparse(const c10::FunctionSchema& schema, torch::jit::Stack* stack) {
  Gil gil;
  const NoDynamo unobserved;
  Ref arguments(stack_tuple(schema, *stack));
  Ref out(checked(PyObject_CallFunction(sparse_run(), "ssO", schema.name().c_str(), schema.overload_name().c_str(),
                                        arguments.get())));
  push_returns(out.get(), schema, stack);
}

}  // namespace neuron::dispatch
