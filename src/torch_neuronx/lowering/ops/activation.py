"""Activation functions and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import HALVES
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.ops.elementary import sigmoid
from torch_neuronx.lowering.promotion import apply, unary
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value

SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def relu(x: Value) -> Value:
    """Keeps NaN and -0.0, as torch does."""
    return hlo.select(x < 0, 0, x)


def softplus_one(x: Value) -> Value:
    """log(1 + exp(x)) without overflow."""
    return hlo.maximum(x, 0.0) + hlo.log1p(hlo.exponential(-hlo.abs_(x)))


def hard_sigmoid(x: Value) -> Value:
    return hlo.clamp(0.0, x + 3.0, 6.0) / 6.0


unary("aten::relu")(relu)
unary("aten::silu")(lambda x: x * sigmoid(x) if x.dtype.is_complex else x / (1.0 + hlo.exponential(-x)))
unary("aten::mish")(lambda x: x * hlo.tanh(softplus_one(x)))
unary("aten::hardsigmoid")(hard_sigmoid)
unary("aten::hardswish")(lambda x: x * hlo.clamp(0.0, x + 3.0, 6.0) / 6.0)
unary("aten::relu6")(lambda x: hlo.clamp(0, x, 6))


def _grad(
    *names: str, steps_in: Collection[torch.dtype] = ()
) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Rows for gradients `op(grad, x)`."""

    def register(build: Callable[..., Value]) -> Callable[..., Value]:
        @lower(*names, pointwise=True)
        def emit(grad_output: Value, self: Value) -> Value:
            return apply(build, grad_output, self, steps_in=steps_in)

        return build

    return register


@_grad("aten::silu_backward")
def silu_backward(g: Value, x: Value) -> Value:
    s = sigmoid(x)
    return g * s * (1 + x * (1 - s))


@_grad("aten::mish_backward")
def mish_backward(g: Value, x: Value) -> Value:
    t = hlo.tanh(softplus_one(x))
    return g * (t + x * sigmoid(x) * (1.0 - t * t))


@_grad("aten::hardsigmoid_backward")
def hardsigmoid_backward(g: Value, x: Value) -> Value:
    return hlo.select((x > -3.0) & (x < 3.0), g / 6.0, 0.0)


@_grad("aten::hardswish_backward")
def hardswish_backward(g: Value, x: Value) -> Value:
    inner = hlo.select(x < 3.0, g * (x / 3.0 + 0.5), g)
    return hlo.select(x <= -3.0, 0.0, inner)


@_grad("aten::sigmoid_backward", steps_in=(torch.float16,))
def sigmoid_backward(g: Value, y: Value) -> Value:
    y = hlo.complex_(hlo.real(y), -hlo.imag(y)) if y.dtype.is_complex else y
    return g * (1 - y) * y


@_grad("aten::tanh_backward")
def tanh_backward(g: Value, y: Value) -> Value:
    y = hlo.complex_(hlo.real(y), -hlo.imag(y)) if y.dtype.is_complex else y
    return g * (1 - y * y)


@lower("aten::threshold_backward", pointwise=True)
def threshold_backward(grad_output: Value, self: Value, threshold: Scalar) -> Value:
    return apply(lambda g, x, t: hlo.select(x <= t, 0, g), grad_output, self, scalars=[threshold])


@lower("aten::threshold", pointwise=True)
def threshold(self: Value, threshold: Scalar, value: Scalar) -> Value:
    return apply(lambda x, t, v: hlo.select(x <= t, v, x), self, scalars=[threshold, value])


@lower("aten::leaky_relu", pointwise=True)
def leaky_relu(self: Value, negative_slope: Scalar = 0.01) -> Value:
    return apply(lambda x, s: hlo.select(x > 0, x, x * s), self, scalars=[negative_slope])


@lower("aten::leaky_relu_backward", pointwise=True)
def leaky_relu_backward(grad_output: Value, self: Value, negative_slope: Scalar, self_is_result: bool) -> Value:
    return apply(lambda g, x, s: hlo.select(x > 0, g, g * s), grad_output, self, scalars=[negative_slope])


@lower("aten::_prelu_kernel", pointwise=True)
def prelu_kernel(self: Value, weight: Value) -> Value:
    return apply(lambda x, w: hlo.select(x > 0, x, x * w), self, weight)


@lower("aten::_prelu_kernel_backward", pointwise=True)
def prelu_kernel_backward(grad_output: Value, self: Value, weight: Value) -> tuple[Value, Value]:
    def to_input(g: Value, x: Value, w: Value) -> Value:
        return hlo.select(x > 0, g, g * w)

    def to_weight(g: Value, x: Value) -> Value:
        return hlo.select(x > 0, 0, g * x)

    return apply(to_input, grad_output, self, weight), apply(to_weight, grad_output, self)


@lower("aten::elu", pointwise=True)
def elu(self: Value, alpha: Scalar = 1, scale: Scalar = 1, input_scale: Scalar = 1) -> Value:
    def build(x: Value, a: Value, s: Value, i: Value) -> Value:
        return hlo.select(x < 0, hlo.expm1(x * i) * a * s, x * s)

    return apply(build, self, scalars=[alpha, scale, input_scale])


@lower("aten::elu_backward", pointwise=True)
def elu_backward(
    grad_output: Value, alpha: Scalar, scale: Scalar, input_scale: Scalar, is_result: bool, self_or_result: Value
) -> Value:
    def build(g: Value, x: Value, a: Value, s: Value, i: Value) -> Value:
        if is_result:
            return hlo.select(x <= 0, g * i * (x + a * s), g * s)
        return hlo.select(x <= 0, g * i * a * s * hlo.exponential(x * i), g * s)

    return apply(build, grad_output, self_or_result, scalars=[alpha, scale, input_scale])


@lower("aten::selu", pointwise=True)
def selu(self: Value) -> Value:
    return elu(self, SELU_ALPHA, SELU_SCALE, 1)


@lower("aten::celu", pointwise=True)
def celu(self: Value, alpha: Scalar = 1.0) -> Value:
    def build(x: Value, a: Value) -> Value:
        return hlo.select(x < 0, hlo.expm1(x / a) * a, x)

    return apply(build, self, scalars=[alpha])


_TANH_SCALE, _TANH_CUBE = math.sqrt(2 / math.pi), 0.044715


@lower("aten::gelu", pointwise=True)
def gelu(self: Value, *, approximate: str = "none") -> Value:
    def exact(x: Value) -> Value:
        return x * 0.5 * (1.0 + hlo.erf(x * math.sqrt(0.5)))

    def by_tanh(x: Value) -> Value:
        return 0.5 * x * (1.0 + hlo.tanh(_TANH_SCALE * (x + _TANH_CUBE * x * x * x)))

    return apply(by_tanh if approximate == "tanh" else exact, self)


@lower("aten::gelu_backward", pointwise=True)
def gelu_backward(grad_output: Value, self: Value, *, approximate: str = "none") -> Value:
    def exact(g: Value, x: Value) -> Value:
        cdf = 0.5 * (1.0 + hlo.erf(x * math.sqrt(0.5)))
        pdf = hlo.exponential(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
        return g * (cdf + x * pdf)

    def by_tanh(g: Value, x: Value) -> Value:
        t = hlo.tanh(_TANH_SCALE * (x + _TANH_CUBE * x * x * x))
        slope = (1.0 - t * t) * _TANH_SCALE * (1.0 + 3 * _TANH_CUBE * x * x)
        return g * (0.5 * (1.0 + t) + 0.5 * x * slope)

    return apply(by_tanh if approximate == "tanh" else exact, grad_output, self)


@lower("aten::hardtanh", pointwise=True)
def hardtanh(self: Value, min_val: Scalar = -1, max_val: Scalar = 1) -> Value:
    if self.dtype is torch.uint8:
        for limit in (min_val, max_val):
            ok = hlo.ge(hlo.convert(hlo.as_value(limit), torch.float64), 0.0)
            require(ok, "RuntimeError", "cannot do hardtanh on an unsigned type with negative limits")
    return apply(lambda x, low, high: hlo.clamp(low, x, high), self, scalars=[min_val, max_val])


@lower("aten::hardtanh_backward", pointwise=True)
def hardtanh_backward(grad_output: Value, self: Value, min_val: Scalar, max_val: Scalar) -> Value:
    def build(g: Value, x: Value, low: Value, high: Value) -> Value:
        return hlo.select((x <= low) | (x >= high), 0, g)

    return apply(build, grad_output, self, scalars=[min_val, max_val])


@lower("aten::hardshrink", pointwise=True)
def hardshrink(self: Value, lambd: Scalar = 0.5) -> Value:
    return apply(lambda x, t: hlo.select((x >= -t) & (x <= t), 0, x), self, scalars=[lambd])


@lower("aten::hardshrink_backward", "aten::softshrink_backward", pointwise=True)
def shrink_backward(grad_out: Value, self: Value, lambd: Scalar) -> Value:
    def build(g: Value, x: Value, t: Value) -> Value:
        return hlo.select((x >= -t) & (x <= t), 0, g)

    return apply(build, grad_out, self, scalars=[lambd])


@lower("aten::softshrink", pointwise=True)
def softshrink(self: Value, lambd: Scalar = 0.5) -> Value:
    def build(x: Value, t: Value) -> Value:
        return hlo.select(x > t, x - t, hlo.select(x < -t, x + t, x * 0))

    return apply(build, self, scalars=[lambd])


@lower("aten::softplus", pointwise=True)
def softplus(self: Value, beta: Scalar = 1, threshold: Scalar = 20) -> Value:
    def build(x: Value, b: Value, t: Value) -> Value:
        return hlo.select(x * b > t, x, hlo.log1p(hlo.exponential(x * b)) / b)

    return apply(build, self, scalars=[beta, threshold])


@lower("aten::softplus_backward", pointwise=True)
def softplus_backward(grad_output: Value, self: Value, beta: Scalar, threshold: Scalar) -> Value:
    def build(g: Value, x: Value, b: Value, t: Value) -> Value:
        return hlo.select(x * b > t, g, g * sigmoid(x * b))

    return apply(build, grad_output, self, scalars=[beta, threshold])


@lower("aten::log_sigmoid_forward", pointwise=True)
def log_sigmoid_forward(self: Value) -> tuple[Value, Value]:
    """(result, buffer exp(-|x|)), as the CPU kernel returns them."""

    def buffer(x: Value) -> Value:
        return hlo.exponential(-hlo.abs_(x))

    def build(x: Value) -> Value:
        return hlo.minimum(x, 0.0) - hlo.log1p(buffer(x))

    return apply(build, self), apply(buffer, self)


@lower("aten::log_sigmoid_backward", pointwise=True)
def log_sigmoid_backward(grad_output: Value, self: Value, buffer: Value) -> Value:
    """The buffer is recomputed: other kernels leave it empty."""

    def build(g: Value, x: Value) -> Value:
        return g * sigmoid(-x)

    return apply(build, grad_output, self)


def _halves(x: Value, dim: int) -> tuple[Value, Value]:
    half = x.shape[dim] // 2
    return hlo.slice_dim(x, dim, 0, half), hlo.slice_dim(x, dim, half, 2 * half)


@lower("aten::glu")
def glu(self: Value, dim: int = -1) -> Value:
    return apply(lambda a, b: a * sigmoid(b), *_halves(self, dim))


@lower("aten::glu_backward")
def glu_backward(grad_output: Value, self: Value, dim: int) -> Value:
    def build(g: Value, x: Value) -> Value:
        a, b = _halves(x, dim)
        s = sigmoid(b)
        return hlo.concatenate([g * s, g * a * s * (1.0 - s)], dim)

    return apply(build, grad_output, self)


@lower("aten::glu_jvp")
def glu_jvp(glu: Value, x: Value, dx: Value, dim: int) -> Value:
    _, b = _halves(x, dim)
    da, db = _halves(dx, dim)
    return apply(lambda y, b, da, db: da * sigmoid(b) + db * (y - sigmoid(b) * y), glu, b, da, db)


@lower("aten::glu_backward_jvp")
def glu_backward_jvp(grad_x: Value, grad_glu: Value, x: Value, dgrad_glu: Value, dx: Value, dim: int) -> Value:
    a, b = _halves(x, dim)
    da, db = _halves(dx, dim)
    s = sigmoid(b)
    ds = s * (1.0 - s) * db
    first = dgrad_glu * s + grad_glu * ds
    slope = s * (1.0 - s)
    dslope = ds * (1.0 - 2.0 * s)
    second = dgrad_glu * a * slope + grad_glu * (da * slope + a * dslope)
    return hlo.concatenate([first, second], dim)


def _logit(x: Value, eps: Scalar | None) -> Value:
    if eps is not None:
        low = hlo.convert(hlo.as_value(eps), x.dtype)
        x = hlo.select(x < low, low, hlo.select(x > 1.0 - low, 1.0 - low, x))
    return hlo.log(x / (1.0 - x))


@lower("aten::logit", pointwise=True)
def logit(self: Value, eps: Scalar | None = None) -> Value:
    return apply(lambda x: _logit(x, eps), self, int_to_float=True, steps_in=HALVES)


@lower("aten::logit_backward", pointwise=True)
def logit_backward(grad_output: Value, self: Value, eps: Scalar | None = None) -> Value:
    def build(g: Value, x: Value) -> Value:
        inside = g / (x * (1.0 - x))
        if eps is None:
            return hlo.select((x < 0.0) | (x > 1.0), float("nan"), inside)
        low = hlo.convert(hlo.as_value(eps), x.dtype)
        return hlo.select((x < low) | (x > 1.0 - low), 0.0, inside)

    return apply(build, grad_output, self, steps_in=HALVES)


@lower("aten::rrelu_with_noise_backward", pointwise=True)
def rrelu_with_noise_backward(
    grad_output: Value,
    self: Value,
    noise: Value,
    lower: Scalar,
    upper: Scalar,
    training: bool,
    self_is_result: bool,
) -> Value:
    if training:
        return apply(hlo.multiply, noise, grad_output)
    slope = [lower, upper]

    def build(g: Value, x: Value, low: Value, high: Value) -> Value:
        return hlo.select(x > 0, g, g * ((low + high) / 2))

    return apply(build, grad_output, self, scalars=slope)
