#include "dispatch/deferred.h"

#include <deque>
#include <string_view>

#include "errors.h"
#include "gil.h"
#include "python_ref.h"
#include "runtime/bridge.h"

namespace neuron::dispatch {
namespace {

constexpr size_t kMostPending = 256;  // above it the oldest half is read: its ops are done by then

struct Pending {
  c10::DeviceIndex device;
  PyObject* code;
  std::shared_ptr<const Entry> entry;
  std::string op;
  std::string where;
};

// Touched only with the GIL held.
std::deque<Pending>& pending() {
  static auto* list = new std::deque<Pending>();
  return *list;
}

bool is_library(PyFrameObject* frame) {
  Ref globals(PyFrame_GetGlobals(frame));
  PyObject* name = PyDict_GetItemString(globals.get(), "__name__");
  const char* text = name != nullptr && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  const std::string_view module(text == nullptr ? "" : text);
  return module == "torch" || module.starts_with("torch.") || module.starts_with("torch_neuronx.");
}

std::string line_of(PyFrameObject* frame) {
  Ref code(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  const int line = PyFrame_GetLineNumber(frame);
  PyObject* name = reinterpret_cast<PyCodeObject*>(code.get())->co_filename;
  const char* file = PyUnicode_AsUTF8(name);
  return file == nullptr ? "" : std::string(file) + ":" + std::to_string(line);
}

// "file.py:12" of the user's frame that led to the op: torch's own frames are passed over. Nothing without Python.
std::string python_line() {
  PyFrameObject* innermost = PyEval_GetFrame();
  if (innermost == nullptr) {
    return "";
  }
  Ref frame(Py_NewRef(reinterpret_cast<PyObject*>(innermost)));
  while (frame && is_library(reinterpret_cast<PyFrameObject*>(frame.get()))) {
    frame = Ref(reinterpret_cast<PyObject*>(PyFrame_GetBack(reinterpret_cast<PyFrameObject*>(frame.get()))));
  }
  return line_of(frame ? reinterpret_cast<PyFrameObject*>(frame.get()) : innermost);
}

void raise_check(const Pending& check, int32_t code) {
  const auto& [error, message] = check.entry->checks.at(static_cast<size_t>(code - 1));
  std::string what = message + " (" + check.op;
  what += check.where.empty() ? ")" : ", called at " + check.where + ")";
  Ref builtins(PyImport_ImportModule("builtins"));
  const bool builtin = PyObject_HasAttrString(builtins.get(), error.c_str()) != 0;
  Ref home(PyImport_ImportModule(builtin ? "builtins" : "torch.linalg"));  // torch.linalg.LinAlgError
  Ref type(home ? PyObject_GetAttrString(home.get(), error.c_str()) : nullptr);
  PyErr_SetString(type ? type.get() : PyExc_RuntimeError, what.c_str());
  throw_python_error();
}

// Reads one code; raises when its check failed.
void read(Pending check) {
  Ref code(check.code);
  const void* data = runtime::host_pointer(code.get());
  const int32_t value = *static_cast<const int32_t*>(data);
  if (value != 0) {
    raise_check(check, value);
  }
}

}  // namespace

void defer_check(c10::DeviceIndex device, PyObject* code, std::shared_ptr<const Entry> entry, const std::string& op) {
  auto& list = pending();
  list.push_back({device, code, std::move(entry), op, python_line()});
  while (list.size() > kMostPending) {
    Pending oldest = std::move(list.front());
    list.pop_front();
    read(std::move(oldest));
  }
}

void raise_deferred(c10::DeviceIndex device) {
  Gil gil;
  auto& list = pending();
  for (size_t i = 0; i < list.size();) {
    if (list[i].device != device) {
      ++i;
      continue;
    }
    Pending check = std::move(list[i]);
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
    read(std::move(check));
  }
}

}  // namespace neuron::dispatch
