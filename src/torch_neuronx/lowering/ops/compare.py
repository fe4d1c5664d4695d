"""Comparisons, logic, selection, extrema and classification of floating-point values."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import is_integral, real_of
from torch_neuronx.lowering.promotion import Build, apply, binary, promote, unary
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value

COMPARISONS = {"eq": hlo.eq, "ne": hlo.ne, "lt": hlo.lt, "le": hlo.le, "gt": hlo.gt, "ge": hlo.ge}
for _name, _build in COMPARISONS.items():
    binary(f"aten::{_name}.Tensor", f"aten::{_name}.Scalar", f"prims::{_name}")(_build)


def _truth(x: Scalar) -> Value:
    return hlo.convert(hlo.as_value(x), torch.bool)


def _logical(name: str, build: Build) -> None:
    @lower(f"aten::logical_{name}", pointwise=True)
    def emit(self: Value, other: Value) -> Value:
        return build(_truth(self), _truth(other))


_logical("and", hlo.and_)
_logical("or", hlo.or_)
_logical("xor", hlo.xor)


@lower("aten::logical_not", pointwise=True)
def logical_not(self: Value) -> Value:
    return hlo.not_(_truth(self))


def fmax(a: Value, b: Value) -> Value:
    """The larger one; a NaN loses."""
    return _ignore_nan(a, b, hlo.maximum(a, b))


def fmin(a: Value, b: Value) -> Value:
    return _ignore_nan(a, b, hlo.minimum(a, b))


def _ignore_nan(a: Value, b: Value, best: Value) -> Value:
    if is_integral(a.dtype):
        return best
    return hlo.select(hlo.is_nan(a), b, hlo.select(hlo.is_nan(b), a, best))


binary("aten::maximum", "prims::maximum")(hlo.maximum)
binary("aten::minimum", "prims::minimum")(hlo.minimum)
binary("aten::fmax", "prims::fmax")(fmax)
binary("aten::fmin", "prims::fmin")(fmin)


def _beyond(x: Value, bound: Value, compare: Callable[[Value, Value], Value]) -> Value:
    """Whether the bound takes the place of x; a NaN does."""
    return compare(x, bound) if is_integral(x.dtype) else compare(x, bound) | hlo.is_nan(bound)


def _clamp(x: Scalar, low: Scalar | None, high: Scalar | None) -> Value:
    """Of a zero and a bound that is the other zero the first is kept, as torch does for bounds that are numbers."""
    given = [b for b in (low, high) if b is not None]

    def build(v: Value, *bounds: Value) -> Value:
        left = list(bounds)
        if low is not None:
            bound = left.pop(0)
            v = hlo.select(_beyond(v, bound, hlo.lt), bound, v)
        if high is not None:
            bound = left.pop(0)
            v = hlo.select(_beyond(v, bound, hlo.gt), bound, v)
        return v

    return apply(build, x, *given)


@lower("aten::clamp", "aten::clamp.Tensor", pointwise=True)
def clamp(self: Scalar, min: Scalar | None = None, max: Scalar | None = None) -> Value:
    return _clamp(self, min, max)


@lower("aten::clamp_min", "aten::clamp_min.Tensor", pointwise=True)
def clamp_min(self: Scalar, min: Scalar) -> Value:
    return _clamp(self, min, None)


@lower("aten::clamp_max", "aten::clamp_max.Tensor", pointwise=True)
def clamp_max(self: Scalar, max: Scalar) -> Value:
    return _clamp(self, None, max)


@lower("aten::where.self", "prims::where", pointwise=True)
def where(condition: Value, self: Scalar, other: Scalar) -> Value:
    _, (a, b) = promote(self, other)
    return hlo.select(_truth(condition), a, b)


def _constant_for_integers(answer: bool, build: Build) -> Build:
    def run(x: Value) -> Value:
        if is_integral(x.dtype):
            return hlo.full(x.shape, answer, torch.bool)
        return build(x)

    return run


def _parts(x: Value) -> list[Value]:
    return [hlo.real(x), hlo.imag(x)] if x.dtype.is_complex else [x]


def is_inf(x: Value) -> Value:
    return _any([hlo.is_inf(p) for p in _parts(x)])


def _any(xs: list[Value]) -> Value:
    return xs[0] | xs[1] if len(xs) == 2 else xs[0]


def is_finite(x: Value) -> Value:
    first, *rest = [hlo.is_finite(p) for p in _parts(x)]
    return first & rest[0] if rest else first


def is_nan(x: Value) -> Value:
    return _any([hlo.is_nan(p) for p in _parts(x)])


def sign_bit(x: Value) -> Value:
    """The sign bit itself: true for -0.0 and negative NaN."""
    if x.dtype is torch.bool or not x.dtype.is_signed:
        return hlo.full(x.shape, False, torch.bool)
    if is_integral(x.dtype):
        return x < 0
    return hlo.bitcast(x, torch.int64 if x.dtype is torch.float64 else torch.int32) < 0


unary("aten::isnan")(_constant_for_integers(False, is_nan))
unary("aten::isinf")(_constant_for_integers(False, is_inf))
unary("aten::isfinite", "prims::isfinite")(_constant_for_integers(True, is_finite))
unary("aten::isposinf")(_constant_for_integers(False, lambda x: hlo.eq(x, float("inf"))))
unary("aten::isneginf")(_constant_for_integers(False, lambda x: hlo.eq(x, float("-inf"))))
unary("aten::signbit", "prims::signbit")(sign_bit)


@lower("aten::nan_to_num", pointwise=True)
def nan_to_num(
    self: Value, nan: Scalar | None = None, posinf: Scalar | None = None, neginf: Scalar | None = None
) -> Value:
    if is_integral(self.dtype):
        return self
    if self.dtype.is_complex:
        return hlo.complex_(*(nan_to_num(p, nan, posinf, neginf) for p in _parts(self)))
    limits = torch.finfo(real_of(self.dtype))

    def fill(given: Scalar | None, default: float) -> Value:
        return hlo.convert(hlo.as_value(default if given is None else given), self.dtype)

    out = hlo.select(hlo.is_nan(self), fill(nan, 0.0), self)
    out = hlo.select(hlo.eq(self, float("inf")), fill(posinf, limits.max), out)
    return hlo.select(hlo.eq(self, float("-inf")), fill(neginf, limits.min), out)


@lower("aten::heaviside", pointwise=True)
def heaviside(self: Scalar, values: Scalar) -> Value:
    def build(x: Value, at_zero: Value) -> Value:
        return hlo.select(hlo.eq(x, 0), at_zero, hlo.convert(x > 0, x.dtype))

    return apply(build, self, values)


@lower("aten::is_same_size", bind=False)
def is_same_size(self: Value, other: Value) -> bool:
    return self.shape == other.shape
