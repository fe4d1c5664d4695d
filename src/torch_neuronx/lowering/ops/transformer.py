"""The inference fast paths of nn.MultiheadAttention and nn.TransformerEncoderLayer, and their parts."""

from __future__ import annotations

import math

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.axes import axis
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.ops.softmax import softmax_of
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value

SOURCE_MASK, PADDING_MASK, FULL_MASK = 0, 1, 2


def _linear(x: Value, weight: Value, bias: Value | None) -> Value:
    """x @ weight.T + bias in the compute dtype."""
    out = hlo.dot_general(x, hlo.convert(weight, x.dtype), ([x.ndim - 1], [1]))
    return out if bias is None else out + hlo.convert(bias, out.dtype)


def _masked(scores: Value, mask: Value | None, mask_type: int | None) -> Value:
    """Softmax over the last dimension of (batch, heads, L, S) where `mask` is False."""
    allowed = None
    if mask is not None:
        hidden = hlo.convert(mask, torch.bool)
        if mask_type == PADDING_MASK and hidden.ndim == 2:
            hidden = hlo.reshape(hidden, (hidden.shape[0], 1, 1, hidden.shape[1]))
        allowed = hlo.not_(hlo.broadcast_to(hidden, scores.shape))
        scores = hlo.select(allowed, scores, float("-inf"))
    peak = hlo.reduce_max(scores, 3, keepdim=True)
    weights = hlo.exponential(scores - peak)
    return hlo.divide(weights, hlo.sum_(weights, 3, keepdim=True))


def _attention(
    query: Value,
    key: Value,
    value: Value,
    heads: int,
    qkv: tuple[Value, Value],
    projection: tuple[Value, Value],
    mask: Value | None,
    mask_type: int | None,
) -> tuple[Value, Value]:
    """(projected output, weights of every head), both in the compute dtype."""
    embed = query.shape[2]
    depth = embed // heads

    def project(x: Value, part: int) -> Value:
        weight, bias = (hlo.slice_dim(w, 0, part * embed, (part + 1) * embed) for w in qkv)
        y = _linear(x, weight, bias)
        return hlo.permute(hlo.reshape(y, (*x.shape[:2], heads, depth)), [0, 2, 1, 3])

    q, k, v = (project(x, i) for i, x in enumerate((query, key, value)))
    q = q * (1 / math.sqrt(depth))
    scores = hlo.dot_general(q, k, ([3], [3]), ([0, 1], [0, 1]))
    weights = _masked(scores, mask, mask_type)
    context = hlo.dot_general(weights, v, ([3], [2]), ([0, 1], [0, 1]))
    merged = hlo.reshape(hlo.permute(context, [0, 2, 1, 3]), query.shape)
    return _linear(merged, *projection), weights


@lower("aten::_native_multi_head_attention")
def native_multi_head_attention(
    query: Value,
    key: Value,
    value: Value,
    embed_dim: int,
    num_head: int,
    qkv_weight: Value,
    qkv_bias: Value,
    proj_weight: Value,
    proj_bias: Value,
    mask: Value | None,
    need_weights: bool,
    average_attn_weights: bool,
    mask_type: int | None,
) -> tuple[Value, Value | None]:
    dtype = query.dtype
    q, k, v = (hlo.convert(x, compute_dtype(dtype)) for x in (query, key, value))
    out, weights = _attention(q, k, v, num_head, (qkv_weight, qkv_bias), (proj_weight, proj_bias), mask, mask_type)
    out = hlo.convert(out, dtype)
    if not need_weights:
        return out, None
    if average_attn_weights:
        weights = hlo.divide(hlo.sum_(weights, 1), num_head)
    return out, hlo.convert(weights, dtype)


def _layer_norm(x: Value, weight: Value, bias: Value, eps: Scalar) -> Value:
    size = x.shape[-1]
    mean = hlo.divide(hlo.sum_(x, -1, keepdim=True), size)
    centred = x - mean
    variance = hlo.divide(hlo.sum_(centred * centred, -1, keepdim=True), size)
    rstd = hlo.rsqrt(variance + hlo.convert(hlo.as_value(eps), x.dtype))
    return centred * rstd * hlo.convert(weight, x.dtype) + hlo.convert(bias, x.dtype)


@lower("aten::_transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    src: Value,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Value,
    qkv_bias: Value,
    proj_weight: Value,
    proj_bias: Value,
    use_gelu: bool,
    norm_first: bool,
    eps: Scalar,
    norm_weight_1: Value,
    norm_bias_1: Value,
    norm_weight_2: Value,
    norm_bias_2: Value,
    ffn_weight_1: Value,
    ffn_bias_1: Value,
    ffn_weight_2: Value,
    ffn_bias_2: Value,
    mask: Value | None,
    mask_type: int | None,
) -> Value:
    x = hlo.convert(src, compute_dtype(src.dtype))
    first, second = (norm_weight_1, norm_bias_1, eps), (norm_weight_2, norm_bias_2, eps)
    y = _layer_norm(x, *first) if norm_first else x
    qkv, projection = (qkv_weight, qkv_bias), (proj_weight, proj_bias)
    x = x + _attention(y, y, y, num_heads, qkv, projection, mask, mask_type)[0]
    x = x if norm_first else _layer_norm(x, *first)
    hidden = _linear(_layer_norm(x, *second) if norm_first else x, ffn_weight_1, ffn_bias_1)
    hidden = _gelu(hidden) if use_gelu else hlo.maximum(hidden, 0)
    x = x + _linear(hidden, ffn_weight_2, ffn_bias_2)
    return hlo.convert(x if norm_first else _layer_norm(x, *second), src.dtype)


def _gelu(x: Value) -> Value:
    return x * 0.5 * (hlo.erf(x * math.sqrt(0.5)) + 1)


def _mask_over(mask: Value, scores: Value, mask_type: int | None) -> Value:
    """The mask in the scores' shape: (L, S) for all heads, (batch, S) of padding, or one for each score."""
    if mask_type == PADDING_MASK and mask.ndim == 2:
        mask = hlo.reshape(mask, (mask.shape[0], *[1] * (scores.ndim - 2), mask.shape[1]))
    return hlo.broadcast_to(mask, scores.shape)


@lower("aten::_masked_softmax")
def masked_softmax(self: Value, mask: Value, dim: int | None, mask_type: int | None) -> Value:
    """Softmax over what `mask` leaves (False); a slice that is masked as a whole is NaN, as on the CPU."""
    hidden = _mask_over(mask, self, mask_type)
    x = hlo.select(hidden, float("-inf"), hlo.convert(self, compute_dtype(self.dtype)))
    along = self.ndim - 1 if dim is None else axis(dim, self.ndim)
    return hlo.convert(hlo.select(hidden & _some_left(hidden, along), 0.0, softmax_of(x, along)), self.dtype)


def _some_left(hidden: Value, dim: int) -> Value:
    return hlo.broadcast_to(hlo.not_(hlo.all_(hidden, dim, True)), hidden.shape)


@lower("aten::_masked_softmax_backward")
def masked_softmax_backward(grad_output: Value, output: Value, mask: Value, dim: int | None) -> Value:
    g, y = (hlo.convert(v, compute_dtype(v.dtype)) for v in (grad_output, output))
    hidden = _mask_over(mask, output, None)
    along = output.ndim - 1 if dim is None else axis(dim, output.ndim)
    weighted = hlo.select(hidden, 0.0, g * y)
    out = weighted - y * hlo.sum_(weighted, along, True)
    return hlo.convert(hlo.select(hidden, 0.0, out), grad_output.dtype)


@lower("aten::_transform_bias_rescale_qkv")
def transform_bias_rescale_qkv(qkv: Value, qkv_bias: Value, num_heads: int) -> tuple[Value, Value, Value]:
    """(batch, T, 3 D) -> three of (batch, heads, T, D / heads), the first over sqrt(D / heads)."""
    batch, length, width = qkv.shape
    depth = width // 3 // num_heads
    inner = compute_dtype(qkv.dtype)
    x = hlo.convert(qkv, inner) + hlo.convert(qkv_bias, inner)
    split = hlo.permute(hlo.reshape(x, (batch, length, 3, num_heads, depth)), [2, 0, 3, 1, 4])
    q, k, v = (hlo.squeeze(hlo.slice_dim(split, 0, i, i + 1), 0) for i in range(3))
    q = hlo.divide(q, math.sqrt(depth))
    return hlo.convert(q, qkv.dtype), hlo.convert(k, qkv.dtype), hlo.convert(v, qkv.dtype)
