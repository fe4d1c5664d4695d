"""What one program of an overload serves: a size that varies, and inputs of any strides."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch_neuronx.lowering.views import Layout, packed


@dataclass(frozen=True, slots=True)
class Linear:
    """slope * size + start."""

    slope: int
    start: int

    def at(self, size: int) -> int:
        return self.slope * size + self.start


@dataclass(frozen=True, slots=True)
class Input:
    """One argument of the program.

    tensor    index among the call's tensors, or None: a slot's array as it is
    slot      index among the call's slots
    sizes     of the tensor
    strides   positions of its strides among the parameters; None: it lies in memory as the program wants it
    capacity  elements of the array
    """

    tensor: int | None
    slot: int
    sizes: tuple[Linear, ...] = ()
    strides: tuple[int, ...] | None = None
    capacity: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """A returned tensor: its sizes, and its dimensions from outermost to innermost in memory."""

    sizes: tuple[Linear, ...]
    order: tuple[int, ...]

    def at(self, size: int) -> Layout:
        return laid_out(tuple(n.at(size) for n in self.sizes), self.order)


@dataclass(frozen=True, slots=True)
class Serves:
    """The sizes and strides of the calls that one program serves.

    bound    what the size is padded to; None: only strides vary
    size     position of the size among the parameters
    inputs   the program's arguments, the parameters behind them
    outputs  what the overload returns, one after the other: an Output, a Linear for a number, None
    params   how many parameters there are
    """

    bound: int | None
    size: int
    inputs: tuple[Input, ...]
    outputs: tuple[Output | Linear | None, ...]
    params: int

    @property
    def elements(self) -> int:
        """Of its inputs and outputs, padding included."""
        made = (x for x in self.outputs if isinstance(x, Output))
        return sum(x.capacity for x in self.inputs) + sum(x.at(self.bound or 0).numel for x in made)


def laid_out(sizes: tuple[int, ...], order: tuple[int, ...]) -> Layout:
    """Dense, with its dimensions in this order."""
    return Layout(sizes, packed(sizes, order))


def fitted(known: list[int], values: list[int]) -> Linear | None:
    """What gives every one of `values` at the `known` sizes; None when that is no rising line."""
    if len(set(values)) == 1:
        return Linear(0, values[0])
    (n, m), (x, y) = known[:2], values[:2]
    slope, rest = divmod(y - x, m - n) if m != n else (0, 1)
    found = Linear(slope, x - slope * n)
    if rest or slope < 0 or any(v != found.at(k) for k, v in zip(known, values, strict=True)):
        return None
    return found


def capacity_of(sizes: tuple[Linear, ...], bound: int) -> int:
    return math.prod(n.at(bound) for n in sizes)
