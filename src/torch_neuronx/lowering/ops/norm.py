"""Layer, group, RMS and weight normalisation."""

# ruff: noqa: N803  (arguments keep their names in torch's schemas)
from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.axes import axis, extent
from torch_neuronx.lowering.dtypes import compute_dtype, real_of
from torch_neuronx.lowering.ops.reduce import moments, p_norm
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value

Gradients = tuple[Value | None, Value | None, Value | None]


def saved_dtype(input: Value, *parameters: Value | None) -> torch.dtype:
    """Of the statistics kept for the backward pass: the input's, float32 beside float32 parameters.

    That is the CPU's rule; torch's meta kernels promise float32 always, or the input's always.
    """
    dtypes = [p.dtype for p in parameters if p is not None]
    return functools.reduce(torch.promote_types, dtypes, input.dtype)


def inverse_std(var: Value, eps: Scalar) -> Value:
    return 1.0 / hlo.sqrt(var + hlo.convert(hlo.as_value(eps), var.dtype))


@lower("aten::native_layer_norm")
def layer_norm(
    input: Value, normalized_shape: Sequence[int], weight: Value | None, bias: Value | None, eps: Scalar
) -> tuple[Value, Value, Value]:
    inner = compute_dtype(input.dtype)
    x = hlo.convert(input, inner)
    over = list(range(x.ndim - len(normalized_shape), x.ndim))
    var, mean = moments(x, over, 0)
    rstd = inverse_std(var, eps)
    out = (x - mean) * rstd
    if weight is not None:
        out = out * hlo.convert(weight, inner)
    if bias is not None:
        out = out + hlo.convert(bias, inner)
    saved = saved_dtype(input, weight, bias)
    return hlo.convert(out, input.dtype), hlo.convert(mean, saved), hlo.convert(rstd, saved)


def _normalised_gradient(g: Value, x_hat: Value, rstd: Value, over: Sequence[int]) -> Value:
    """Gradient of (x - mean(x)) * rstd(x) over the dims `over`."""
    n = float(extent(g, over))
    mean_g = hlo.sum_(g, over, True) / n
    mean_gx = hlo.sum_(g * x_hat, over, True) / n
    return rstd * (g - mean_g - x_hat * mean_gx)


@lower("aten::native_layer_norm_backward")
def layer_norm_backward(
    grad_out: Value,
    input: Value,
    normalized_shape: Sequence[int],
    mean: Value,
    rstd: Value,
    weight: Value | None,
    bias: Value | None,
    output_mask: Sequence[bool],
) -> Gradients:
    inner = compute_dtype(input.dtype)
    g, x, m, r = (hlo.convert(v, inner) for v in (grad_out, input, mean, rstd))
    lead = x.ndim - len(normalized_shape)
    over, batch = list(range(lead, x.ndim)), list(range(lead))
    x_hat = (x - m) * r
    grad_input = grad_weight = grad_bias = None
    if output_mask[0]:
        scaled = g if weight is None else g * hlo.convert(weight, inner)
        grad_input = hlo.convert(_normalised_gradient(scaled, x_hat, r, over), input.dtype)
    if output_mask[1] and weight is not None:
        grad_weight = hlo.convert(hlo.sum_(g * x_hat, batch), weight.dtype)
    if output_mask[2] and bias is not None:
        grad_bias = hlo.convert(hlo.sum_(g, batch), bias.dtype)
    return grad_input, grad_weight, grad_bias


def _channels(v: Value, inner: torch.dtype, c: int) -> Value:
    """A per-channel vector against (N, C, HxW)."""
    return hlo.reshape(hlo.convert(v, inner), (1, c, 1))


@lower("aten::native_group_norm")
def group_norm(
    input: Value, weight: Value | None, bias: Value | None, N: int, C: int, HxW: int, group: int, eps: Scalar
) -> tuple[Value, Value, Value]:
    inner = compute_dtype(input.dtype)
    x = hlo.reshape(hlo.convert(input, inner), (N, group, C // group * HxW))
    var, mean = moments(x, [2], 0)
    rstd = inverse_std(var, eps)
    out = hlo.reshape((x - mean) * rstd, (N, C, HxW))
    if weight is not None:
        out = out * _channels(weight, inner, C)
    if bias is not None:
        out = out + _channels(bias, inner, C)
    out = hlo.convert(hlo.reshape(out, input.shape), input.dtype)
    saved = saved_dtype(input, weight, bias)
    mean, rstd = (hlo.convert(hlo.reshape(v, (N, group)), saved) for v in (mean, rstd))
    return out, mean, rstd


@lower("aten::native_group_norm_backward")
def group_norm_backward(
    grad_out: Value,
    input: Value,
    mean: Value,
    rstd: Value,
    weight: Value | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> Gradients:
    inner = compute_dtype(input.dtype)
    grouped, flat = (N, group, C // group * HxW), (N, C, HxW)
    g = hlo.reshape(hlo.convert(grad_out, inner), flat)
    x = hlo.reshape(hlo.convert(input, inner), grouped)
    m, r = (hlo.reshape(hlo.convert(v, inner), (N, group, 1)) for v in (mean, rstd))
    x_hat = (x - m) * r
    grad_input = grad_weight = grad_bias = None
    like = input.dtype if weight is None else weight.dtype
    if output_mask[0]:
        scaled = g if weight is None else g * _channels(weight, inner, C)
        gi = _normalised_gradient(hlo.reshape(scaled, grouped), x_hat, r, [2])
        # torch's meta kernel lets a wider weight widen this gradient
        grad_input = hlo.convert(hlo.reshape(gi, input.shape), torch.promote_types(input.dtype, like))
    if output_mask[1]:
        grad_weight = hlo.convert(hlo.sum_(g * hlo.reshape(x_hat, flat), [0, 2]), like)
    if output_mask[2]:
        grad_bias = hlo.convert(hlo.sum_(g, [0, 2]), like)
    return grad_input, grad_weight, grad_bias


@lower("aten::_fused_rms_norm")
def rms_norm(
    input: Value, normalized_shape: Sequence[int], weight: Value | None, eps: Scalar | None
) -> tuple[Value, Value]:
    inner = compute_dtype(input.dtype)
    x = hlo.convert(input, inner)
    over = list(range(x.ndim - len(normalized_shape), x.ndim))
    square = hlo.sum_(x * x, over, True) / float(extent(x, over))
    rstd = inverse_std(square, torch.finfo(real_of(input.dtype)).eps if eps is None else eps)
    out = x * rstd
    if weight is not None:
        out = out * hlo.convert(weight, inner)
    return hlo.convert(out, input.dtype), rstd


@lower("aten::_fused_rms_norm_backward")
def rms_norm_backward(
    grad_out: Value,
    input: Value,
    normalized_shape: Sequence[int],
    rstd: Value,
    weight: Value | None,
    output_mask: Sequence[bool],
) -> tuple[Value | None, Value | None]:
    inner = compute_dtype(input.dtype)
    g, x, r = (hlo.convert(v, inner) for v in (grad_out, input, rstd))
    lead = x.ndim - len(normalized_shape)
    over = list(range(lead, x.ndim))
    x_hat = x * r
    grad_input = grad_weight = None
    if output_mask[0]:
        scaled = g if weight is None else g * hlo.convert(weight, inner)
        along = hlo.sum_(scaled * x_hat, over, True) / float(extent(x, over))
        grad_input = hlo.convert(r * (scaled - x_hat * along), input.dtype)
    if output_mask[1] and weight is not None:
        # torch's meta kernel gives this gradient the input's dtype
        grad_weight = hlo.convert(hlo.sum_(g * x_hat, list(range(lead))), input.dtype)
    return grad_input, grad_weight


def _norm_except(v: Value, dim: int) -> Value:
    over = [d for d in range(v.ndim) if d != dim]
    return p_norm(v, 2, over, True)


@lower("aten::_weight_norm_interface")
def weight_norm(v: Value, g: Value, dim: int = 0) -> tuple[Value, Value]:
    inner = compute_dtype(v.dtype)
    x = hlo.convert(v, inner)
    norms = _norm_except(x, axis(dim, v.ndim))
    return hlo.convert(x * (hlo.convert(g, inner) / norms), v.dtype), hlo.convert(norms, inner)


@lower("aten::_weight_norm_interface_backward")
def weight_norm_backward(
    grad_w: Value, saved_v: Value, saved_g: Value, saved_norms: Value, dim: int
) -> tuple[Value, Value]:
    inner = compute_dtype(saved_v.dtype)
    gw, v, g, norms = (hlo.convert(t, inner) for t in (grad_w, saved_v, saved_g, saved_norms))
    over = [d for d in range(v.ndim) if d != axis(dim, v.ndim)]
    along = hlo.sum_(gw * v, over, True)
    grad_v = (g / norms) * (gw - v * (along / (norms * norms)))
    return hlo.convert(grad_v, saved_v.dtype), hlo.convert(along / norms, saved_g.dtype)


@lower("aten::renorm", attributes=["p"])
def renorm(self: Value, p: float, dim: int, maxnorm: Scalar) -> Value:
    inner = compute_dtype(self.dtype)
    x = hlo.convert(self, inner)
    over = [d for d in range(x.ndim) if d != axis(dim, x.ndim)]
    norms = p_norm(hlo.abs_(x), float(p), over, True)
    limit = hlo.convert(hlo.as_value(maxnorm), norms.dtype)
    factor = hlo.select(hlo.gt(norms, limit), limit / (norms + 1e-7), 1.0)
    return hlo.convert(x * hlo.convert(factor, inner), self.dtype)
