"""Positions of non-zero elements, and selections by mask: results whose size depends on data."""

from __future__ import annotations

import math

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Sized, Value


def coordinates(linear: Value, shape: tuple[int, ...]) -> list[Value]:
    """The index along every dimension of row-major positions, int64."""
    narrow = math.prod(shape) < 2**31  # a quarter of the time
    columns, rest = [], hlo.convert(linear, torch.int32) if narrow else linear
    for n in reversed(shape):
        columns.append(hlo.convert(hlo.remainder(rest, max(n, 1)), torch.int64))
        rest = hlo.divide(rest, max(n, 1))
    return columns[::-1]


def _table(linear: Value, shape: tuple[int, ...]) -> Value:
    n = linear.shape[0]
    if not shape:
        return hlo.full((n, 0), 0, torch.int64)
    return hlo.concatenate([hlo.reshape(c, (n, 1)) for c in coordinates(linear, shape)], 1)


@lower("aten::nonzero")
def nonzero(self: Value) -> Sized:
    positions, count = hlo.compact(hlo.convert(hlo.flatten(self), torch.bool))
    return Sized(_table(positions, self.shape), count, columns=True)


@lower("aten::nonzero_static")
def nonzero_static(self: Value, *, size: int, fill_value: int = -1) -> Value:
    positions, count = hlo.compact(hlo.convert(hlo.flatten(self), torch.bool), size)
    table = _table(positions, self.shape)
    return hlo.select(hlo.lt(hlo.iota(table.shape, 0), count), table, fill_value)


@lower("aten::masked_select")
def masked_select(self: Value, mask: Value) -> Sized:
    shape = hlo.broadcast_shapes(self.shape, mask.shape)
    positions, count = hlo.compact(hlo.flatten(hlo.broadcast_to(hlo.convert(mask, torch.bool), shape)))
    if not positions.numel:
        return Sized(hlo.full((0,), 0, self.dtype), count)
    return Sized(hlo.take_rows(hlo.flatten(hlo.broadcast_to(self, shape)), positions), count)
