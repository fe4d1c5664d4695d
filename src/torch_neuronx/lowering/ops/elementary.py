"""Elementary functions of one operand: roots, exponentials, logarithms, trigonometry, rounding, sign."""

from __future__ import annotations

import math

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import is_integral
from torch_neuronx.lowering.ops.arithmetic import complex_divide, copy_sign
from torch_neuronx.lowering.promotion import apply, binary, unary
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value


def reciprocal(x: Value) -> Value:
    one = hlo.ones_like(x)
    return complex_divide(one, x) if x.dtype.is_complex else one / x


def rsqrt(x: Value) -> Value:
    return reciprocal(hlo.sqrt(x))


def log2(x: Value) -> Value:
    return hlo.log(x) * (1 / math.log(2))


def log10(x: Value) -> Value:
    return hlo.log(x) * (1 / math.log(10))


def exp2(x: Value) -> Value:
    return hlo.power(hlo.full_like(x, 2), x)


def sigmoid(x: Value) -> Value:
    if x.dtype.is_complex:
        return complex_divide(hlo.ones_like(x), 1 + hlo.exponential(-x))
    return hlo.logistic(x)


def sinc(x: Value) -> Value:
    """sin(pi x) / (pi x), one at zero."""
    scaled = x * math.pi
    zero = hlo.eq(x, 0)
    value = hlo.sine(scaled)
    if x.dtype.is_complex:
        return hlo.select(zero, 1, complex_divide(value, hlo.select(zero, 1, scaled)))
    return hlo.select(zero, 1, value / scaled)


FLOAT_RESULT = {
    "acos": hlo.acos,
    "acosh": hlo.acosh,
    "asin": hlo.asin,
    "asinh": hlo.asinh,
    "atan": hlo.atan,
    "atanh": hlo.atanh,
    "cos": hlo.cosine,
    "cosh": hlo.cosh,
    "exp": hlo.exponential,
    "exp2": exp2,
    "expm1": hlo.expm1,
    "log": hlo.log,
    "log10": log10,
    "log1p": hlo.log1p,
    "log2": log2,
    "reciprocal": reciprocal,
    "rsqrt": rsqrt,
    "sin": hlo.sine,
    "sinh": hlo.sinh,
    "sqrt": hlo.sqrt,
    "tan": hlo.tan,
    "tanh": hlo.tanh,
}
for _name, _build in FLOAT_RESULT.items():
    unary(f"aten::{_name}", f"prims::{_name}", int_to_float=True)(_build)
unary("aten::sigmoid", int_to_float=True)(sigmoid)
unary("aten::sinc", int_to_float=True)(sinc)
unary("aten::deg2rad", int_to_float=True)(lambda x: x * (math.pi / 180))
unary("aten::rad2deg", int_to_float=True)(lambda x: x * (180 / math.pi))
unary("prims::cbrt")(hlo.cbrt)


def _keeps_integers(build: object) -> object:
    return lambda x: x if is_integral(x.dtype) else build(x)  # type: ignore[operator]


unary("aten::ceil", "prims::ceil")(_keeps_integers(hlo.ceil))
unary("aten::floor", "prims::floor")(_keeps_integers(hlo.floor))
unary("aten::round", "prims::round")(_keeps_integers(hlo.round_even))
unary("aten::trunc", "prims::trunc")(_keeps_integers(hlo.trunc))
unary("aten::frac")(lambda x: x - hlo.trunc(x))


@lower("aten::round.decimals", pointwise=True)
def round_decimals(self: Value, *, decimals: int) -> Value:
    if is_integral(self.dtype):
        return self
    ten = 10.0 ** abs(decimals)

    def build(x: Value) -> Value:
        if decimals == 0:
            return hlo.round_even(x)
        return hlo.round_even(x * ten) / ten if decimals > 0 else hlo.round_even(x / ten) * ten

    return apply(build, self)


def absolute(x: Value) -> Value:
    """|x|; complex goes through hypot, bool and unsigned are their own."""
    if x.dtype is torch.bool or not (x.dtype.is_signed or x.dtype.is_complex):
        return x
    return hlo.abs_(x)


def sign(x: Value) -> Value:
    """-1, 0 or 1; NaN counts as zero."""
    if x.dtype is torch.bool:
        return x
    if not x.dtype.is_signed:
        return hlo.minimum(x, 1)
    if is_integral(x.dtype):
        return hlo.sign(x)
    return hlo.convert(x > 0, x.dtype) - hlo.convert(x < 0, x.dtype)


def sgn(x: Value) -> Value:
    if not x.dtype.is_complex:
        return sign(x)
    size = hlo.abs_(x)
    zero = hlo.eq(size, 0)
    safe = hlo.select(zero, 1, size)
    unit = hlo.complex_(hlo.real(x) / safe, hlo.imag(x) / safe)
    return hlo.select(zero, 0, unit)


unary("aten::neg", "prims::neg")(hlo.negate)
unary("aten::abs", "prims::abs")(absolute)
unary("aten::sign", "prims::sign")(sign)
unary("aten::sgn")(sgn)
unary("aten::positive")(lambda x: x)
binary("aten::atan2", "prims::atan2", int_to_float=True)(hlo.atan2)
binary("aten::copysign.Tensor", "aten::copysign.Scalar", int_to_float=True)(copy_sign)


@lower("aten::nextafter", "prims::nextafter", pointwise=True)
def next_after(self: Value, other: Value) -> Value:
    return hlo.next_after(*hlo.operands(self, other))


@lower("aten::ldexp.Tensor", pointwise=True)
def ldexp(self: Value, other: Value) -> Value:
    """self * 2 ** other with torch's promotion (2 is a wrapped number)."""
    from torch_neuronx.lowering.ops.arithmetic import power

    scale = apply(power, 2.0, other)
    return apply(hlo.multiply, self, scale, opmath=True)


@lower("aten::frexp.Tensor", "prims::frexp", pointwise=True)
def frexp(self: Value) -> tuple[Value, Value]:
    """Mantissa in [0.5, 1) and exponent, from the bits of the wide type."""
    dtype = self.dtype
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    bits, width, bias = (torch.int64, 52, 1022) if wide is torch.float64 else (torch.int32, 23, 126)
    x = hlo.convert(self, wide)
    special = hlo.not_(hlo.is_finite(x)) | hlo.eq(x, 0.0)
    raw = hlo.bitcast(x, bits)
    mask = ((1 << (11 if wide is torch.float64 else 8)) - 1) << width
    exponent = hlo.shift_right_logical(raw & mask, width) - bias
    mantissa = hlo.bitcast((raw & ~mask) | (bias << width), wide)
    mantissa = hlo.select(special, x, mantissa)
    exponent = hlo.select(special, 0, exponent)
    return hlo.convert(mantissa, dtype), hlo.convert(exponent, torch.int32)


def log_add_exp(a: Value, b: Value) -> Value:
    high, low = hlo.maximum(a, b), hlo.minimum(a, b)
    infinite = hlo.eq(a, b) & hlo.eq(hlo.abs_(a), float("inf"))
    return hlo.select(infinite, a, high + hlo.log1p(hlo.exponential(low - high)))


def log_add_exp2(a: Value, b: Value) -> Value:
    high, low = hlo.maximum(a, b), hlo.minimum(a, b)
    infinite = hlo.eq(a, b) & hlo.eq(hlo.abs_(a), float("inf"))
    return hlo.select(infinite, a, high + hlo.log1p(exp2(low - high)) * (1 / math.log(2)))


binary("aten::logaddexp", int_to_float=True)(log_add_exp)
binary("aten::logaddexp2", int_to_float=True)(log_add_exp2)
