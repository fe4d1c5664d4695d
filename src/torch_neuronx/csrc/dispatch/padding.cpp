#include "dispatch/padding.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "dispatch/launch_lock.h"
#include "runtime/bridge.h"
#include "storage/device_buffer.h"

namespace neuron::dispatch {
namespace {

void fill(char* from, size_t nbytes, c10::ScalarType dtype, bool poison) {
  std::memset(from, 0, nbytes);
  if (!poison) {
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor pad = at::from_blob(from, {static_cast<int64_t>(nbytes / c10::elementSize(dtype))}, dtype);
  const bool has_nan = c10::isFloatingType(dtype) || c10::isComplexType(dtype);
  pad.fill_(has_nan                          ? c10::Scalar(std::nan(""))
            : dtype == c10::ScalarType::Bool ? c10::Scalar(true)
                                             : c10::Scalar(123));
}

}  // namespace

int64_t extent_of(const at::Tensor& tensor) {
  int64_t extent = tensor.numel() == 0 ? 0 : 1;
  for (int64_t d = 0; d < tensor.dim() && tensor.numel() > 0; ++d) {
    extent += (tensor.size(d) - 1) * tensor.stride(d);
  }
  return extent;
}

PyObject* padded_copy(const at::Tensor& tensor, int64_t capacity, bool poison) {
  const DeviceBuffer& old = DeviceBuffer::of(tensor);
  std::vector<char> bytes(static_cast<size_t>(capacity) * tensor.itemsize());
  const auto used = static_cast<size_t>(extent_of(tensor)) * tensor.itemsize();
  TORCH_CHECK(used <= bytes.size(), "a tensor of ", used, " bytes does not fit into ", bytes.size());
  if (old.handle != nullptr && used > 0) {
    const LaunchLock lock;
    const auto* memory = static_cast<const char*>(runtime::host_pointer(old.handle));
    std::memcpy(bytes.data(), memory + static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize(), used);
  }
  fill(bytes.data() + used, bytes.size() - used, tensor.scalar_type(), poison);
  return runtime::from_host(bytes.data(), tensor.scalar_type(), capacity, tensor.device().index());
}

}  // namespace neuron::dispatch
