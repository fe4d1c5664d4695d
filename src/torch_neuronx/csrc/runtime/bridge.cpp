#include "runtime/bridge.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "device/guard.h"
#include "dispatch/deferred.h"
#include "errors.h"
#include "gil.h"
#include "module.h"
#include "python_ref.h"
#include "runtime/settings.h"

namespace neuron::runtime {
namespace {

std::atomic<bool> initialized{false};
std::atomic<bool> bad_fork{false};
std::atomic<bool> blocking{[] {
  const char* text = std::getenv("NEURON_LAUNCH_BLOCKING");
  return text != nullptr && std::strcmp(text, "0") != 0 && *text != '\0';
}()};

std::atomic<int> random_on_cpu_holders{0};

[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { bad_fork.store(initialized.load() || bad_fork.load()); });

PyObject* checked(PyObject* object) {
  if (object == nullptr) {
    throw_python_error();
  }
  return object;
}

// A function of torch_neuronx.runtime.host_side, kept for ever.
PyObject* function(const char* name) {
  const Ref module(checked(PyImport_ImportModule("torch_neuronx.runtime.host_side")));
  return checked(PyObject_GetAttrString(module.get(), name));
}

// Filled once by start(): a function-local static that imports could deadlock with the GIL.
struct HostSide {
  PyObject* from_host;
  PyObject* zeros;
  PyObject* host_copy;
  PyObject* execution_error;
  bool host_visible;
};
HostSide host_side;

void load_host_side() {
  const Ref visible(function("host_visible"));
  host_side = {function("from_host"), function("zeros"), function("host_copy"), function("execution_error"),
               visible.get() == Py_True};
}

PyObject* interned(const char* name) { return PyUnicode_InternFromString(name); }

void block_until_ready(PyObject* object) {
  static PyObject* name = interned("block_until_ready");
  const Ref done(checked(PyObject_CallMethodNoArgs(object, name)));
}

void start() {
  const Gil gil;
  const Ref module(checked(PyImport_ImportModule("torch_neuronx.eager.start")));
  const Ref done(checked(PyObject_CallMethod(module.get(), "start", nullptr)));
  load_host_side();
  initialized.store(true);
}

c10::DeviceIndex count_devices() {
  const Gil gil;
  const Ref module(checked(PyImport_ImportModule("torch_neuronx.runtime.targets")));
  const Ref count(checked(PyObject_CallMethod(module.get(), "device_count", nullptr)));
  return static_cast<c10::DeviceIndex>(PyLong_AsLong(count.get()));
}

}  // namespace

c10::DeviceIndex device_count() {
  static const c10::DeviceIndex count = count_devices();
  return count;
}

void ensure_initialized() {
  TORCH_CHECK(!in_bad_fork(),
              "Cannot re-initialize neuron in forked subprocess. To use neuron with multiprocessing, you must use "
              "the 'spawn' start method");
  if (!initialized.load(std::memory_order_acquire)) {
    start();
  }
}

bool is_initialized() { return initialized.load(); }
bool in_bad_fork() { return bad_fork.load(); }
bool launch_blocking() { return blocking.load(std::memory_order_relaxed); }
void set_launch_blocking(bool on) { blocking.store(on); }
bool random_on_cpu() { return random_on_cpu_holders.load(std::memory_order_relaxed) > 0; }
void hold_random_on_cpu(int change) { random_on_cpu_holders.fetch_add(change); }
c10::DeviceIndex current_device() { return neuron::current_device(); }

PyObject* from_host(const void* data, c10::ScalarType dtype, int64_t numel, c10::DeviceIndex device) {
  const Gil gil;
  static char nothing = 0;
  const auto nbytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  char* bytes = nbytes == 0 ? &nothing : static_cast<char*>(const_cast<void*>(data));
  const Ref view(checked(PyMemoryView_FromMemory(bytes, nbytes, PyBUF_READ)));
  return checked(PyObject_CallFunction(host_side.from_host, "OiLi", view.get(), static_cast<int>(dtype),
                                       static_cast<long long>(numel), static_cast<int>(device)));
}

PyObject* zeros(c10::ScalarType dtype, int64_t numel, c10::DeviceIndex device) {
  const Gil gil;
  return checked(PyObject_CallFunction(host_side.zeros, "iLi", static_cast<int>(dtype), static_cast<long long>(numel),
                                       static_cast<int>(device)));
}

bool is_deleted(PyObject* array) {
  static PyObject* name = interned("is_deleted");
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);  // the caller may be about to report an error
  const Ref deleted(PyObject_CallMethodNoArgs(array, name));
  PyErr_Restore(type, value, trace);  // drops this call's own error
  return deleted.get() == Py_True;
}

const void* host_pointer(PyObject* array) {
  const Gil gil;
  static PyObject* pointer = interned("unsafe_buffer_pointer");
  block_until_ready(array);
  const Ref address(host_side.host_visible ? checked(PyObject_CallMethodNoArgs(array, pointer))
                                           : checked(PyObject_CallOneArg(host_side.host_copy, array)));
  return PyLong_AsVoidPtr(address.get());
}

void wait_for(PyObject* array) {
  const Gil gil;
  const Ref owned(Py_NewRef(array));
  static PyObject* name = interned("block_until_ready");
  const Ref done(PyObject_CallMethodNoArgs(array, name));
  if (!done) {
    if (!is_deleted(array)) {
      throw_python_error();
    }
    PyErr_Clear();  // donated meanwhile: whoever did that is the one to wait for
  }
}

void wait_token(PyObject* token, const char* op) {
  const Gil gil;
  const Ref owned(token);
  static PyObject* name = interned("block_until_ready");
  const Ref done(PyObject_CallMethodNoArgs(token, name));
  if (!done && op != nullptr) {
    throw_execution_error(op);
  }
  checked(done.get());
}

void raise_deferred_errors(c10::DeviceIndex device) { dispatch::raise_deferred(device); }

void throw_execution_error(const std::string& op) {
  const Gil gil;
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const Ref owned_type(type), owned_value(value), owned_trace(trace);
  const Ref error(
      PyObject_CallFunction(host_side.execution_error, "sO", op.c_str(), value == nullptr ? Py_None : value));
  if (error) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
  }
  throw_python_error();
}

namespace {

PyObject* py_set_launch_blocking(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    set_launch_blocking(integer_argument(args, count, 0) != 0);
    Py_RETURN_NONE;
  });
}

PyObject* py_hold_random_on_cpu(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    hold_random_on_cpu(static_cast<int>(integer_argument(args, count, 0)));
    return PyBool_FromLong(random_on_cpu());
  });
}

PyMethodDef methods[] = {
    {"set_launch_blocking", method(py_set_launch_blocking), METH_FASTCALL, "Makes every op wait for its result."},
    {"hold_random_on_cpu", method(py_hold_random_on_cpu), METH_FASTCALL,
     "(1): random ops take the CPU's numbers; (-1): one holder fewer; (0): nothing. Returns whether they do."},
    {nullptr, nullptr, 0, nullptr}};

const ModulePart part(methods);

}  // namespace
}  // namespace neuron::runtime
