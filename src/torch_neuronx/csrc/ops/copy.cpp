#include "ops/copy.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/all.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/from_blob.h>
#include <torch/library.h>

#include "dispatch/launch_lock.h"
#include "dispatch/operator.h"
#include "dispatch/view_key.h"
#include "gil.h"
#include "runtime/bridge.h"
#include "storage/device_buffer.h"

namespace neuron::ops {
namespace {

// The device's memory seen as a CPU tensor: valid until the storage is written again.
at::Tensor host_view(const at::Tensor& t) {
  DeviceBuffer& buffer = DeviceBuffer::of(t);
  const auto options = t.options().device(c10::kCPU);
  if (t.numel() == 0 || buffer.handle == nullptr) {
    return at::empty_strided(t.sizes(), t.strides(), options).zero_();
  }
  dispatch::check_bounds(t, "a copy to the CPU", "self");
  const Gil gil;
  PyObject* handle = Py_NewRef(buffer.handle);
  const char* base = nullptr;
  try {
    base = static_cast<const char*>(runtime::host_pointer(handle));
  } catch (...) {
    Py_DECREF(handle);
    throw;
  }
  void* first = const_cast<char*>(base) + t.storage_offset() * static_cast<int64_t>(t.itemsize());
  return at::from_blob(first, t.sizes(), t.strides(), [handle](void*) { release_object(handle); }, options);
}

constexpr int kMostLooks = 4;  // a thread that never stops writing must not keep a reader waiting for ever

// Waits without the lock. Meanwhile another thread may have started work on the storage, so it looks again.
void wait_for_value(const at::Tensor& t) {
  DeviceBuffer& buffer = DeviceBuffer::of(t);
  const Gil gil;
  PyObject* last = nullptr;
  for (int look = 0; look < kMostLooks && buffer.handle != nullptr && buffer.handle != last; ++look) {
    last = buffer.handle;
    runtime::wait_for(last);
  }
}

void device_to_host(const at::Tensor& self, const at::Tensor& dst) {
  wait_for_value(self);
  runtime::raise_deferred_errors(self.device().index());
  const dispatch::LaunchLock lock;  // memory being read must not be donated
  const at::Tensor view = host_view(self);
  dst.copy_(self.is_conj() ? view.conj() : self.is_neg() ? view._neg_view() : view);
}

// Where there is nothing to copy, nothing else looks at the shapes.
void check_broadcast(const at::Tensor& self, const at::Tensor& dst) {
  const auto shape = at::infer_size(dst.sizes(), self.sizes());
  TORCH_CHECK(dst.sizes() == at::IntArrayRef(shape), "output with shape ", dst.sizes(),
              " doesn't match the broadcast shape ", at::IntArrayRef(shape));
}

// Two views of the same elements: nothing to copy, whatever else could be said against it.
bool is_same_data(const at::Tensor& a, const at::Tensor& b) {
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset() && a.strides() == b.strides() &&
         a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() &&
         a.is_neg() == b.is_neg();
}

bool covers_storage(const at::Tensor& t) {
  const auto numel = static_cast<int64_t>(DeviceBuffer::of(t).nbytes / t.itemsize());
  return t.storage_offset() == 0 && t.numel() == numel && dispatch::is_dense(t.sizes(), t.strides());
}

// Fills the whole storage of `dst` from CPU memory in dst's own layout.
void fill_storage(const at::Tensor& self, const at::Tensor& dst) {
  at::Tensor source = self.detach();
  if (self.scalar_type() != dst.scalar_type() || self.sizes() != dst.sizes() || self.strides() != dst.strides() ||
      self.is_conj() || self.is_neg()) {
    source = at::empty_strided(dst.sizes(), dst.strides(), dst.options().device(c10::kCPU)).copy_(self);
  }
  const Gil gil;
  PyObject* array = runtime::from_host(source.const_data_ptr(), dst.scalar_type(), dst.numel(), dst.device().index());
  DeviceBuffer::of(dst).replace(array, dst.scalar_type(), dst.numel());
}

// A value read on the host leaves its dtype unchanged, so casts happen here or on the device.
void host_to_device(const at::Tensor& self, const at::Tensor& dst) {
  if (covers_storage(dst) && !dst.is_conj() && !dst.is_neg()) {
    fill_storage(self, dst);
    return;
  }
  at::Tensor whole =
      at::empty_strided(self.sizes(), self.contiguous().strides(), dst.options().dtype(self.scalar_type()));
  fill_storage(self, whole);
  dst.copy_(whole);
}

void device_to_device(const at::Tensor& self, const at::Tensor& dst) {
  static const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  static dispatch::Operator& op = dispatch::operator_of(handle);
  torch::jit::Stack stack{dst, self, false};
  dispatch::run_boxed(handle, op, &stack);
}

}  // namespace

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  runtime::ensure_initialized();
  if (dst.numel() == 0) {
    check_broadcast(self, dst);
    if (dst.device().is_cpu()) {
      runtime::raise_deferred_errors(self.device().index());
    }
    return dst;
  }
  if (self.device().is_cpu()) {
    host_to_device(self, dst);
  } else if (dst.device().is_cpu()) {
    device_to_host(self, dst);
  } else if (is_same_data(self, dst)) {
    return dst;
  } else if (self.device() == dst.device()) {
    device_to_device(self, dst);
  } else {
    TORCH_CHECK(self.device().is_privateuseone() && dst.device().is_privateuseone(), "cannot copy from ", self.device(),
                " to ", dst.device(), ". Copy to the CPU first.");
    host_to_device(self.cpu(), dst);
  }
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  dst.resize_(self.sizes());
  return copy_from(self, dst, false);
}

c10::Scalar local_scalar_dense(const at::Tensor& self) {
  runtime::ensure_initialized();
  wait_for_value(self);
  runtime::raise_deferred_errors(self.device().index());
  const dispatch::LaunchLock lock;
  const at::Tensor view = host_view(self);
  return at::native::_local_scalar_dense_cpu(view);
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  if (self.sizes() != other.sizes()) {
    return false;
  }
  return self.numel() == 0 || at::all(at::eq(self, other)).item<bool>();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  m.impl("equal", TORCH_FN(equal));
}

// Its schema does not say that it writes `dst`, so the fallbacks would write a resolved copy of it.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace neuron::ops
