// Ops on strided nested tensors whose kernels in ATen read the CPU's memory: here composed of dense ops.
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_nested_from_padded.h>
#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/_nested_view_from_buffer.h>
#include <ATen/ops/_transformer_encoder_layer_fwd.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// A nested tensor over `buffer`, shaped as `like`, which is contiguous.
Tensor over_buffer(const Tensor& buffer, const Tensor& like) {
  return at::_nested_view_from_buffer(buffer, like._nested_tensor_size(), like._nested_tensor_strides(),
                                      like._nested_tensor_storage_offsets());
}

// The rows of all parts, whose last dimension is `width`.
Tensor rows(const Tensor& nested, int64_t width) { return nested.contiguous().values().view({-1, width}); }

Tensor sum(const Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, std::optional<at::ScalarType> dtype) {
  TORCH_CHECK(dims.has_value() && dims->size() == 1,
              "NestedTensor only allows reduction of a single dimension for now.");
  const int64_t dim = at::maybe_wrap_dim((*dims)[0], self.dim());
  TORCH_CHECK(dim == self.dim() - 1,
              "NestedTensor can only be reduced across the last dimension for now got dimension ", dim, " instead.");
  TORCH_CHECK(keepdim, "NestedTensor always requires keepdim=True for now.");
  TORCH_CHECK(!dtype, "NestedTensor does not support dtype argument for now.");
  std::vector<Tensor> parts = self.unbind();
  for (Tensor& part : parts) {
    part = part.sum(-1, true);
  }
  return at::_nested_tensor_from_tensor_list(parts);
}

Tensor sum_backward(const Tensor& grad, const Tensor& self, at::OptionalIntArrayRef, bool) {
  std::vector<Tensor> parts = grad.unbind();
  const std::vector<Tensor> inputs = self.unbind();
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i] = parts[i].expand_as(inputs[i]).contiguous();
  }
  return at::_nested_tensor_from_tensor_list(parts);
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& self, at::IntArrayRef shape, const OptionalTensor& weight,
                                              const OptionalTensor& bias, double eps) {
  TORCH_CHECK_VALUE(weight && weight->defined() && bias && bias->defined(),
                    "NestedTensor layer_norm requires weight and bias");
  TORCH_CHECK(shape.size() == 1,
              "layer_norm of a strided nested tensor on neuron is over its last dimension alone, got "
              "normalized_shape of ",
              shape.size(), " dimensions. Use layout=torch.jagged.");
  const Tensor input = self.contiguous();
  auto [out, mean, rstd] = at::native_layer_norm(rows(input, shape[0]), shape, weight, bias, eps);
  return {over_buffer(out.view(-1), input), mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& self, at::IntArrayRef shape,
                                                       const Tensor& mean, const Tensor& rstd,
                                                       const OptionalTensor& weight, const OptionalTensor& bias,
                                                       std::array<bool, 3> mask) {
  const Tensor input = self.contiguous();
  auto [d_input, d_weight, d_bias] = at::native_layer_norm_backward(rows(grad, shape[0]), rows(input, shape[0]), shape,
                                                                    mean, rstd, weight, bias, mask);
  return {mask[0] ? over_buffer(d_input.view(-1), input) : Tensor(), d_weight, d_bias};
}

// ATen's takes the memory behind masked_select's result for as long as the result, which it is not here.
Tensor from_padded(const Tensor& padded, const Tensor& sizes, bool fuse_transform_0213) {
  const Tensor source = fuse_transform_0213 ? padded.permute({0, 2, 1, 3}).flatten(2) : padded;
  const Tensor host = sizes.to(at::kCPU, at::kLong).contiguous();
  TORCH_CHECK(host.dim() == 2 && host.size(0) == source.size(0) && host.size(1) == source.dim() - 1,
              "_nested_from_padded: sizes of shape ", sizes.sizes(), " do not describe a padded tensor of shape ",
              padded.sizes(), ": one row a part, one column a dimension.");
  std::vector<Tensor> parts = source.unbind();
  const auto extents = host.accessor<int64_t, 2>();
  for (int64_t i = 0; i < host.size(0); ++i) {
    for (int64_t d = 0; d < host.size(1); ++d) {
      parts[i] = parts[i].narrow(d, 0, extents[i][d]);
    }
  }
  return at::_nested_tensor_from_tensor_list(parts);
}

Tensor from_padded_like(const Tensor& padded, const Tensor& example) {
  return from_padded(padded, example._nested_tensor_size(), false);
}

// The i-th part of a nested tensor, or the tensor beside all parts.
Tensor part_of(const Tensor& t, int64_t i) { return t.is_nested() ? t.select(0, i) : t; }

// Part by part, for the same reason.
Tensor nested_where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  TORCH_CHECK(condition.is_nested(), "condition must be nested");
  for (const Tensor* t : {&self, &other}) {
    TORCH_CHECK(
        t->is_nested() ? t->size(0) == condition.size(0) : t->dim() == 0,
        "where of nested tensors on neuron takes nested tensors of as many parts, and numbers, got a tensor of ",
        t->dim(), " dimensions. Use layout=torch.jagged.");
  }
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < condition.size(0); ++i) {
    parts.push_back(at::where(part_of(condition, i), part_of(self, i), part_of(other, i)));
  }
  return at::_nested_tensor_from_tensor_list(parts);
}

Tensor& nested_where_out(const Tensor& condition, const Tensor& self, const Tensor& other, Tensor& out) {
  return out.copy_(nested_where(condition, self, other));
}

// nn.TransformerEncoder's layer in inference: over the padded tensor with a mask of the padding.
Tensor encoder_layer(const Tensor& src, int64_t embed_dim, int64_t num_heads, const Tensor& qkv_weight,
                     const Tensor& qkv_bias, const Tensor& proj_weight, const Tensor& proj_bias, bool use_gelu,
                     bool norm_first, double eps, const Tensor& norm_weight_1, const Tensor& norm_bias_1,
                     const Tensor& norm_weight_2, const Tensor& norm_bias_2, const Tensor& ffn_weight_1,
                     const Tensor& ffn_bias_1, const Tensor& ffn_weight_2, const Tensor& ffn_bias_2,
                     const OptionalTensor& mask, std::optional<int64_t> mask_type) {
  constexpr int64_t kOfKeys = 1;
  TORCH_CHECK(!mask || !mask->defined(), "NestedTensor with mask is not supported yet");
  const Tensor padding = at::ones_like(src).to_padded_tensor(0).select(-1, 0).eq(0);
  const Tensor out = at::_transformer_encoder_layer_fwd(
      src.to_padded_tensor(0), embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first,
      eps, norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2,
      padding, kOfKeys);
  return at::_nested_from_padded(out, src._nested_tensor_size());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("sum.dim_IntList", TORCH_FN(sum));
  m.impl("_nested_sum_backward", TORCH_FN(sum_backward));
  m.impl("native_layer_norm", TORCH_FN(layer_norm));
  m.impl("native_layer_norm_backward", TORCH_FN(layer_norm_backward));
  m.impl("_nested_from_padded_and_nested_example", TORCH_FN(from_padded_like));
  m.impl("_transformer_encoder_layer_fwd", TORCH_FN(encoder_layer));
  m.impl("where.self", TORCH_FN(nested_where));
  m.impl("where.self_out", TORCH_FN(nested_where_out));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_nested_from_padded", TORCH_FN(from_padded)); }
