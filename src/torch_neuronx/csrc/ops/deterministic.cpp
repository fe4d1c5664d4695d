#include "ops/deterministic.h"

#include <ATen/Context.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/ops/fill_ops.h>

#include <limits>

namespace neuron {
namespace {

at::Scalar filler(at::ScalarType dtype) {
  if (c10::isFloatingType(dtype) || c10::isComplexType(dtype)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (dtype == at::kBool) {
    return true;
  }
  at::Scalar largest;
  AT_DISPATCH_V2(dtype, "fill_if_deterministic",
                 AT_WRAP([&] { largest = static_cast<int64_t>(std::numeric_limits<scalar_t>::max()); }),
                 AT_EXPAND(AT_INTEGRAL_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
  return largest;
}

}  // namespace

bool must_fill() {
  const auto& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

void fill_if_deterministic(const at::Tensor& tensor) {
  if (must_fill() && tensor.numel() > 0) [[unlikely]] {
    at::_ops::fill__Scalar::call(const_cast<at::Tensor&>(tensor), filler(tensor.scalar_type()));
  }
}

}  // namespace neuron
