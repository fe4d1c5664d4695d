// The ops that must be C++ and need no executable: they make, reshape or re-point storages.
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_resize_output_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "ops/factory.h"
#include "ops/resize.h"
#include "ops/views.h"

namespace {

void refuse_quantized(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.schema().operator_name(),
                              ": neuron has no quantized tensors. Keep the tensor on the CPU, or hold its integers "
                              "and its scale as plain tensors.");
}

// They take or return quantized tensors, on whatever dense ones they are called.
constexpr const char* kOfQuantized[] = {
    "_make_per_channel_quantized_tensor",
    "_make_per_tensor_quantized_tensor",
    "int_repr",
    "q_per_channel_axis",
    "q_per_channel_scales",
    "q_per_channel_zero_points",
    "q_scale",
    "q_zero_point",
    "qscheme",
    "quantize_per_channel",
    "quantize_per_tensor",
    "quantize_per_tensor.tensor_qparams",
    "quantize_per_tensor.tensors",
    "quantize_per_tensor_dynamic",
    "quantized_batch_norm",
    "quantized_max_pool1d",
    "quantized_max_pool2d",
    "quantized_max_pool3d",
};

}  // namespace

TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_quantized>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* op : kOfQuantized) {
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<&refuse_quantized>());
  }

  m.impl("empty.memory_format", TORCH_FN(neuron::ops::empty));
  m.impl("empty_strided", TORCH_FN(neuron::ops::empty_strided));
  m.impl("resize_", TORCH_FN(neuron::ops::resize_));
  m.impl("_resize_output_", TORCH_FN(at::native::_resize_output_));

  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("is_set_to", TORCH_FN(at::native::is_set_to));

  m.impl("set_", TORCH_FN(neuron::ops::set_nothing));
  m.impl("set_.source_Storage", TORCH_FN(neuron::ops::set_source_storage));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(neuron::ops::set_source_storage_offset));
  m.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  m.impl("_lazy_clone", TORCH_FN(neuron::ops::lazy_clone));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(neuron::ops::has_compatible_shallow_copy_type));
  m.impl("record_stream", TORCH_FN(neuron::ops::record_stream));
}
