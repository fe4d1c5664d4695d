#include "ops/factory.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/TensorBase.h>

#include "device/allocator.h"
#include "device/guard.h"
#include "ops/deterministic.h"
#include "runtime/bridge.h"

namespace neuron {
namespace {

at::Tensor over_new_storage(size_t nbytes, at::ScalarType dtype, c10::DeviceIndex device) {
  return at::detail::make_tensor<c10::TensorImpl>(c10::Storage(new_storage(nbytes, device)),
                                                  c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                  c10::scalarTypeToTypeMeta(dtype));
}

struct Request {
  at::ScalarType dtype;
  c10::DeviceIndex device;
};

Request check_request(const char* op, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                      std::optional<at::Device> device, std::optional<bool> pin_memory) {
  const auto type = dtype.value_or(c10::get_default_dtype_as_scalartype());
  TORCH_CHECK(layout.value_or(c10::kStrided) == c10::kStrided, op, ": cannot make a tensor with layout ", *layout,
              " on neuron, which has strided tensors. Use layout=torch.strided.");
  TORCH_CHECK(!pin_memory.value_or(false), op,
              ": Only dense CPU tensors can be pinned, and this one is asked for on neuron. "
              "Make it on the CPU with pin_memory=True, then call .to('neuron', non_blocking=True).");
  TORCH_CHECK(!c10::isQIntType(type), op, ": cannot make a tensor of quantized dtype ", type,
              " on neuron, which has no quantized tensors. Keep it on the CPU, or hold the integers and the scale "
              "as plain tensors.");
  runtime::ensure_initialized();
  return {type, resolve_device(device.value_or(c10::Device(c10::DeviceType::PrivateUse1)))};
}

}  // namespace

at::Tensor make_empty(at::IntArrayRef sizes, at::ScalarType dtype, c10::DeviceIndex device,
                      std::optional<at::MemoryFormat> memory_format) {
  at::detail::check_size_nonnegative(sizes);
  const size_t nbytes = at::detail::computeStorageNbytesContiguous(sizes, c10::elementSize(dtype));
  auto tensor = over_new_storage(nbytes, dtype, device);
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  if (memory_format.value_or(at::MemoryFormat::Contiguous) != at::MemoryFormat::Contiguous) {
    impl->empty_tensor_restride(*memory_format);
  }
  return tensor;
}

at::Tensor make_empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype,
                              c10::DeviceIndex device) {
  at::detail::check_size_nonnegative(sizes);
  const size_t nbytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype));
  auto tensor = over_new_storage(nbytes, dtype, device);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

namespace ops {

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory,
                 std::optional<at::MemoryFormat> memory_format) {
  const Request request = check_request("empty", dtype, layout, device, pin_memory);
  auto tensor = make_empty(sizes, request.dtype, request.device, memory_format);
  fill_if_deterministic(tensor);
  return tensor;
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory) {
  const Request request = check_request("empty_strided", dtype, layout, device, pin_memory);
  auto tensor = make_empty_strided(sizes, strides, request.dtype, request.device);
  fill_if_deterministic(tensor);
  return tensor;
}

}  // namespace ops
}  // namespace neuron
