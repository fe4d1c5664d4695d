// A stand-in until the runtime is bound: host bytes play the runtime's arrays.
#include "runtime/bridge.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>

#include "errors.h"
#include "gil.h"

namespace neuron::runtime {
namespace {

std::atomic<bool> initialized{false};
std::atomic<bool> bad_fork{false};

[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, [] { bad_fork.store(initialized.load()); });

c10::DeviceIndex count_from_environment() {
  const char* text = std::getenv("TORCH_NEURONX_HOST_DEVICES");
  if (text == nullptr || *text == '\0') {
    return 1;
  }
  char* end = nullptr;
  const long count = std::strtol(text, &end, 10);
  TORCH_CHECK_VALUE(*end == '\0' && count >= 1 && count <= 64, "TORCH_NEURONX_HOST_DEVICES='", text,
                    "' is not a number of devices. Use a whole number from 1 to 64.");
  return static_cast<c10::DeviceIndex>(count);
}

}  // namespace

c10::DeviceIndex device_count() {
  static const c10::DeviceIndex count = count_from_environment();
  return count;
}

void ensure_initialized() {
  TORCH_CHECK(!in_bad_fork(),
              "Cannot re-initialize neuron in forked subprocess. To use neuron with multiprocessing, you must use "
              "the 'spawn' start method");
  initialized.store(true);
}

bool is_initialized() { return initialized.load(); }
bool in_bad_fork() { return bad_fork.load(); }

PyObject* from_host(const void* data, c10::ScalarType dtype, int64_t numel, c10::DeviceIndex) {
  Gil gil;
  const auto nbytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  return PyBytes_FromStringAndSize(static_cast<const char*>(data), nbytes);
}

const void* host_pointer(PyObject* array) {
  Gil gil;
  return PyBytes_AsString(array);
}

void wait_token(PyObject* token) {
  Gil gil;
  PyObject* done = PyObject_CallMethod(token, "block_until_ready", nullptr);
  Py_DECREF(token);
  if (done == nullptr) {
    throw_python_error();
  }
  Py_DECREF(done);
}

void raise_deferred_errors(c10::DeviceIndex) {}

}  // namespace neuron::runtime
