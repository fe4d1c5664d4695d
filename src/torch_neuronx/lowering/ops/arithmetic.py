"""Arithmetic of two and three operands: add, sub, mul, div and its roundings, remainder, pow, lerp."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import _disable_current_modes

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import HALVES, REDUCED, is_integral
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.promotion import apply, binary, promote, result_type
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import NUMBER, Scalar, Value


def _scaled(x: Value, alpha: Scalar) -> Value:
    """x * alpha in x's dtype; nothing to do for the default alpha."""
    if isinstance(alpha, NUMBER) and alpha == 1:
        return x
    return x * hlo.convert(hlo.as_value(alpha), x.dtype)


def _alpha(alpha: Scalar, *xs: Scalar) -> Scalar:
    """As torch's kernels take it: in the result's dtype, even where they compute in a wider one."""
    dtype = result_type(*xs)
    return hlo.convert(hlo.as_value(alpha), dtype) if dtype in HALVES and isinstance(alpha, Value) else alpha


@lower("aten::add.Tensor", "aten::add.Scalar", pointwise=True)
def add(self: Scalar, other: Scalar, alpha: Scalar = 1) -> Value:
    alpha = _alpha(alpha, self, other)
    return apply(lambda a, b: a + _scaled(b, alpha), self, other, stepwise=True)


@lower("aten::sub.Tensor", "aten::sub.Scalar", pointwise=True)
def sub(self: Scalar, other: Scalar, alpha: Scalar = 1) -> Value:
    alpha = _alpha(alpha, self, other)
    return apply(lambda a, b: a - _scaled(b, alpha), self, other, stepwise=True)


@lower("aten::rsub.Tensor", "aten::rsub.Scalar", pointwise=True)
def rsub(self: Scalar, other: Scalar, alpha: Scalar = 1) -> Value:
    alpha = _alpha(alpha, self, other)
    return apply(lambda a, b: b - _scaled(a, alpha), self, other, stepwise=True)


@lower("aten::_add_relu.Tensor", "aten::_add_relu.Scalar", pointwise=True)
def add_relu(self: Scalar, other: Scalar, alpha: Scalar = 1) -> Value:
    dtype = result_type(self, other)
    top = torch.finfo(dtype).max if dtype.is_floating_point else torch.iinfo(dtype).max

    def build(a: Value, b: Value) -> Value:
        return hlo.clamp(0, a + _scaled(b, alpha), top)

    return apply(build, self, other)


binary("aten::mul.Tensor", "aten::mul.Scalar", "prims::mul", opmath=True)(hlo.multiply)
binary("prims::add")(hlo.add)
binary("prims::sub")(hlo.subtract)


def complex_divide(a: Value, b: Value) -> Value:
    """Smith's algorithm, as numpy and torch divide: no overflow in |b|^2, zero for an infinite divisor."""
    ar, ai, br, bi = hlo.real(a), hlo.imag(a), hlo.real(b), hlo.imag(b)
    wide = hlo.abs_(br) >= hlo.abs_(bi)
    big, small = hlo.select(wide, br, bi), hlo.select(wide, bi, br)
    ratio = small / big
    scale = 1.0 / (big + small * ratio)
    re = hlo.select(wide, ar + ai * ratio, ar * ratio + ai) * scale
    im = hlo.select(wide, ai - ar * ratio, ai * ratio - ar) * scale
    by_zero = hlo.eq(big, 0.0) & hlo.eq(small, 0.0)
    zero = hlo.zeros_like(big)
    return hlo.complex_(hlo.select(by_zero, ar / zero, re), hlo.select(by_zero, ai / zero, im))


def scaled(x: Value, factor: float) -> Value:
    """x * a real number, part by part for complex x: infinities do not meet a zero."""
    if x.dtype.is_complex:
        return hlo.complex_(hlo.real(x) * factor, hlo.imag(x) * factor)
    return x * factor


def divide(a: Value, b: Value) -> Value:
    return complex_divide(*hlo.operands(a, b)) if a.dtype.is_complex else hlo.divide(a, b, exact=True)


binary("aten::div.Tensor", "aten::div.Scalar", int_to_float=True, opmath=True)(divide)


def _require_nonzero(a: Value, b: Value) -> None:
    if 0 in a.shape:
        return  # nothing is divided, even by a lone zero
    require(hlo.all_(hlo.ne(b, 0)), "RuntimeError", "ZeroDivisionError")


def _signs_differ(remainder: Value, b: Value) -> Value:
    return hlo.ne(remainder, 0) & hlo.ne(remainder < 0, b < 0)


def trunc_divide(a: Value, b: Value) -> Value:
    if is_integral(a.dtype):
        _require_nonzero(a, b)
        return a / b
    a, b = hlo.operands(a, b)
    return hlo.trunc(a / hlo.opaque(b))


def _trunc_divided(self: Scalar, other: Scalar) -> Value:
    """A low-precision quotient is rounded to its dtype before it is truncated, as torch does."""
    dtype = result_type(self, other)
    if dtype not in REDUCED:
        return apply(trunc_divide, self, other)
    return apply(hlo.trunc, apply(divide, self, other))


def floor_divide(a: Value, b: Value) -> Value:
    """Python's floor division: exact for floats through fmod, as torch's div_floor kernels."""
    if is_integral(a.dtype):
        _require_nonzero(a, b)
        quotient = a / b
        if not a.dtype.is_signed:
            return quotient
        return hlo.select(_signs_differ(hlo.remainder(a, b), b), quotient - 1, quotient)
    remainder = hlo.remainder(a, b)
    quotient = (a - remainder) / b
    quotient = hlo.select(_signs_differ(remainder, b), quotient - 1.0, quotient)
    floored = hlo.floor(quotient)
    floored = hlo.select(quotient - floored > 0.5, floored + 1.0, floored)
    zero = copy_sign(hlo.zeros_like(floored), a / b)
    exact = hlo.select(hlo.ne(quotient, 0.0), floored, zero)
    return hlo.select(hlo.eq(b, 0.0), a / b, exact)


def copy_sign(magnitude: Value, sign: Value) -> Value:
    """|magnitude| with the sign bit of `sign` (also of zeros and NaN)."""
    bits = {8: torch.int64, 4: torch.int32, 2: torch.int16}[magnitude.dtype.itemsize]
    top = torch.iinfo(bits).min
    m, s = hlo.operands(magnitude, sign)
    joined = (hlo.bitcast(m, bits) & torch.iinfo(bits).max) | (hlo.bitcast(s, bits) & top)
    return hlo.bitcast(joined, magnitude.dtype)


@lower("aten::div.Tensor_mode", "aten::div.Scalar_mode", pointwise=True)
def div_mode(self: Scalar, other: Scalar, *, rounding_mode: str | None) -> Value:
    if rounding_mode is None:
        return apply(divide, self, other, int_to_float=True, opmath=True)
    if rounding_mode == "trunc":
        return _trunc_divided(self, other)
    return apply(floor_divide, self, other, steps_in=HALVES)


@lower("prims::div", pointwise=True)
def prims_div(self: Scalar, other: Scalar) -> Value:
    return apply(trunc_divide if is_integral(result_type(self, other)) else divide, self, other)


binary("aten::floor_divide", "aten::floor_divide.Scalar", steps_in=HALVES)(floor_divide)


def fmod(a: Value, b: Value) -> Value:
    if is_integral(a.dtype):
        _require_nonzero(a, b)
    return hlo.remainder(a, b)


def python_remainder(a: Value, b: Value) -> Value:
    """The remainder with the divisor's sign."""
    mod = fmod(a, b)
    if not a.dtype.is_signed or a.dtype is torch.bool:
        return mod
    return hlo.select(_signs_differ(mod, b), mod + b, mod)


binary("aten::fmod.Tensor", "aten::fmod.Scalar", "prims::fmod")(fmod)
binary("aten::remainder.Tensor", "aten::remainder.Scalar", "aten::remainder.Scalar_Tensor", "prims::remainder")(
    python_remainder
)


def power(a: Value, b: Value) -> Value:
    if a.dtype is torch.bool:
        return a | hlo.not_(b)
    if is_integral(a.dtype):
        return integer_power(*hlo.operands(a, b))
    if a.dtype.is_complex:
        return complex_power(*hlo.operands(a, b))
    return hlo.power(a, b)


def integer_power(base: Value, exponent: Value) -> Value:
    """Square and multiply, wrapping; to a negative power only 1 and -1 do not vanish."""
    negative = exponent < 0 if base.dtype.is_signed else None
    left = exponent if negative is None else hlo.select(negative, 0, exponent)

    def body(result: Value, square: Value, left: Value) -> list[Value]:
        odd = hlo.ne(left & 1, 0)
        return [hlo.select(odd, result * square, result), square * square, hlo.shift_right_logical(left, 1)]

    start = [hlo.ones_like(base), base, left]
    result = hlo.while_loop(start, lambda _, __, left: hlo.any_(hlo.ne(left, 0)), body)[0]
    if negative is None:
        return result
    flipped = hlo.select(hlo.eq(exponent & 1, 0), 1, base)
    inverse = hlo.select(hlo.eq(base, 1), 1, hlo.select(hlo.eq(base, -1), flipped, 0))
    return hlo.select(negative, inverse, result)


def complex_power(a: Value, b: Value) -> Value:
    """exp(b log a), and the limits at a == 0 that std::pow has."""
    raised = hlo.exponential(b * hlo.log(a))
    br = hlo.real(b)
    at_zero = hlo.select(hlo.eq(b, 0), 1, hlo.select(br > 0.0, hlo.zeros_like(a), complex(float("nan"), float("nan"))))
    return hlo.select(hlo.eq(a, 0), at_zero, hlo.select(hlo.eq(b, 0), 1, raised))


def power_by_number(x: Value, exponent: bool | complex) -> Value:
    """x ** a known number, without pow where a product or a root does."""
    if exponent == 0:
        return hlo.ones_like(x)
    if exponent == 1:
        return x
    if exponent == 2:
        return x * x
    if exponent == 3:
        return x * x * x
    if not is_integral(x.dtype):
        if exponent == -1:
            return hlo.ones_like(x) / x if not x.dtype.is_complex else complex_divide(hlo.ones_like(x), x)
        if exponent == -2:
            return power_by_number(x * x, -1)
        if exponent == 0.5:
            return hlo.sqrt(x)
        if exponent == -0.5:
            return power_by_number(hlo.sqrt(x), -1)
    return power(x, hlo.constant(exponent, x.dtype))


@lower("aten::pow.Tensor_Scalar", pointwise=True, attributes=("exponent",))
def pow_tensor_scalar(self: Scalar, exponent: Scalar) -> Value:
    if isinstance(exponent, Value):
        return apply(power, self, exponent)
    dtype, (x, _) = promote(self, exponent)
    if dtype in HALVES:
        with _disable_current_modes():  # a graph that is being emitted does not see this
            exponent = torch.tensor(exponent, dtype=dtype).item()  # the CPU rounds it
    steps_in = (torch.bfloat16,) if exponent in (3, -2) else ()
    return apply(lambda v: power_by_number(v, exponent), x, steps_in=steps_in)


binary("aten::pow.Tensor_Tensor", "aten::pow.Scalar", "prims::pow")(power)


@lower("aten::addcmul", pointwise=True)
def addcmul(self: Value, tensor1: Value, tensor2: Value, *, value: Scalar = 1) -> Value:
    return apply(lambda a, b, c: a + _scaled(b, value) * c, self, tensor1, tensor2, stepwise=True)


@lower("aten::addcdiv", pointwise=True)
def addcdiv(self: Value, tensor1: Value, tensor2: Value, *, value: Scalar = 1) -> Value:
    return apply(lambda a, b, c: a + divide(_scaled(b, value), c), self, tensor1, tensor2)


def lerp(start: Value, end: Value, weight: Value) -> Value:
    """Symmetric form: exact at both ends."""
    near = hlo.abs_(weight) < 0.5
    span = end - start
    return hlo.select(near, start + weight * span, end - span * (1 - weight))


@lower("aten::lerp.Tensor", pointwise=True)
def lerp_tensor(self: Value, end: Value, weight: Value) -> Value:
    return apply(lerp, self, end, weight)


@lower("aten::lerp.Scalar", pointwise=True)
def lerp_scalar(self: Value, end: Value, weight: Scalar) -> Value:
    return apply(lerp, self, end, scalars=[weight])


def greatest_common_divisor(a: Value, b: Value) -> Value:
    """Euclid on whole tensors: the loop ends when every element has."""
    a, b = (hlo.abs_(v) if v.dtype.is_signed else v for v in hlo.operands(a, b))
    out, _ = hlo.while_loop(
        [a, b],
        lambda _, y: hlo.any_(hlo.ne(y, 0)),
        _euclid_step,
    )
    return out


def _euclid_step(x: Value, y: Value) -> list[Value]:
    busy = hlo.ne(y, 0)
    rest = hlo.remainder(x, hlo.select(busy, y, 1))
    return [hlo.select(busy, y, x), hlo.select(busy, rest, 0)]


def least_common_multiple(a: Value, b: Value) -> Value:
    divisor = greatest_common_divisor(a, b)
    product = hlo.operands(a, b)[0] / hlo.select(hlo.eq(divisor, 0), 1, divisor) * b
    return hlo.abs_(product) if product.dtype.is_signed else product


binary("aten::gcd", "prims::gcd")(greatest_common_divisor)
binary("aten::lcm")(least_common_multiple)


def hypot(a: Value, b: Value) -> Value:
    """Scaled so that squares neither overflow nor vanish; an infinity wins over NaN."""
    a, b = (hlo.abs_(v) for v in hlo.operands(a, b))
    big, small = hlo.maximum(a, b), hlo.minimum(a, b)
    ratio = small / hlo.select(hlo.eq(big, 0.0), 1.0, big)
    length = big * hlo.sqrt(1.0 + ratio * ratio)
    infinite = hlo.eq(a, float("inf")) | hlo.eq(b, float("inf"))
    return hlo.select(infinite, float("inf"), length)


binary("aten::hypot", "prims::hypot")(hypot)
