// torch_neuronx._C: devices, streams, generators and the life of the process.
#include <torch/csrc/Generator.h>

#include "device/generator.h"
#include "device/guard.h"
#include "device/stream.h"
#include "device/waiter.h"
#include "errors.h"
#include "gil.h"
#include "module.h"
#include "runtime/bridge.h"
#include "storage/device_buffer.h"

namespace neuron {
namespace {

c10::DeviceIndex device_argument(PyObject* const* args, Py_ssize_t count, Py_ssize_t i) {
  const int64_t device = integer_argument(args, count, i);
  check_device_index(device);
  return static_cast<c10::DeviceIndex>(device);
}

c10::Stream stream_argument(PyObject* const* args, Py_ssize_t count) {
  const auto device = device_argument(args, count, 1);
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, device),
                     integer_argument(args, count, 0));
}

PyObject* py_device_count(PyObject*, PyObject*) {
  return guarded([] { return PyLong_FromLong(runtime::device_count()); });
}

PyObject* py_current_device(PyObject*, PyObject*) { return PyLong_FromLong(current_device()); }

PyObject* py_exchange_device(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&] { return PyLong_FromLong(exchange_device(device_argument(args, count, 0))); });
}

PyObject* py_ensure_initialized(PyObject*, PyObject*) {
  return guarded([] {
    runtime::ensure_initialized();
    return Py_NewRef(Py_None);
  });
}

PyObject* py_is_initialized(PyObject*, PyObject*) { return PyBool_FromLong(runtime::is_initialized()); }

PyObject* py_in_bad_fork(PyObject*, PyObject*) { return PyBool_FromLong(runtime::in_bad_fork()); }

PyObject* py_synchronize(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&] {
    const auto device = device_argument(args, count, 0);
    {
      NoGil released;
      synchronize_device(device);
    }
    return Py_NewRef(Py_None);
  });
}

PyObject* py_current_stream(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&] { return PyLong_FromLongLong(current_stream(device_argument(args, count, 0)).id()); });
}

PyObject* py_exchange_stream(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&] { return PyLong_FromLongLong(exchange_stream(stream_argument(args, count)).id()); });
}

PyObject* py_pooled_stream(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&] {
    const auto priority = static_cast<int>(integer_argument(args, count, 1));
    return PyLong_FromLongLong(pooled_stream(device_argument(args, count, 0), priority).id());
  });
}

PyObject* py_stream_priority(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&] { return PyLong_FromLong(stream_priority(stream_argument(args, count))); });
}

PyObject* py_note_work(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&] {
    const auto device = device_argument(args, count, 0);
    TORCH_CHECK_TYPE(count == 2, "note_work(device, token) takes 2 arguments, got ", count);
    note_work(device, Py_NewRef(args[1]));
    return Py_NewRef(Py_None);
  });
}

PyObject* py_default_generator(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&] { return THPGenerator_initDefaultGenerator(default_generator(device_argument(args, count, 0))); });
}

PyObject* py_cpu_twin(PyObject*, PyObject* object) {
  return guarded([&]() -> PyObject* {
    TORCH_CHECK_TYPE(THPGenerator_Check(object), "cpu_twin(generator) takes a torch.Generator");
    const at::Generator& generator = reinterpret_cast<THPGenerator*>(object)->cdata;
    if (generator == default_generator(generator.device().index())) {
      Py_RETURN_NONE;
    }
    return THPGenerator_Wrap(generator_for(generator, generator.device().index()).cpu_twin());
  });
}

PyObject* py_shutdown(PyObject*, PyObject*) {
  stop_watching();
  mark_python_finalizing();
  return Py_NewRef(Py_None);
}

PyMethodDef methods[] = {
    {"device_count", py_device_count, METH_NOARGS, "Logical neuron devices in this process."},
    {"current_device", py_current_device, METH_NOARGS, "Index of this thread's current device."},
    {"exchange_device", method(py_exchange_device), METH_FASTCALL, "(device) -> the device that was current."},
    {"ensure_initialized", py_ensure_initialized, METH_NOARGS, "Start the runtime; raises in a forked child."},
    {"is_initialized", py_is_initialized, METH_NOARGS, "Whether the runtime has started."},
    {"in_bad_fork", py_in_bad_fork, METH_NOARGS, "Whether this is a child forked after the runtime started."},
    {"synchronize", method(py_synchronize), METH_FASTCALL, "(device): wait for all its work."},
    {"current_stream", method(py_current_stream), METH_FASTCALL, "(device) -> id of its current stream."},
    {"exchange_stream", method(py_exchange_stream), METH_FASTCALL, "(id, device) -> id that was current."},
    {"pooled_stream", method(py_pooled_stream), METH_FASTCALL, "(device, priority) -> id of a stream to use."},
    {"stream_priority", method(py_stream_priority), METH_FASTCALL, "(id, device) -> 0 or -1."},
    {"note_work", method(py_note_work), METH_FASTCALL, "(device, token): add work to the current stream."},
    {"default_generator", method(py_default_generator), METH_FASTCALL, "(device) -> its torch.Generator."},
    {"cpu_twin", py_cpu_twin, METH_O, "(generator) -> the CPU generator in its place; None: the CPU's default one."},
    {"shutdown", py_shutdown, METH_NOARGS, "Leave Python objects alone from now on; for atexit."},
    {nullptr, nullptr, 0, nullptr},
};

const ModulePart part(methods);

}  // namespace
}  // namespace neuron
