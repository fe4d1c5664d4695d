#include "dispatch/key.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/OpMathType.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <c10/core/DefaultDtype.h>

#include <cstring>

#include "dispatch/operator.h"
#include "dispatch/view_key.h"

namespace neuron::dispatch {
namespace {

// First word of each argument's part of the key.
enum Tag : int64_t {
  kNone = 1,
  kTensor,
  kList,
  kOperand,
  kInt,
  kDouble,
  kBool,
  kComplex,
  kString,
  kDevice,
  kGenerator,
  kIntList,
  kDoubleList,
  kBoolList,
  kUndefined,
};

int64_t bits_of(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

class CallViewer {
 public:
  CallViewer(Operator& op, const c10::FunctionSchema& schema, CallView& call) : op_(op), schema_(schema), call_(call) {}

  void run(torch::jit::Stack* stack) {
    const size_t count = schema_.arguments().size();
    auto first = stack->end() - static_cast<std::ptrdiff_t>(count);
    find_device(first, count);
    for (size_t i = 0; i < count && call_.refusal == nullptr; ++i) {
      argument_ = i;
      add(*(first + static_cast<std::ptrdiff_t>(i)));
    }
    if (call_.refusal != nullptr) {
      return;
    }
    finish();
  }

 private:
  Key& key() { return call_.key; }
  void word(int64_t w) { key().words.push_back(w); }

  // The device of the call is that of its first neuron tensor, or of a Device argument.
  void find_device(torch::jit::Stack::iterator first, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const c10::IValue& v = *(first + static_cast<std::ptrdiff_t>(i));
      if (v.isTensor()) {
        note_device(v.toTensor());
      } else if (v.isTensorList()) {
        for (const at::Tensor& t : v.toTensorVector()) {
          note_device(t);
        }
      } else if (v.isList()) {
        for (const c10::IValue& item : v.toListRef()) {
          if (item.isTensor()) {
            note_device(item.toTensor());
          }
        }
      } else if (v.isDevice() && v.toDevice().is_privateuseone() && call_.device < 0) {
        call_.device = v.toDevice().has_index() ? v.toDevice().index() : -1;
      }
      if (call_.device >= 0) {
        return;
      }
    }
  }

  void note_device(const at::Tensor& t) {
    if (call_.device < 0 && t.defined() && t.device().is_privateuseone()) {
      call_.device = t.device().index();
    }
  }

  void add(c10::IValue& v) {
    if (v.isNone()) {
      attribute(kNone);
    } else if (v.isTensor()) {
      add_tensor(v);
    } else if (is_operand() && is_number(v)) {
      add_operand(v);
    } else if (v.isInt()) {
      attribute(kInt);
      word(v.toInt());
    } else if (v.isBool()) {
      attribute(kBool);
      word(v.toBool());
    } else if (v.isDouble()) {
      attribute(kDouble);
      word(bits_of(v.toDouble()));
    } else if (v.isComplexDouble()) {
      attribute(kComplex);
      word(bits_of(v.toComplexDouble().real()));
      word(bits_of(v.toComplexDouble().imag()));
    } else if (v.isString()) {
      attribute(kString);
      add_text(v.toStringRef());
    } else if (v.isDevice()) {
      attribute(kDevice);  // the index is the call's device, which is in the key already
      word(static_cast<int64_t>(v.toDevice().type()));
    } else if (v.isGenerator()) {
      attribute(kGenerator);
      call_.generator = v.toGenerator();
    } else if (v.isList()) {
      add_list(v);
    } else {
      call_.refusal = "an argument of a kind the core has no key for";
    }
  }

  void attribute(Tag tag) {
    call_.arguments.push_back({Argument::Kind::Attribute, -1});
    word(tag);
  }

  bool is_operand() const { return op_.operand[argument_]; }

  static bool is_number(const c10::IValue& v) { return v.isDouble() || v.isInt() || v.isBool() || v.isComplexDouble(); }

  bool is_default(const c10::IValue& v) const {
    const c10::IValue& d = op_.defaults[argument_];
    if (v.isDouble() && d.isDouble()) {
      return v.toDouble() == d.toDouble();
    }
    if (v.isInt() && d.isInt()) {
      return v.toInt() == d.toInt();
    }
    return v.isBool() && d.isBool() && v.toBool() == d.toBool();
  }

  // A number that equals the schema's default stays an attribute: no operand, no multiplication.
  void add_operand(const c10::IValue& v) {
    if (!in_list_ && is_default(v)) {
      attribute(v.isDouble() ? kDouble : v.isInt() ? kInt : kBool);
      word(v.isDouble() ? bits_of(v.toDouble()) : v.isInt() ? v.toInt() : v.toBool());
      return;
    }
    if (op_.fit != Fit::Free && !call_.tensors.empty()) {
      check_fits(v.toScalar());
    }
    if (v.isDouble()) {
      scalar(c10::ScalarType::Double, true, bits_of(v.toDouble()));
    } else if (v.isInt()) {
      scalar(c10::ScalarType::Long, true, v.toInt());
    } else if (v.isBool()) {
      scalar(c10::ScalarType::Bool, true, v.toBool());
    } else {
      const auto c = v.toComplexDouble();
      scalar(c10::ScalarType::ComplexDouble, true, bits_of(c.real()), bits_of(c.imag()));
    }
  }

  c10::ScalarType fitting_dtype(const c10::Scalar& number) const {
    if (op_.fit == Fit::Self) {
      return call_.tensors[0].tensor.scalar_type();
    }
    at::native::ResultTypeState state{};
    for (const TensorLeaf& leaf : call_.tensors) {
      state = at::native::update_result_type_state(leaf.tensor, state);
    }
    const c10::ScalarType common = at::native::result_type(state);
    if (op_.fit == Fit::Promoted && number.isFloatingPoint() && c10::isIntegralType(common, true)) {
      return c10::get_default_dtype_as_scalartype();
    }
    return op_.fit == Fit::Computed ? at::toOpMathType(common) : common;
  }

  // Raises in torch's words: value cannot be converted to type int8_t without overflow.
  void check_fits(const c10::Scalar& number) const {
    const at::Tensor& first = call_.tensors[0].tensor;
    if (first.numel() == 1 && c10::isReducedFloatingType(first.scalar_type())) {
      return;  // the CPU's way of filling one element rounds to infinity there: x[0] = 1e5
    }
    AT_DISPATCH_V2(fitting_dtype(number), "a number", AT_WRAP([&] { number.to<scalar_t>(); }),
                   AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
                   AT_EXPAND(AT_FLOAT8_TYPES), c10::kHalf, c10::kBFloat16, c10::kBool, c10::kComplexHalf);
  }

  void scalar(c10::ScalarType dtype, bool weak, int64_t first, std::optional<int64_t> second = std::nullopt) {
    const auto param = static_cast<int32_t>(call_.params.size());
    call_.params.push_back(first);
    if (second) {
      call_.params.push_back(*second);
    }
    call_.arguments.push_back({Argument::Kind::Scalar, static_cast<int32_t>(call_.scalars.size())});
    call_.scalars.push_back({dtype, param, weak});
    word(kOperand);
    word(static_cast<int64_t>(dtype) * 2 + weak);
  }

  void add_text(const std::string& text) {
    word(static_cast<int64_t>(text.size()));
    for (size_t i = 0; i < text.size(); i += sizeof(int64_t)) {
      int64_t w = 0;
      std::memcpy(&w, text.data() + i, std::min(sizeof(w), text.size() - i));
      word(w);
    }
  }

  void add_list(c10::IValue& v) {
    if (v.isIntList()) {
      attribute(kIntList);
      const auto values = v.toDimVector();
      word(static_cast<int64_t>(values.size()));
      for (const int64_t x : values) {
        word(x);
      }
      return;
    }
    c10::List<c10::IValue> items = v.toList();
    call_.arguments.push_back({Argument::Kind::List, static_cast<int32_t>(items.size())});
    word(kList);
    word(static_cast<int64_t>(items.size()));
    in_list_ = true;
    for (size_t i = 0; i < items.size() && call_.refusal == nullptr; ++i) {
      c10::IValue item = items.get(i);
      const bool moved = item.isTensor() && item.toTensor().defined() && item.toTensor().device().is_cpu();
      add(item);
      if (moved && op_.host_inputs && item.isTensor()) {
        items.set(i, item);
      }
    }
    in_list_ = false;
  }

  void add_tensor(c10::IValue& v) {
    const at::Tensor& t = v.toTensor();
    if (!t.defined()) {
      attribute(kUndefined);
      return;
    }
    if (t.layout() != c10::kStrided || t.is_quantized()) {
      call_.refusal = "a tensor that is not dense";
      return;
    }
    if (!t.device().is_privateuseone()) {
      add_host_tensor(v);
      return;
    }
    check_device(t);
    add_device_tensor(t);
  }

  void check_device(const at::Tensor& t) {
    TORCH_CHECK(t.device().index() == call_.device,
                "Expected all tensors to be on the same device, but found at least two devices, neuron:",
                static_cast<int>(call_.device), " and ", t.device(), "! (argument '",
                schema_.arguments()[argument_].name(), "' of ", op_.name,
                "). Move it with .to('neuron:", static_cast<int>(call_.device), "').");
  }

  // Indices and lengths may be on the CPU; the tensor they go into and what is put there may not.
  bool may_move(const at::Tensor& t, const std::string& argument) const {
    if (!t.device().is_cpu() || !op_.host_inputs || op_.written[argument_] || argument_ == 0) {
      return false;
    }
    const bool is_put = argument == "value" || argument == "values";
    return is_put ? t.dim() == 0 : argument != "index";
  }

  // A 0-d CPU tensor is a number; a CPU index tensor is moved; anything else is an error, as on CUDA.
  void add_host_tensor(c10::IValue& v) {
    const at::Tensor& t = v.toTensor();
    const std::string& argument = schema_.arguments()[argument_].name();
    const bool number = t.device().is_cpu() && t.dim() == 0 && !op_.written[argument_];
    if (number && !op_.host_inputs) {
      add_host_scalar(t);
      return;
    }
    if (may_move(t, argument)) {
      v = t.to(c10::Device(c10::DeviceType::PrivateUse1, call_.device));
      add_device_tensor(v.toTensor());
      return;
    }
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, neuron:",
                static_cast<int>(std::max<c10::DeviceIndex>(call_.device, 0)), " and ", t.device(), "! (argument '",
                argument, "' of ", op_.name, ", shape ", t.sizes(), "). Move it with .to('neuron').");
  }

  void add_host_scalar(const at::Tensor& t) {
    const bool weak = t.unsafeGetTensorImpl()->is_wrapped_number();
    const c10::ScalarType dtype = t.scalar_type();
    const c10::Scalar value = t.item();
    if (c10::isComplexType(dtype)) {
      const auto c = value.toComplexDouble();
      scalar(dtype, weak, bits_of(c.real()), bits_of(c.imag()));
    } else if (c10::isFloatingType(dtype)) {
      scalar(dtype, weak, bits_of(value.toDouble()));
    } else if (dtype == c10::ScalarType::UInt64) {
      scalar(dtype, weak, static_cast<int64_t>(value.toUInt64()));
    } else {
      scalar(dtype, weak, value.isBoolean() ? value.toBool() : value.toLong());
    }
  }

  void add_device_tensor(const at::Tensor& t) {
    const bool written = op_.written[argument_];
    const int32_t slot = slot_of(t);
    const int64_t numel = static_cast<int64_t>(call_.slots[slot].buffer->nbytes / t.itemsize());
    TensorLeaf leaf{t, slot, -1, false, written};
    const bool whole = t.storage_offset() == 0 && t.numel() == numel && is_dense(t.sizes(), t.strides());
    if (!whole) {
      const std::string& argument = schema_.arguments()[argument_].name();
      check_bounds(t, op_.name.c_str(), argument.c_str());
      if (written && !op_.overlap) {
        check_overlap(t, argument);
      }
      leaf.offset_param = static_cast<int32_t>(call_.params.size());
      call_.params.push_back(t.storage_offset());
      leaf.fits = block_fits(t.sizes(), t.strides(), numel, t.storage_offset());
    }
    if (!(written && op_.unread[argument_] && whole)) {
      call_.slots[slot].present = true;
    }
    call_.arguments.push_back({Argument::Kind::Tensor, static_cast<int32_t>(call_.tensors.size())});
    call_.tensors.push_back(std::move(leaf));
    word(kTensor);
  }

  // As on the CPU: an element that stands at several places cannot take several values.
  void check_overlap(const at::Tensor& t, const std::string& argument) {
    TORCH_CHECK(at::has_internal_overlap(t) != at::MemOverlap::Yes,
                "unsupported operation: more than one element of the written-to tensor refers to a single memory "
                "location. Please clone() the tensor before performing the operation. (argument '",
                argument, "' of ", op_.name, ", shape ", t.sizes(), ", strides ", t.strides(), ")");
  }

  int32_t slot_of(const at::Tensor& t) {
    c10::StorageImpl* storage = t.storage().unsafeGetStorageImpl();
    for (size_t i = 0; i < call_.slots.size(); ++i) {
      if (call_.slots[i].storage == storage) {
        return static_cast<int32_t>(i);
      }
    }
    DeviceBuffer& buffer = DeviceBuffer::of(*storage);
    const bool filled = buffer.dtype != c10::ScalarType::Undefined;
    const c10::ScalarType dtype = filled ? buffer.dtype : t.scalar_type();
    const int64_t numel = filled ? buffer.numel : static_cast<int64_t>(buffer.nbytes / t.itemsize());
    // A filled storage is always an argument: its memory is donated when it is overwritten.
    call_.slots.push_back({storage, &buffer, dtype, numel, filled});
    return static_cast<int32_t>(call_.slots.size() - 1);
  }

  bool can_flatten() const {
    if (!op_.pointwise || call_.tensors.empty()) {
      return false;
    }
    const at::Tensor& first = call_.tensors[0].tensor;
    if (first.dim() == 0 || first.numel() == 0) {
      return false;
    }
    for (const TensorLeaf& leaf : call_.tensors) {
      if (leaf.offset_param >= 0 || leaf.tensor.sizes() != first.sizes() || leaf.tensor.strides() != first.strides()) {
        return false;
      }
    }
    return true;
  }

  void finish() {
    call_.flat = can_flatten();
    word(call_.flat ? call_.tensors[0].tensor.numel() : -1);
    for (const SlotLeaf& slot : call_.slots) {
      word(static_cast<int64_t>(slot.dtype) * 2 + slot.present);
      word(slot.numel);
    }
    for (const TensorLeaf& leaf : call_.tensors) {
      add_layout(leaf);
    }
    if (op_.random) {
      call_.rng_param = static_cast<int32_t>(call_.params.size());
      call_.params.push_back(0);
      call_.params.push_back(0);
    }
    word(call_.device);
    // Wrapped numbers promote to the default dtype.
    word(static_cast<int64_t>(c10::get_default_dtype_as_scalartype()));
    key().hash = hash();
  }

  void add_layout(const TensorLeaf& leaf) {
    const at::Tensor& t = leaf.tensor;
    const int64_t lazy = t.is_conj() * 8 | t.is_neg() * 4;
    word((static_cast<int64_t>(t.scalar_type()) << 40) | (static_cast<int64_t>(leaf.slot) << 8) | lazy |
         (leaf.offset_param >= 0) * 2 | leaf.fits);
    if (call_.flat) {
      return;
    }
    word(t.dim());
    for (int64_t d = 0; d < t.dim(); ++d) {
      word(t.size(d));
      word(t.stride(d));
    }
  }

  size_t hash() {
    uint64_t h = 0x9e3779b97f4a7c15ULL;
    for (const int64_t w : key().words) {
      h = (h ^ static_cast<uint64_t>(w)) * 0xff51afd7ed558ccdULL;
      h ^= h >> 32;
    }
    return h;
  }

  Operator& op_;
  const c10::FunctionSchema& schema_;
  CallView& call_;
  size_t argument_ = 0;
  bool in_list_ = false;
};

}  // namespace

void check_sharing(const Operator& op, const CallView& call) {
  if (op.sharing == Sharing::Any || call.slots.size() == call.tensors.size()) {
    return;  // only tensors of one slot can share memory
  }
  for (const TensorLeaf& target : call.tensors) {
    for (const TensorLeaf& other : call.tensors) {
      if (!target.written || &target == &other || target.slot != other.slot) {
        continue;
      }
      if (op.sharing == Sharing::Nothing) {
        at::assert_no_overlap(target.tensor, other.tensor);
      } else {
        at::assert_no_partial_overlap(target.tensor, other.tensor);
      }
    }
  }
}

void view_call(Operator& op, const c10::FunctionSchema& schema, torch::jit::Stack* stack, CallView& call) {
  CallViewer(op, schema, call).run(stack);
}

}  // namespace neuron::dispatch
