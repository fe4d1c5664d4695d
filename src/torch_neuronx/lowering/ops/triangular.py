"""Matrices cut along a diagonal: tril, triu."""

from __future__ import annotations

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value


def _distance(x: Value) -> Value:
    """Column minus row of every element of the last two dimensions."""
    shape = x.shape[-2:]
    return hlo.iota(shape, 1) - hlo.iota(shape, 0)


@lower("aten::tril")
def tril(self: Value, diagonal: int = 0) -> Value:
    return hlo.select(hlo.broadcast_to(hlo.le(_distance(self), diagonal), self.shape), self, 0)


@lower("aten::triu")
def triu(self: Value, diagonal: int = 0) -> Value:
    return hlo.select(hlo.broadcast_to(hlo.ge(_distance(self), diagonal), self.shape), self, 0)
