#include "dispatch/parameters.h"

#include <array>
#include <vector>

#include "runtime/bridge.h"

namespace neuron::dispatch {
namespace {

struct Kept {
  std::vector<int64_t> words;
  c10::DeviceIndex device = -1;
  PyObject* array = nullptr;
};

constexpr size_t kSlots = 1024;  // direct-mapped: a collision replaces, so the memory is bounded
constexpr size_t kLongest = 64;  // longer vectors (ScalarList of a whole model) are not worth keeping

// Touched only with the GIL held.
std::array<Kept, kSlots>& kept() {
  static auto* slots = new std::array<Kept, kSlots>();
  return *slots;
}

size_t slot_of(c10::IntArrayRef words, c10::DeviceIndex device) {
  uint64_t h = static_cast<uint64_t>(device) + 0x9e3779b97f4a7c15ULL;
  for (const int64_t w : words) {
    h = (h ^ static_cast<uint64_t>(w)) * 0xff51afd7ed558ccdULL;
    h ^= h >> 33;
  }
  return h % kSlots;
}

PyObject* upload(c10::IntArrayRef words, c10::DeviceIndex device) {
  return runtime::from_host(words.data(), c10::ScalarType::Long, static_cast<int64_t>(words.size()), device);
}

}  // namespace

PyObject* parameter_array(c10::IntArrayRef words, c10::DeviceIndex device) {
  if (words.size() > kLongest) {
    return upload(words, device);
  }
  Kept& slot = kept()[slot_of(words, device)];
  if (slot.array == nullptr || slot.device != device || c10::IntArrayRef(slot.words) != words) {
    PyObject* array = upload(words, device);
    Py_XDECREF(slot.array);
    slot.words = words.vec();
    slot.device = device;
    slot.array = array;
  }
  return Py_NewRef(slot.array);
}

void clear_parameters() {
  for (Kept& slot : kept()) {
    Py_CLEAR(slot.array);
  }
}

}  // namespace neuron::dispatch
