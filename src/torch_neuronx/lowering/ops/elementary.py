"""Elementary functions of one operand: roots, exponentials, logarithms, trigonometry, rounding, sign."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import is_integral
from torch_neuronx.lowering.ops.arithmetic import complex_divide, copy_sign, power, scaled
from torch_neuronx.lowering.promotion import apply, binary, unary
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value

Unary = Callable[[Value], Value]


def reciprocal(x: Value) -> Value:
    one = hlo.ones_like(x)
    return complex_divide(one, x) if x.dtype.is_complex else one / x


def with_signs(z: Value, re: Value | None = None, im: Value | None = None) -> Value:
    """z with the signs of its parts taken from elsewhere: which side of a branch cut -0.0 is on."""
    a, b = hlo.real(z), hlo.imag(z)
    return hlo.complex_(a if re is None else copy_sign(a, re), b if im is None else copy_sign(b, im))


def _branched(build: Unary, fix: Callable[[Value, Value], Value]) -> Unary:
    return lambda x: fix(build(x), x) if x.dtype.is_complex else build(x)


# On a branch cut the sign of a zero part decides; StableHLO's complex functions do not look at it.
sqrt = _branched(hlo.sqrt, lambda z, x: with_signs(z, im=hlo.imag(x)))
acos = _branched(hlo.acos, lambda z, x: with_signs(z, im=-hlo.imag(x)))
acosh = _branched(hlo.acosh, lambda z, x: with_signs(z, im=hlo.imag(x)))
asin = _branched(hlo.asin, lambda z, x: with_signs(z, hlo.real(x), hlo.imag(x)))
asinh = _branched(hlo.asinh, lambda z, x: with_signs(z, hlo.real(x), hlo.imag(x)))
atan = _branched(hlo.atan, lambda z, x: with_signs(z, hlo.real(x), hlo.imag(x)))
atanh = _branched(hlo.atanh, lambda z, x: with_signs(z, hlo.real(x), hlo.imag(x)))


def rsqrt(x: Value) -> Value:
    return reciprocal(sqrt(x))


def log2(x: Value) -> Value:
    return scaled(hlo.log(x), 1 / math.log(2))


def log10(x: Value) -> Value:
    return scaled(hlo.log(x), 1 / math.log(10))


def exp2(x: Value) -> Value:
    if x.dtype.is_complex:
        return hlo.exponential(scaled(x, math.log(2)))
    return hlo.power(hlo.full_like(x, 2), x)


def sigmoid(x: Value) -> Value:
    if x.dtype.is_complex:
        return complex_divide(hlo.ones_like(x), 1 + hlo.exponential(-x))
    return hlo.logistic(x)


def sinc(x: Value) -> Value:
    """sin(pi x) / (pi x), one at zero."""
    angle = scaled(x, math.pi)
    zero = hlo.eq(x, 0)
    value = hlo.sine(angle)
    if x.dtype.is_complex:
        return hlo.select(zero, 1, complex_divide(value, hlo.select(zero, 1, angle)))
    return hlo.select(zero, 1, value / angle)


FLOAT_RESULT = {
    "acos": acos,
    "acosh": acosh,
    "asin": asin,
    "asinh": asinh,
    "atan": atan,
    "atanh": atanh,
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
    "sqrt": sqrt,
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


def _keeps_integers(build: Unary) -> Unary:
    return lambda x: x if is_integral(x.dtype) else build(x)


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
    """|x|; an infinite part of a complex number wins over NaN, bool and unsigned are their own."""
    if x.dtype.is_complex:
        infinite = hlo.is_inf(hlo.real(x)) | hlo.is_inf(hlo.imag(x))
        return hlo.select(infinite, float("inf"), hlo.abs_(x))
    return hlo.abs_(x) if x.dtype.is_signed and x.dtype is not torch.bool else x


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
    if a.dtype.is_complex:
        return _complex_log_add_exp(*hlo.operands(a, b))
    high, low = hlo.maximum(a, b), hlo.minimum(a, b)
    infinite = hlo.eq(a, b) & hlo.eq(hlo.abs_(a), float("inf"))
    return hlo.select(infinite, a, high + hlo.log1p(hlo.exponential(low - high)))


def _complex_log_add_exp(a: Value, b: Value) -> Value:
    """Ordered by real part; two equal infinite real parts are added directly."""
    ordered = hlo.real(a) >= hlo.real(b)
    high, low = hlo.select(ordered, a, b), hlo.select(ordered, b, a)
    out = high + hlo.log1p(hlo.exponential(low - high))
    re = hlo.real(low)
    infinite = hlo.eq(re, hlo.real(high)) & hlo.is_inf(re)
    direct = hlo.select(re < 0.0, low, hlo.log(hlo.exponential(low) + hlo.exponential(high)))
    return hlo.select(infinite, direct, out)


def log_add_exp2(a: Value, b: Value) -> Value:
    if a.dtype.is_complex:
        return scaled(log_add_exp(scaled(a, math.log(2)), scaled(b, math.log(2))), 1 / math.log(2))
    high, low = hlo.maximum(a, b), hlo.minimum(a, b)
    infinite = hlo.eq(a, b) & hlo.eq(hlo.abs_(a), float("inf"))
    return hlo.select(infinite, a, high + hlo.log1p(exp2(low - high)) * (1 / math.log(2)))


binary("aten::logaddexp", int_to_float=True)(log_add_exp)
binary("aten::logaddexp2", int_to_float=True)(log_add_exp2)
