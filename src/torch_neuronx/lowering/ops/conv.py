"""Convolutions of 1 to 3 spatial dimensions, forward and backward, and their patch (unfold) forms.

XLA's CPU runs a convolution as an Eigen kernel only without window reversal, so kernels are
reversed beforehand; batch groups are slow but for depthwise weights, so the weight gradient of a
grouped convolution moves its groups into the features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.ops import conv_products
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value

Ints = Sequence[int]
Specs = tuple[int, int]


def _each(xs: Ints, n: int) -> list[int]:
    return list(xs) * n if len(xs) == 1 else list(xs)


def _window(
    x: Value,
    w: Value,
    out: Ints,
    *,
    stride: Ints,
    low: Ints,
    lhs_dilation: Ints,
    rhs_dilation: Ints,
    groups: int = 1,
    batch_groups: int = 1,
    lhs_spec: Specs = (0, 1),
    rhs_spec: Specs = (0, 1),
    out_spec: Specs = (0, 1),
) -> Value:
    """A convolution with `low` padding in front whose result has exactly the spatial extents `out`."""
    pads = []
    for i, size in enumerate(x.shape[2:]):
        dilated = (size - 1) * lhs_dilation[i] + 1 if size else 0
        need = (out[i] - 1) * stride[i] + (w.shape[i + 2] - 1) * rhs_dilation[i] + 1
        exact = need - dilated - low[i]
        pads.append((low[i], exact if exact >= 0 else min(0, exact + stride[i] - 1)))
    return hlo.convolution(
        x,
        w,
        stride,
        pads,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        groups=groups,
        batch_groups=batch_groups,
        lhs_spec=lhs_spec,
        rhs_spec=rhs_spec,
        out_spec=out_spec,
    )


def correlate(x: Value, w: Value, out: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Value:
    """The forward convolution: x (N, I, ...), w (O, I / groups, ...)."""
    if conv_products.pays(w.shape, w.dtype, x.shape[0], out, groups):
        return conv_products.correlate(x, w, out, stride, padding, dilation)
    ones = [1] * len(out)
    return _window(x, w, out, stride=stride, low=padding, lhs_dilation=ones, rhs_dilation=dilation, groups=groups)


def spread(g: Value, w: Value, out: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Value:
    """The adjoint of `correlate` in x, with w (O, I / groups, ...): a transposed convolution."""
    if conv_products.pays(w.shape, w.dtype, g.shape[0], g.shape[2:], groups):
        return conv_products.spread(g, w, out, stride, padding, dilation)
    n = len(out)
    spatial = list(range(3, 3 + n))
    grouped = hlo.reshape(w, (groups, w.shape[0] // groups, *w.shape[1:]))
    swapped = hlo.permute(grouped, [0, 2, 1, *spatial])
    kernel = hlo.reshape(swapped, (groups * w.shape[1], w.shape[0] // groups, *w.shape[2:]))
    kernel = hlo.reverse(kernel, [i for i in range(2, 2 + n) if kernel.shape[i] > 1])
    low = [dilation[i] * (w.shape[i + 2] - 1) - padding[i] for i in range(n)]
    ones = [1] * n
    return _window(g, kernel, out, stride=ones, low=low, lhs_dilation=stride, rhs_dilation=dilation, groups=groups)


def weight_gradient(
    x: Value, g: Value, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Value:
    """The adjoint of `correlate` in w: (O, I / groups, *kernel)."""
    channels = x.shape[1]
    if conv_products.pays((g.shape[1], channels, *kernel), g.dtype, g.shape[0], g.shape[2:], groups):
        return conv_products.weight_gradient(x, g, kernel, stride, padding, dilation)
    ones = [1] * len(kernel)
    features, batches, lhs_spec = 1, groups, (1, 0)
    if 1 < groups < channels:
        spatial = range(3, 1 + x.ndim)
        split = hlo.reshape(x, (x.shape[0], groups, channels // groups, *x.shape[2:]))
        x = hlo.permute(split, [2, 1, 0, *spatial])
        x = hlo.reshape(x, (channels // groups, -1, *split.shape[3:]))
        features, batches, lhs_spec = groups, 1, (0, 1)
    return _window(
        x,
        g,
        kernel,
        stride=dilation,
        low=padding,
        lhs_dilation=ones,
        rhs_dilation=stride,
        groups=features,
        batch_groups=batches,
        lhs_spec=lhs_spec,
        rhs_spec=(1, 0),
        out_spec=(1, 0),
    )


def _extents(
    x: Value, w: Value, stride: Ints, padding: Ints, dilation: Ints, transposed: bool, output_padding: Ints
) -> list[int]:
    out = []
    for i, size in enumerate(x.shape[2:]):
        span = dilation[i] * (w.shape[i + 2] - 1)
        if transposed:
            out.append((size - 1) * stride[i] - 2 * padding[i] + span + output_padding[i] + 1)
        else:
            out.append((size + 2 * padding[i] - span - 1) // stride[i] + 1)
    return out


@lower("aten::convolution_overrideable")
@lower("aten::convolution", bind=False)
def convolution(
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
) -> Value:
    dtype, n = input.dtype, input.ndim - 2
    stride, padding, dilation, extra = (_each(v, n) for v in (stride, padding, dilation, output_padding))
    x, w = (hlo.convert(v, compute_dtype(dtype)) for v in (input, weight))
    out = _extents(x, w, stride, padding, dilation, transposed, extra)
    channels = w.shape[1] * groups if transposed else w.shape[0]
    shape = (x.shape[0], channels, *out)
    if 0 in shape or 0 in x.shape or 0 in w.shape:
        y = hlo.full(shape, 0, x.dtype)
    else:
        y = (spread if transposed else correlate)(x, w, out, stride, padding, dilation, groups)
    if bias is not None:
        y = y + hlo.broadcast_in_dim(hlo.convert(bias, y.dtype), y.shape, [1])
    return hlo.convert(y, dtype)


@lower("aten::convolution_backward", bind=False)
def convolution_backward(
    grad_output: Value,
    input: Value,
    weight: Value,
    bias_sizes: Ints | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Value | None, Value | None, Value | None]:
    n, dtype = input.ndim - 2, input.dtype
    stride, padding, dilation = (_each(v, n) for v in (stride, padding, dilation))
    g, x, w = (hlo.convert(v, compute_dtype(dtype)) for v in (grad_output, input, weight))
    empty = 0 in g.shape or 0 in x.shape or 0 in w.shape
    geometry = (stride, padding, dilation, groups)
    if g.dtype.is_complex:
        x, w = (hlo.complex_(hlo.real(v), -hlo.imag(v)) for v in (x, w))
    grads: list[Value | None] = [None, None, None]
    if output_mask[0]:
        adjoint = correlate if transposed else spread
        grads[0] = hlo.zeros_like(x) if empty else adjoint(g, w, x.shape[2:], *geometry)
    if output_mask[1]:
        lhs, rhs = (g, x) if transposed else (x, g)
        grads[1] = hlo.zeros_like(w) if empty else weight_gradient(lhs, rhs, w.shape[2:], *geometry)
    if output_mask[2]:
        grads[2] = hlo.sum_(g, [0, *range(2, n + 2)])
    first, second, third = (None if v is None else hlo.convert(v, dtype) for v in grads)
    return first, second, third


@lower("aten::convolution_backward_overrideable")
def convolution_backward_overrideable(
    grad_output: Value,
    input: Value,
    weight: Value,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Value | None, Value | None, Value | None]:
    rest = (stride, padding, dilation, transposed, output_padding, groups, output_mask)
    return convolution_backward(grad_output, input, weight, None, *rest)


@lower("aten::_slow_conv2d_forward", "aten::slow_conv3d_forward")
def slow_conv_forward(
    self: Value, weight: Value, kernel_size: Ints, bias: Value | None, stride: Ints, padding: Ints
) -> Value:
    zeros, ones = [0] * (self.ndim - 2), [1] * (self.ndim - 2)
    return convolution(self, _full_rank(weight, self, kernel_size), bias, stride, padding, ones, False, zeros, 1)


@lower("aten::_slow_conv2d_backward.output_mask")
def slow_conv2d_backward(
    grad_output: Value,
    self: Value,
    weight: Value,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    output_mask: Sequence[bool],
) -> tuple[Value | None, Value | None, Value | None]:
    w = _full_rank(weight, self, kernel_size)
    return convolution_backward(grad_output, self, w, None, stride, padding, [1, 1], False, [0, 0], 1, output_mask)


def _full_rank(weight: Value, x: Value, kernel: Ints) -> Value:
    """slow_conv accepts its weight as a matrix too."""
    return hlo.reshape(weight, (weight.shape[0], x.shape[1], *kernel)) if weight.ndim == 2 else weight


@lower("aten::slow_conv_dilated2d", "aten::slow_conv_dilated3d")
def slow_conv_dilated(
    self: Value, weight: Value, kernel_size: Ints, bias: Value | None, stride: Ints, padding: Ints, dilation: Ints
) -> Value:
    zeros = [0] * (weight.ndim - 2)
    return _batched(self, weight, lambda x: convolution(x, weight, bias, stride, padding, dilation, False, zeros, 1))


@lower("aten::_conv_depthwise2d", "aten::conv_depthwise3d")
def conv_depthwise(
    self: Value, weight: Value, kernel_size: Ints, bias: Value | None, stride: Ints, padding: Ints, dilation: Ints
) -> Value:
    zeros, groups = [0] * (weight.ndim - 2), self.shape[-(weight.ndim - 1)]
    return _batched(
        self, weight, lambda x: convolution(x, weight, bias, stride, padding, dilation, False, zeros, groups)
    )


@lower("aten::slow_conv_transpose2d", "aten::slow_conv_transpose3d")
def slow_conv_transpose(
    self: Value,
    weight: Value,
    kernel_size: Ints,
    bias: Value | None,
    stride: Ints,
    padding: Ints,
    output_padding: Ints,
    dilation: Ints,
) -> Value:
    return _batched(
        self, weight, lambda x: convolution(x, weight, bias, stride, padding, dilation, True, output_padding, 1)
    )


def _batched(x: Value, weight: Value, run: Callable[[Value], Value]) -> Value:
    if x.ndim == weight.ndim:
        return run(x)
    return hlo.squeeze(run(hlo.unsqueeze(x, 0)), 0)


@lower("aten::conv_tbc")
def conv_tbc(self: Value, weight: Value, bias: Value, pad: int) -> Value:
    """(time, batch, channel) with weights (kernel, in, out)."""
    x, w = hlo.permute(self, [1, 2, 0]), hlo.permute(weight, [2, 1, 0])
    return hlo.permute(convolution(x, w, bias, [1], [pad], [1], False, [0], 1), [2, 0, 1])
