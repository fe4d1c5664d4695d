// Which attention scaled_dot_product_attention takes: one fused executable, unless it was switched off, or is to draw
// the numbers of the CPU, which has no fused attention with dropout.
#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include <algorithm>

#include "runtime/settings.h"

namespace neuron::ops {
namespace {

// Sizes may be symbols here: a graph is being traced.
bool is_empty(const at::Tensor& t) {
  const auto sizes = t.sym_sizes();
  return std::any_of(sizes.begin(), sizes.end(), [](const c10::SymInt& n) { return n.maybe_as_int() == 0; });
}

bool fusable(const at::Tensor& t) { return t.is_floating_point() && t.dim() == 4 && !is_empty(t); }

int64_t sdp_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                   const std::optional<at::Tensor>& mask, double dropout, bool causal, std::optional<double> scale,
                   bool grouped) {
  const bool drawn_here = dropout <= 0 || !runtime::random_on_cpu();
  const bool fused = at::globalContext().userEnabledOverrideableSDP() && drawn_here && fusable(query) && fusable(key) &&
                     fusable(value) && query.scalar_type() == key.scalar_type() &&
                     query.scalar_type() == value.scalar_type();
  return static_cast<int64_t>(fused ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_fused_sdp_choice", TORCH_FN(sdp_choice)); }

}  // namespace neuron::ops

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &neuron::ops::sdp_choice)

}  // namespace at::native
