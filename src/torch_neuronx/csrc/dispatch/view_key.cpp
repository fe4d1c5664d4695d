#include "dispatch/view_key.h"

#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <algorithm>

namespace neuron::dispatch {

bool is_dense(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  c10::SmallVector<size_t, 6> dims;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1) {
      dims.push_back(d);
    }
  }
  std::sort(dims.begin(), dims.end(), [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  int64_t expected = 1;
  for (const size_t d : dims) {
    if (strides[d] != expected) {
      return false;
    }
    expected *= sizes[d];
  }
  return true;
}

bool block_fits(c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t storage_numel, int64_t offset) {
  c10::SmallVector<size_t, 6> dims;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1 && strides[d] != 0) {
      dims.push_back(d);
    }
  }
  std::stable_sort(dims.begin(), dims.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  int64_t above = storage_numel;
  int64_t rest = offset;
  for (const size_t d : dims) {
    const int64_t stride = strides[d];
    if (stride <= 0 || above % stride != 0 || (above == stride && above != storage_numel)) {
      return false;
    }
    if (rest / stride + sizes[d] > above / stride) {
      return false;
    }
    rest %= stride;
    above = stride;
  }
  return true;
}

void check_bounds(const at::TensorBase& t, const char* op, const char* argument) {
  int64_t last = t.storage_offset();
  for (int64_t d = 0; d < t.dim(); ++d) {
    last += (t.size(d) - 1) * t.stride(d);
  }
  const size_t nbytes = t.storage().nbytes();
  TORCH_CHECK(t.numel() == 0 || static_cast<size_t>(last + 1) * t.itemsize() <= nbytes, op, ": argument '", argument,
              "' (shape ", t.sizes(), ", strides ", t.strides(), ", offset ", t.storage_offset(),
              ") reaches beyond its storage of ", nbytes,
              " bytes, which was made smaller. Grow the storage again with resize_, or make a new tensor.");
}

}  // namespace neuron::dispatch
