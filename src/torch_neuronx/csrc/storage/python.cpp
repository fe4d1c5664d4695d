// torch_neuronx._C: the ledger of device memory.
#include <string>

#include "device/guard.h"
#include "errors.h"
#include "module.h"
#include "storage/ledger.h"

#include <c10/util/Exception.h>

namespace neuron {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;

c10::DeviceIndex device_argument(PyObject* const* args, Py_ssize_t count, Py_ssize_t i) {
  const int64_t device = integer_argument(args, count, i);
  check_device_index(device);
  return static_cast<c10::DeviceIndex>(device);
}

// A dict that is being filled; raises the Python error when that fails.
class Dict {
 public:
  Dict() : dict_(PyDict_New()) { check(dict_ != nullptr); }
  ~Dict() { Py_XDECREF(dict_); }
  Dict(const Dict&) = delete;
  Dict& operator=(const Dict&) = delete;

  void set(const std::string& key, int64_t value) {
    PyObject* number = PyLong_FromLongLong(value);
    check(number != nullptr);
    const int failed = PyDict_SetItemString(dict_, key.c_str(), number);
    Py_DECREF(number);
    check(failed == 0);
  }

  PyObject* release() { return std::exchange(dict_, nullptr); }

 private:
  static void check(bool fine) {
    if (!fine) {
      throw_python_error();
    }
  }

  PyObject* dict_;
};

void add(Dict& dict, const std::string& name, const Stat& stat) {
  dict.set(name + ".current", stat.current);
  dict.set(name + ".peak", stat.peak);
  dict.set(name + ".allocated", stat.allocated);
  dict.set(name + ".freed", stat.freed);
}

void add(Dict& dict, const std::string& name, const StatArray& stats) {
  constexpr const char* kPools[] = {".all", ".small_pool", ".large_pool"};
  for (size_t pool = 0; pool < stats.size(); ++pool) {
    add(dict, name + kPools[pool], stats[pool]);
  }
}

// The names torch.cuda.memory_stats() uses.
PyObject* py_memory_stats(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&] {
    const ledger::Stats stats = ledger::stats(device_argument(args, count, 0));
    Dict dict;
    add(dict, "allocation", stats.allocation);
    add(dict, "segment", stats.segment);
    add(dict, "active", stats.active);
    add(dict, "inactive_split", stats.inactive_split);
    add(dict, "allocated_bytes", stats.allocated_bytes);
    add(dict, "reserved_bytes", stats.reserved_bytes);
    add(dict, "active_bytes", stats.active_bytes);
    add(dict, "inactive_split_bytes", stats.inactive_split_bytes);
    add(dict, "requested_bytes", stats.requested_bytes);
    add(dict, "oversize_allocations", stats.oversize_allocations);
    add(dict, "oversize_segments", stats.oversize_segments);
    dict.set("num_alloc_retries", stats.num_alloc_retries);
    dict.set("num_ooms", stats.num_ooms);
    dict.set("num_sync_all_streams", stats.num_sync_all_streams);
    dict.set("num_device_alloc", stats.num_device_alloc);
    dict.set("num_device_free", stats.num_device_free);
    dict.set("max_split_size", -1);
    return dict.release();
  });
}

PyObject* py_reset_peak(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&] {
    ledger::reset_peak(device_argument(args, count, 0));
    return Py_NewRef(Py_None);
  });
}

PyObject* py_reset_accumulated(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&] {
    ledger::reset_accumulated(device_argument(args, count, 0));
    return Py_NewRef(Py_None);
  });
}

PyObject* py_memory_info(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&] {
    const auto [left, total] = ledger::free_and_total(device_argument(args, count, 0));
    return Py_BuildValue("(nn)", static_cast<Py_ssize_t>(left), static_cast<Py_ssize_t>(total));
  });
}

PyObject* py_set_memory_fraction(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&] {
    TORCH_CHECK_TYPE(count == 2, "set_memory_fraction(fraction, device) takes 2 arguments, got ", count);
    const double fraction = PyFloat_AsDouble(args[0]);
    if (PyErr_Occurred() != nullptr) {
      throw_python_error();
    }
    ledger::set_fraction(fraction, device_argument(args, count, 1));
    return Py_NewRef(Py_None);
  });
}

PyObject* py_live_buffers(PyObject*, PyObject*) {
  return guarded([] {
    const auto buffers = ledger::live_buffers();
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(buffers.size()));
    for (size_t i = 0; list != nullptr && i < buffers.size(); ++i) {
      const auto& buffer = buffers[i];
      PyObject* item =
          Py_BuildValue("(iKnO)", static_cast<int>(buffer.device), static_cast<unsigned long long>(buffer.address),
                        static_cast<Py_ssize_t>(buffer.nbytes), buffer.written ? Py_True : Py_False);
      PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), item);
      if (item == nullptr) {
        Py_CLEAR(list);
      }
    }
    return list;
  });
}

PyMethodDef methods[] = {
    {"memory_stats", method(py_memory_stats), METH_FASTCALL, "(device) -> flat dict of counters."},
    {"reset_peak_memory_stats", method(py_reset_peak), METH_FASTCALL, "(device)"},
    {"reset_accumulated_memory_stats", method(py_reset_accumulated), METH_FASTCALL, "(device)"},
    {"memory_info", method(py_memory_info), METH_FASTCALL, "(device) -> (free, total) bytes."},
    {"set_memory_fraction", method(py_set_memory_fraction), METH_FASTCALL, "(fraction, device)"},
    {"live_buffers", py_live_buffers, METH_NOARGS, "[(device, address, nbytes, written)] of all live buffers."},
    {nullptr, nullptr, 0, nullptr},
};

const ModulePart part(methods);

}  // namespace
}  // namespace neuron
