// torch.use_deterministic_algorithms() promises that memory nobody wrote reads as NaN or the largest integer.
#pragma once

#include <ATen/core/Tensor.h>

namespace neuron {

bool must_fill();
void fill_if_deterministic(const at::Tensor& tensor);

}  // namespace neuron
