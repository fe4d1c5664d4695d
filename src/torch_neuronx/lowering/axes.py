"""Dimension arguments of reductions and normalisations."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.value import Value


def axes(dim: Sequence[int] | int | None, ndim: int) -> list[int]:
    """Non-negative dimensions; None and [] mean all of them; a 0-d tensor has none."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return list(range(ndim))
    given = [dim] if isinstance(dim, int) else list(dim)
    return [d % ndim for d in given] if ndim else []


def axis(dim: int, ndim: int) -> int:
    return dim % ndim if ndim else 0


def extent(x: Value, dims: Sequence[int]) -> int:
    """How many elements one result of a reduction over dims sees."""
    return math.prod(x.shape[d] for d in dims)


def at_least_1d(x: Value) -> Value:
    """A 0-d tensor as one element along dimension 0."""
    return x if x.ndim else hlo.reshape(x, (1,))


def kept(x: Value, dims: Sequence[int]) -> tuple[int, ...]:
    """x's shape with extent 1 along dims: what keepdim=True gives."""
    return tuple(1 if i in dims else n for i, n in enumerate(x.shape))
