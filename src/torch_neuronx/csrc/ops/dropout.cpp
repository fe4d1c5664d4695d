// dropout(): one fused op, as torch does it on accelerators, or the CPU's steps where the CPU's numbers are asked for.
#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout_native.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "runtime/settings.h"

namespace neuron::ops {
namespace {

at::Tensor dropout(const at::Tensor& input, double p, bool train) {
  const bool draws = train && p > 0 && p < 1;
  if (!draws || !runtime::random_on_cpu() || input.numel() == 0) [[likely]] {
    return at::native::dropout(input, p, train);
  }
  at::Tensor noise = at::empty_like(input);
  noise.bernoulli_(1 - p).div_(1 - p);
  return input * noise;
}

}  // namespace

// Both keys: the op is a composite, whose gradient follows from its steps.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("dropout", TORCH_FN(dropout)); }
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("dropout", TORCH_FN(dropout)); }

}  // namespace neuron::ops
