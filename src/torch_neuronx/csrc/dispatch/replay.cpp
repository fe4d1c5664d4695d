#include "dispatch/replay.h"

#include <c10/core/DefaultDtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstring>

#include "storage/device_buffer.h"

namespace neuron::dispatch {
namespace {

int64_t bits_of(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

}  // namespace

void Replay::record(const std::shared_ptr<const Entry>& entry, const CallView& call, const torch::jit::Stack& stack,
                    size_t count) {
  entry_.reset();
  if (call.tensors.empty() || call.arguments.size() != count) {
    return;  // the device is that of a tensor
  }
  seen_.assign(count, {});
  layouts_.clear();
  for (size_t i = 0; i < count; ++i) {
    Seen& seen = seen_[i];
    const c10::IValue& value = torch::jit::peek(stack, i, count);
    const Argument argument = call.arguments[i];
    if (argument.kind == Argument::Kind::Tensor) {
      const TensorLeaf& leaf = call.tensors[static_cast<size_t>(argument.index)];
      const at::Tensor& t = leaf.tensor;
      if (!value.isTensor() || t.is_conj() || t.is_neg()) {
        return;
      }
      seen = {Seen::Kind::Tensor,          t.scalar_type(), -1, leaf.slot, t.storage_offset(), layouts_.size(),
              static_cast<size_t>(t.dim())};
      layouts_.insert(layouts_.end(), t.sizes().begin(), t.sizes().end());
      layouts_.insert(layouts_.end(), t.strides().begin(), t.strides().end());
    } else if (argument.kind == Argument::Kind::Scalar) {
      const ScalarLeaf& leaf = call.scalars[static_cast<size_t>(argument.index)];
      if (!value.isDouble() || leaf.dtype != c10::ScalarType::Double) {
        return;
      }
      seen.kind = Seen::Kind::Operand;
      seen.param = leaf.param;
    } else if (value.isDouble()) {
      seen.kind = Seen::Kind::Float;
      seen.value = bits_of(value.toDouble());
    } else if (value.isBool()) {
      seen.kind = Seen::Kind::Bool;
      seen.value = value.toBool();
    } else if (value.isInt()) {
      seen.kind = Seen::Kind::Int;
      seen.value = value.toInt();
    } else if (!value.isNone()) {
      return;
    }
  }
  slots_.assign(call.slots.begin(), call.slots.end());
  params_.assign(call.params.begin(), call.params.end());
  device_ = call.device;
  rng_param_ = call.rng_param;
  default_dtype_ = c10::get_default_dtype_as_scalartype();
  entry_ = entry;
}

bool Replay::matches_tensor(const Seen& seen, PyObject* object, CallView& call) const {
  if (!THPVariable_Check(object)) {
    return false;
  }
  const at::Tensor& t = THPVariable_Unpack(object);
  if (!t.defined() || !t.device().is_privateuseone() || t.device().index() != device_ ||
      t.scalar_type() != seen.dtype || t.layout() != c10::kStrided || t.storage_offset() != seen.value || t.is_conj() ||
      t.is_neg()) {
    return false;
  }
  const int64_t* layout = layouts_.data() + seen.layout;
  const c10::IntArrayRef sizes(layout, seen.ndim), strides(layout + seen.ndim, seen.ndim);
  if (t.sizes() != sizes || t.strides() != strides) {
    return false;
  }
  c10::StorageImpl* storage = t.storage().unsafeGetStorageImpl();
  const auto slot = static_cast<size_t>(seen.slot);
  if (slot < call.slots.size()) {
    return call.slots[slot].storage == storage;
  }
  const SlotLeaf& recorded = slots_[slot];
  DeviceBuffer& buffer = DeviceBuffer::of(*storage);
  const bool filled = buffer.dtype != c10::ScalarType::Undefined;
  const c10::ScalarType dtype = filled ? buffer.dtype : seen.dtype;
  const int64_t numel = filled ? buffer.numel : static_cast<int64_t>(buffer.nbytes / t.itemsize());
  if (dtype != recorded.dtype || numel != recorded.numel || !recorded.present) {
    return false;
  }
  call.slots.push_back({storage, &buffer, dtype, numel, true});
  return true;
}

std::shared_ptr<const Entry> Replay::match(const PyArguments& arguments, CallView& call) const {
  std::shared_ptr<const Entry> entry = entry_.lock();
  if (entry == nullptr || arguments.size() != seen_.size() ||
      default_dtype_ != c10::get_default_dtype_as_scalartype()) {
    return nullptr;
  }
  call.params.assign(params_.begin(), params_.end());
  call.slots.reserve(slots_.size());
  for (size_t i = 0; i < seen_.size(); ++i) {
    const Seen& seen = seen_[i];
    PyObject* object = arguments[i].get();
    bool same = false;
    switch (seen.kind) {
      case Seen::Kind::Tensor:
        same = matches_tensor(seen, object, call);
        break;
      case Seen::Kind::None:
        same = object == Py_None;
        break;
      case Seen::Kind::Operand:
        same = PyFloat_CheckExact(object);
        if (same) {
          call.params[static_cast<size_t>(seen.param)] = bits_of(PyFloat_AS_DOUBLE(object));
        }
        break;
      case Seen::Kind::Float:
        same = PyFloat_CheckExact(object) && bits_of(PyFloat_AS_DOUBLE(object)) == seen.value;
        break;
      case Seen::Kind::Bool:
        same = object == (seen.value != 0 ? Py_True : Py_False);
        break;
      case Seen::Kind::Int: {
        int overflow = 0;
        same =
            PyLong_CheckExact(object) && PyLong_AsLongLongAndOverflow(object, &overflow) == seen.value && overflow == 0;
        break;
      }
    }
    if (!same) {
      return nullptr;
    }
  }
  // What were different storages must not be one now: the program would give it two places.
  c10::SmallVector<const c10::StorageImpl*, 16> storages;
  for (const SlotLeaf& slot : call.slots) {
    storages.push_back(slot.storage);
  }
  std::sort(storages.begin(), storages.end());
  if (std::adjacent_find(storages.begin(), storages.end()) != storages.end()) {
    return nullptr;
  }
  call.device = device_;
  call.rng_param = rng_param_;
  return entry;
}

}  // namespace neuron::dispatch
