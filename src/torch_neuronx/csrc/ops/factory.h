// Tensors without values, and the ops that make them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace neuron {

// A strided tensor on `device` that holds nothing yet. For kernels: checks sizes, nothing else.
at::Tensor make_empty(at::IntArrayRef sizes, at::ScalarType dtype, c10::DeviceIndex device,
                      std::optional<at::MemoryFormat> memory_format = std::nullopt);
at::Tensor make_empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype,
                              c10::DeviceIndex device);

namespace ops {

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory,
                 std::optional<at::MemoryFormat> memory_format);
at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory);

}  // namespace ops
}  // namespace neuron
