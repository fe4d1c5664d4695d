"""Elementwise StableHLO and CHLO operations with broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, stablehlo

from torch_neuronx.lowering.dtypes import real_of
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.hlo.convert import convert
from torch_neuronx.lowering.hlo.literal import constant
from torch_neuronx.lowering.hlo.shape import broadcast_shapes, broadcast_to
from torch_neuronx.lowering.hlo.words import from_words, to_words
from torch_neuronx.lowering.value import Scalar, Value

__all__ = [
    "abs_", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i1e", "cbrt", "ceil", "cosh", "cosine",
    "count_leading_zeros", "digamma", "erf", "erf_inv", "erfc", "exponential", "expm1", "floor", "is_finite",
    "is_inf", "is_nan", "lgamma", "log", "log1p", "logistic", "negate", "not_", "popcnt", "round_afz",
    "round_even", "rsqrt", "sign", "sine", "sinh", "sqrt", "tan", "tanh", "trunc",
    "add", "and_", "atan2", "divide", "maximum", "minimum", "multiply", "next_after", "or_", "polygamma", "power",
    "remainder", "shift_left", "shift_right_arithmetic", "shift_right_logical", "subtract", "xor", "zeta",
    "eq", "ge", "gt", "le", "lt", "ne",
    "clamp", "opaque", "reduce_precision", "select",
]  # fmt: skip


def operands(*xs: Scalar) -> list[Value]:
    """Python numbers become constants of the Values' dtype, then all broadcast to one shape."""
    dtype = next((x.dtype for x in xs if isinstance(x, Value)), None)
    if dtype is None:
        raise TypeError("an elementwise operation needs at least one Value")
    values = [x if isinstance(x, Value) else constant(x, dtype) for x in xs]
    if any(v.dtype != dtype for v in values):
        raise RuntimeError(f"dtypes {[v.dtype for v in values]} differ; promote them before calling hlo")
    shape = broadcast_shapes(*(v.shape for v in values))
    return [broadcast_to(v.strong(), shape) for v in values]


Unary = Callable[[Value], Value]
Binary = Callable[[Scalar, Scalar], Value]


def _unary(op: Callable[..., Any]) -> Unary:
    def build(x: Value) -> Value:
        if x.dtype is torch.complex32:
            return in_dtype(torch.complex64, build)(x)
        return Value(op(x.ssa), x.dtype, x.dims)

    return build


def _binary(op: Callable[..., Any]) -> Binary:
    def build(x: Scalar, y: Scalar) -> Value:
        a, b = operands(x, y)
        if a.dtype is torch.complex32:
            wide = build(convert(a, torch.complex64), convert(b, torch.complex64))
            return convert(wide, torch.complex32)
        return Value(op(a.ssa, b.ssa), a.dtype, a.dims)

    return build


def abs_(x: Value) -> Value:
    """|x|; real for a complex x."""
    if x.dtype is torch.complex32:
        return convert(abs_(convert(x, torch.complex64)), torch.float16)
    return Value(stablehlo.abs(x.ssa), real_of(x.dtype), x.dims)


acos, acosh = _unary(chlo.acos), _unary(chlo.acosh)
asin, asinh = _unary(chlo.asin), _unary(chlo.asinh)
atan, atanh = _unary(chlo.atan), _unary(chlo.atanh)
bessel_i1e = _unary(chlo.bessel_i1e)
cbrt, ceil, floor = _unary(stablehlo.cbrt), _unary(stablehlo.ceil), _unary(stablehlo.floor)
cosh, sinh, tan = _unary(chlo.cosh), _unary(chlo.sinh), _unary(stablehlo.tan)
cosine, sine, tanh = _unary(stablehlo.cosine), _unary(stablehlo.sine), _unary(stablehlo.tanh)
count_leading_zeros, popcnt = _unary(stablehlo.count_leading_zeros), _unary(stablehlo.popcnt)
digamma, lgamma = _unary(chlo.digamma), _unary(chlo.lgamma)
erf, erf_inv, erfc = _unary(chlo.erf), _unary(chlo.erf_inv), _unary(chlo.erfc)
exponential, expm1 = _unary(stablehlo.exponential), _unary(stablehlo.exponential_minus_one)
log, log1p = _unary(stablehlo.log), _unary(stablehlo.log_plus_one)
logistic, negate, not_ = _unary(stablehlo.logistic), _unary(stablehlo.negate), _unary(stablehlo.not_)
round_afz, round_even = _unary(stablehlo.round_nearest_afz), _unary(stablehlo.round_nearest_even)
rsqrt, sign, sqrt = _unary(stablehlo.rsqrt), _unary(stablehlo.sign), _unary(stablehlo.sqrt)

add, subtract = _binary(stablehlo.add), _binary(stablehlo.subtract)
multiply, _divide = _binary(stablehlo.multiply), _binary(stablehlo.divide)
maximum, minimum = _binary(stablehlo.maximum), _binary(stablehlo.minimum)
power, atan2, _remainder = _binary(stablehlo.power), _binary(stablehlo.atan2), _binary(stablehlo.remainder)


def divide(x: Scalar, y: Scalar, *, exact: bool = False) -> Value:
    """x / y. By one number it is rounded once; by what is broadcast otherwise only when it is `exact`.

    Left to itself the compiler multiplies by the reciprocal of a divisor that is broadcast, and so rounds twice.
    """
    a, b = operands(x, y)
    if 0 in a.shape:
        return a  # the compiler divides a constant's one value, 0 by 0, and dies
    many = y.numel if isinstance(y, Value) else 1
    if many < b.numel and (exact or many == 1) and not _reciprocal_is_exact(y):
        b = Value(stablehlo.OptimizationBarrierOp([b.ssa]).results[0], b.dtype, b.dims)
    return _divide(a, b)


def _reciprocal_is_exact(y: Scalar) -> bool:
    return isinstance(y, (int, float)) and math.frexp(y)[0] in (0.5, -0.5)


def remainder(x: Scalar, y: Scalar) -> Value:
    """Of the quotient rounded towards zero; XLA's CPU compiler dies of a complex one."""
    a, b = operands(x, y)
    if a.dtype.is_complex:
        raise Unsupported("the remainder of complex numbers")
    return a if 0 in a.shape else _remainder(a, b)


and_, or_, xor = _binary(stablehlo.and_), _binary(stablehlo.or_), _binary(stablehlo.xor)
shift_left = _binary(stablehlo.shift_left)
shift_right_arithmetic = _binary(stablehlo.shift_right_arithmetic)
shift_right_logical = _binary(stablehlo.shift_right_logical)
next_after = _binary(chlo.broadcast_next_after)
polygamma, zeta = _binary(chlo.polygamma), _binary(chlo.zeta)


def opaque(x: Value) -> Value:
    """The same value, hidden from XLA's algebraic simplifier.

    It turns a division by a constant or a broadcast scalar into a multiplication by the rounded
    reciprocal (as CUDA does): one ulp off, which matters where the quotient is cut to an integer.
    """
    return Value(stablehlo.OptimizationBarrierOp([x.ssa]).results[0], x.dtype, x.dims, x.weak)


def trunc(x: Value) -> Value:
    """Rounds toward zero."""
    return select(lt(x, 0), ceil(x), floor(x))


def _compare(direction: str) -> Binary:
    def build(x: Scalar, y: Scalar) -> Value:
        a, b = operands(x, y)
        attr = stablehlo.ComparisonDirectionAttr.get(direction)
        kind = stablehlo.ComparisonTypeAttr.get(_comparison_type(a.dtype))
        return Value(stablehlo.compare(a.ssa, b.ssa, attr, compare_type=kind), torch.bool, a.dims)

    return build


def _comparison_type(dtype: torch.dtype) -> str:
    if dtype.is_floating_point or dtype.is_complex:
        return "FLOAT"
    return "SIGNED" if dtype.is_signed and dtype is not torch.bool else "UNSIGNED"


eq, ne, lt, le, gt, ge = (_compare(d) for d in ("EQ", "NE", "LT", "LE", "GT", "GE"))


def is_nan(x: Value) -> Value:
    return ne(x, x)


def _predicate(op: Callable[..., ir.Value]) -> Unary:
    def build(x: Value) -> Value:
        return Value(op(x.ssa), torch.bool, x.dims)

    return build


is_finite = _predicate(stablehlo.is_finite)


def is_inf(x: Value) -> Value:
    """|x| == inf for a real floating dtype."""
    return eq(abs_(x), float("inf"))


def select(predicate: Value, on_true: Scalar, on_false: Scalar) -> Value:
    """Elementwise choice; all three broadcast."""
    a, b = operands(on_true, on_false)
    shape = broadcast_shapes(predicate.shape, a.shape)
    p, a, b = broadcast_to(predicate, shape), broadcast_to(a, shape), broadcast_to(b, shape)
    words = stablehlo.select(p.ssa, to_words(a), to_words(b))
    return Value(from_words(words, shape, a.dtype), a.dtype, a.dims)


def clamp(low: Scalar, x: Value, high: Scalar) -> Value:
    """min(max(x, low), high); NaN of x survives."""
    return minimum(maximum(x, low), high)


def reduce_precision(x: Value, exponent_bits: int, mantissa_bits: int) -> Value:
    return Value(stablehlo.reduce_precision(x.ssa, exponent_bits, mantissa_bits), x.dtype, x.dims)


def in_dtype(dtype: torch.dtype, op: Unary) -> Unary:
    """Runs `op` in another dtype and rounds the result back."""
    return lambda x: convert(op(convert(x, dtype)), x.dtype)
