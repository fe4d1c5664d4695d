// The row-major position of every column of a COO tensor's indices; ATen's conversions between layouts ask for it.
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/ops/zeros.h>

namespace at::native {

// Declared in a header of ATen that is not installed.
DECLARE_DISPATCH(Tensor (*)(const Tensor&, IntArrayRef), flatten_indices_stub)

namespace {

Tensor flatten_indices(const Tensor& indices, IntArrayRef sizes) {
  if (sizes.empty()) {
    return at::zeros({indices.size(1)}, indices.options().dtype(kLong));
  }
  Tensor flat = indices.select(0, 0).to(kLong);
  for (size_t d = 1; d < sizes.size(); ++d) {
    flat = flat.mul(sizes[d]).add(indices.select(0, static_cast<int64_t>(d)));
  }
  return flat;
}

}  // namespace

REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &flatten_indices)

}  // namespace at::native
