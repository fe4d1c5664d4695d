// Moving values between the host and the device, and between dtypes and layouts on the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

namespace neuron::ops {

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking);
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst);
c10::Scalar local_scalar_dense(const at::Tensor& self);
bool equal(const at::Tensor& self, const at::Tensor& other);

}  // namespace neuron::ops
