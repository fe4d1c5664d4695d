"""Extrema with their positions."""

from __future__ import annotations

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.axes import at_least_1d, axis
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value


def first_where(hit: Value, dim: int, keepdim: bool = True) -> Value:
    """int64 position of the first True along dim (the extent, when there is none).

    A comparing reduce over (value, index) pairs is seven times slower: XLA does not vectorise it.
    """
    n = hit.shape[dim]
    small = torch.int32 if n < 2**31 else torch.int64
    index = hlo.select(hit, hlo.iota(hit.shape, dim, small), n)
    return hlo.convert(hlo.reduce_min(index, dim, keepdim), torch.int64)


def extreme(x: Value, dim: int, largest: bool) -> tuple[Value, Value]:
    """(value, position) with extent 1 along dim; the first NaN wins, else the first extreme."""
    best = (hlo.reduce_max if largest else hlo.reduce_min)(x, dim, True)
    hit = hlo.eq(x, best)
    if x.dtype.is_floating_point:
        hit = hit | hlo.is_nan(x)
    return best, first_where(hit, dim)


def _with_index(self: Value, dim: int, keepdim: bool, largest: bool) -> tuple[Value, Value]:
    x, d = at_least_1d(self), axis(dim, self.ndim)
    best, index = extreme(x, d, largest)
    shape = x.shape if keepdim else [n for i, n in enumerate(x.shape) if i != d]
    shape = [1 if keepdim and i == d else n for i, n in enumerate(shape)] if self.ndim else []
    return hlo.reshape(best, shape), hlo.reshape(index, shape)


@lower("aten::max.dim")
def max_dim(self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _with_index(self, dim, keepdim, True)


@lower("aten::min.dim")
def min_dim(self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _with_index(self, dim, keepdim, False)


def _arg(self: Value, dim: int | None, keepdim: bool, largest: bool) -> Value:
    if dim is not None:
        return _with_index(self, dim, keepdim, largest)[1]
    _, index = extreme(hlo.flatten(self), 0, largest)
    return hlo.reshape(index, (1,) * self.ndim if keepdim else ())


@lower("aten::argmax")
def argmax(self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _arg(self, dim, keepdim, True)


@lower("aten::argmin")
def argmin(self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _arg(self, dim, keepdim, False)
