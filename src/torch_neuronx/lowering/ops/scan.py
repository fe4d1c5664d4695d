"""Cumulative operations along one dimension."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.axes import at_least_1d, axis
from torch_neuronx.lowering.dtypes import compute_dtype, is_complex, max_value, min_value
from torch_neuronx.lowering.ops.reduce import wide
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value

Combine = Callable[[Value, Value], Value]


def scan(x: Value, dim: int, combine: Combine, identity: Scalar) -> Value:
    """Inclusive scan of one value, 0-d included."""
    one = at_least_1d(x)
    (out,) = hlo.cumulative([one], [identity], axis(dim, x.ndim), lambda a, b: [combine(a, b)])
    return hlo.reshape(out, x.shape)


@lower("aten::cumsum")
def cumsum(self: Value, dim: int, *, dtype: torch.dtype | None = None) -> Value:
    x, result = wide(self, dtype)
    return hlo.convert(scan(x, dim, hlo.add, 0), result)


@lower("aten::cumprod")
def cumprod(self: Value, dim: int, *, dtype: torch.dtype | None = None) -> Value:
    x, result = wide(self, dtype)
    return hlo.convert(scan(x, dim, hlo.multiply, 1), result)


def _running_extreme(self: Value, dim: int, largest: bool) -> tuple[Value, Value]:
    """(values, position of the latest element that equals the running extreme)."""
    x, d = at_least_1d(self), axis(dim, self.ndim)
    combine, identity = (hlo.maximum, min_value) if largest else (hlo.minimum, max_value)
    best = scan(x, d, combine, identity(x.dtype))
    hit = hlo.eq(x, best)
    if x.dtype.is_floating_point:
        hit = hit | hlo.is_nan(x)
    index = scan(hlo.select(hit, hlo.iota(x.shape, d), 0), d, hlo.maximum, 0)
    return hlo.reshape(best, self.shape), hlo.reshape(index, self.shape)


@lower("aten::cummax")
def cummax(self: Value, dim: int) -> tuple[Value, Value]:
    return _running_extreme(self, dim, True)


@lower("aten::cummin")
def cummin(self: Value, dim: int) -> tuple[Value, Value]:
    return _running_extreme(self, dim, False)


def _log_add_exp(a: Value, b: Value) -> Value:
    low, high = hlo.minimum(a, b), hlo.maximum(a, b)
    apart = hlo.log1p(hlo.exponential(low - high)) + high
    same = hlo.eq(low, high) & hlo.is_inf(low)  # inf - inf
    return hlo.select(same, low, apart)


def _complex_log_add_exp(a: Value, b: Value) -> Value:
    """Its phase counts turns, as torch's loop does, so it is not associative."""
    swap = hlo.lt(hlo.real(a), hlo.real(b))
    low, high = hlo.select(swap, a, b), hlo.select(swap, b, a)
    re = hlo.real(low)
    same = hlo.eq(re, hlo.real(high)) & hlo.is_inf(re)
    both = hlo.select(hlo.lt(re, 0.0), low, hlo.log(hlo.exponential(low) + hlo.exponential(high)))
    return hlo.select(same, both, hlo.log1p(hlo.exponential(low - high)) + high)


def _one_by_one(x: Value, d: int, combine: Combine, identity: Scalar) -> Value:
    """Inclusive scan in order, for what is not associative."""
    sizes = [1 if i == d else n for i, n in enumerate(x.shape)]

    def body(i: Value, total: Value, out: Value) -> list[Value]:
        at = [i if k == d else 0 for k in range(x.ndim)]
        total = combine(total, hlo.dynamic_slice(x, at, sizes))
        return [i + 1, total, hlo.dynamic_update_slice(out, total, at)]

    start = [hlo.constant(0, torch.int64), hlo.full(sizes, identity, x.dtype), x]
    return hlo.while_loop(start, lambda i, *_: hlo.lt(i, x.shape[d]), body)[2]


@lower("aten::_logcumsumexp", "aten::logcumsumexp")
def logcumsumexp(self: Value, dim: int) -> Value:
    x = hlo.convert(self, compute_dtype(self.dtype))
    if is_complex(x.dtype):
        out = _one_by_one(at_least_1d(x), axis(dim, x.ndim), _complex_log_add_exp, -math.inf)
        return hlo.reshape(out, self.shape)
    return hlo.convert(scan(x, dim, _log_add_exp, -math.inf), self.dtype)
