// Registering the boxed kernel: explicitly for every overload of the table, and as the fallback.
#include <ATen/core/boxing/KernelFunction.h>
#include <torch/library.h>

#include <atomic>
#include <map>

#include "dispatch/alerts.h"
#include "dispatch/operator.h"
#include "dispatch/parameters.h"
#include "errors.h"
#include "gil.h"
#include "module.h"
#include "python_ref.h"
#include "runtime/bridge.h"

namespace neuron::dispatch {
namespace {

class BoundKernel : public c10::OperatorKernel {
 public:
  explicit BoundKernel(Operator& op) : op_(op) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet, torch::jit::Stack* stack) {
    run_boxed(handle, op_, stack);
  }

 private:
  Operator& op_;
};

// The same for an op that may have no deterministic implementation.
class AlertingKernel : public c10::OperatorKernel {
 public:
  explicit AlertingKernel(Operator& op) : op_(op) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet, torch::jit::Stack* stack) {
    alert_not_deterministic(handle, *stack);
    run_boxed(handle, op_, stack);
  }

 private:
  Operator& op_;
};

torch::CppFunction kernel_of(Operator& op, bool alerts) {
  return alerts ? torch::CppFunction::makeFromBoxedFunctor(std::make_unique<AlertingKernel>(op))
                : torch::CppFunction::makeFromBoxedFunctor(std::make_unique<BoundKernel>(op));
}

bool holds_object(const c10::IValue& value) {
  return value.isObject() || (value.isList() && !value.toListRef().empty() && value.toListRef()[0].isObject());
}

// Whatever was not bound: the same path, the record looked up by name.
void unbound_kernel(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  for (const c10::IValue& argument : torch::jit::last(*stack, handle.schema().arguments().size())) {
    TORCH_CHECK_NOT_IMPLEMENTED(!holds_object(argument), handle.schema().operator_name(),
                                ": it takes weights packed for the CPU, and neuron cannot read them. Keep the module "
                                "on the CPU, or use the one with plain weights.");
  }
  runtime::ensure_initialized();
  run_boxed(handle, operator_of(handle), stack);
}

torch::Library& library() {
  static auto* lib =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  return *lib;
}

void set_flags(std::vector<bool>& flags, PyObject* positions) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(positions); ++i) {
    flags.at(static_cast<size_t>(PyLong_AsLong(PyTuple_GET_ITEM(positions, i)))) = true;
  }
}

// describe(name, overload, flags, operand positions, unread positions): what the table says.
// flags: 1 pointwise, 2 random, 4 host inputs, 8 register a kernel, 16 may write elements that share memory,
// 32 random and known to the CPU, 64 what is written may not share a part, 128 nor the whole, of what is read;
// 256 to 768 a Fit, 1024 may have no deterministic implementation.
PyObject* bind_operator(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    TORCH_CHECK(count == 5, "bind_operator takes 5 arguments");
    const char* name = PyUnicode_AsUTF8(args[0]);
    const char* overload = PyUnicode_AsUTF8(args[1]);
    const long flags = PyLong_AsLong(args[2]);
    const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
    Operator& op = operator_of(handle);
    op.pointwise = (flags & 1) != 0;
    op.random = (flags & 2) != 0;
    op.host_inputs = (flags & 4) != 0;
    op.overlap = (flags & 16) != 0;
    op.drawn_on_cpu = (flags & 32) != 0;
    op.sharing = (flags & 128) != 0 ? Sharing::Nothing : (flags & 64) != 0 ? Sharing::Same : Sharing::Any;
    op.fit = static_cast<Fit>((flags >> 8) & 3);
    set_flags(op.operand, args[3]);
    set_flags(op.unread, args[4]);
    if ((flags & 8) != 0) {
      const std::string full = std::string(name) + (*overload != '\0' ? "." : "") + overload;
      library().impl(full.c_str(), kernel_of(op, (flags & 1024) != 0));
    }
    Py_RETURN_NONE;
  });
}

PyObject* clear_cached_executables(PyObject*, PyObject* const*, Py_ssize_t) {
  return guarded([&]() -> PyObject* {
    clear_executables();
    clear_parameters();
    Py_RETURN_NONE;
  });
}

PyObject* native_counts(PyObject*, PyObject* const*, Py_ssize_t) {
  return guarded([&]() -> PyObject* {
    Ref counts(PyDict_New());
    for (const auto& [name, n] : executed_counts()) {
      Ref value(PyLong_FromUnsignedLongLong(n));
      PyDict_SetItemString(counts.get(), name.c_str(), value.get());
    }
    return counts.release();
  });
}

PyObject* clear_native_counts(PyObject*, PyObject* const*, Py_ssize_t) {
  return guarded([&]() -> PyObject* {
    clear_executed_counts();
    Py_RETURN_NONE;
  });
}

PyMethodDef methods[] = {
    {"bind_operator", method(bind_operator), METH_FASTCALL, "Binds the kernel to an overload of the lowering table."},
    {"clear_executables", method(clear_cached_executables), METH_FASTCALL, "Forgets every executable kept in memory."},
    {"executed_ops", method(native_counts), METH_FASTCALL, "Overload name -> how often it ran on the device."},
    {"clear_executed_ops", method(clear_native_counts), METH_FASTCALL, "Sets those counts to zero."},
    {nullptr, nullptr, 0, nullptr}};

const ModulePart part(methods);

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&unbound_kernel>()); }

}  // namespace neuron::dispatch
