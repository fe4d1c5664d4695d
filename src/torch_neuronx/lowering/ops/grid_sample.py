"""grid_sampler in two and three dimensions: rows of a channels-last input gathered at run-time points.

A point reads a combination of taps, one per dimension: an integer coordinate and a weight. One
gather (or scatter) serves all combinations.
Coordinates are kept in the grid's order: x (the last spatial dimension) first.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.ops.interpolate import cubic_weights
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value

BILINEAR, NEAREST, BICUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2
_VECTOR = 16  # elements of two bytes in the CPU kernel's vectors (AVX2)


@dataclass(frozen=True)
class _Axis:
    """One spatial dimension of the input and how points outside of it are treated."""

    size: int
    padding: int
    align_corners: bool

    def position(self, x: Value) -> tuple[Value, float]:
        """(element position of a coordinate in [-1, 1], its derivative)."""
        if self.align_corners:
            return (x + 1) * 0.5 * (self.size - 1), (self.size - 1) / 2
        return ((x + 1) * self.size - 1) * 0.5, self.size / 2

    def contained(self, x: Value) -> tuple[Value, Value]:
        """(position moved inside as the padding says, derivative of the move)."""
        one = hlo.ones_like(x)
        if self.padding == ZEROS:
            return x, one
        if self.padding == REFLECTION:
            x, slope = self._reflected(x)
        else:
            slope = one
        inside = hlo.gt(x, 0) & hlo.lt(x, self.size - 1)
        clipped = hlo.minimum(hlo.maximum(x, 0), self.size - 1)
        clipped = hlo.select(hlo.is_nan(x), 0, clipped)
        return clipped, hlo.select(inside, slope, 0)

    def _reflected(self, x: Value) -> tuple[Value, Value]:
        low, high = (0, 2 * (self.size - 1)) if self.align_corners else (-1, 2 * self.size - 1)
        if low == high:
            return hlo.zeros_like(x), hlo.zeros_like(x)
        start, span = low / 2, (high - low) / 2
        shifted = x - start
        sign = hlo.select(hlo.lt(shifted, 0), hlo.full_like(x, -1), 1)
        distance = hlo.abs_(shifted)
        extra = hlo.remainder(distance, span)
        flips = hlo.floor(hlo.divide(distance, span))
        even = hlo.eq(hlo.remainder(flips, 2), 0)
        return hlo.select(even, extra + start, span - extra + start), hlo.select(even, sign, -sign)

    def inside(self, index: Value) -> Value:
        return hlo.ge(index, 0) & hlo.lt(index, self.size)


@dataclass(frozen=True)
class _Tap:
    """Integer coordinate (floating point), weight, and derivative of the weight along one dimension."""

    at: Value
    weight: Value
    slope: Value


@dataclass(frozen=True)
class _Reach:
    """What a point reads along one dimension; slopes are by the position, `scale` is that one's by the grid."""

    taps: list[_Tap]
    scale: Value


def _reach(axis: _Axis, x: Value, mode: int) -> _Reach:
    """For coordinates x in [-1, 1]."""
    position, scale = axis.position(x)
    one = hlo.ones_like(position)
    if mode == BICUBIC:
        whole = hlo.floor(position)
        t = position - whole
        parts = zip(range(-1, 3), cubic_weights(t, -0.75), _cubic_slopes(t, -0.75), strict=True)
        return _Reach([_Tap(axis.contained(whole + i)[0], w, slope) for i, w, slope in parts], one * scale)
    position, slope = axis.contained(position)
    if mode == NEAREST:
        return _Reach([_Tap(hlo.round_even(position), one, hlo.zeros_like(one))], one)
    whole = hlo.floor(position)
    t = position - whole
    return _Reach([_Tap(whole, 1 - t, -one), _Tap(whole + 1, t, one)], slope * scale)


def _cubic_slopes(t: Value, a: float) -> list[Value]:
    """Derivatives of cubic_weights by t."""

    def near(x: Value) -> Value:
        return (3 * (a + 2) * x - 2 * (a + 3)) * x

    def far(x: Value) -> Value:
        return (3 * a * x - 10 * a) * x + 8 * a

    return [far(t + 1), near(t), -near(1 - t), -far(2 - t)]


def _product(factors: Sequence[Value]) -> Value:
    return math.prod(factors[1:], start=factors[0])


Combination = tuple[_Tap, ...]  # one tap per dimension, x first


@dataclass(frozen=True)
class _Sampler:
    """input (N, C, *spatial), grid (N, *out, n): rows are points, all batches and positions flattened.

    Sums are taken in the CPU's order and each step in the input's dtype, because in bfloat16 the CPU's result is
    mostly its rounding.
    """

    input: Value
    grid: Value
    mode: int
    padding: int
    align_corners: bool

    @property
    def n(self) -> int:
        return self.input.ndim - 2

    @property
    def inner(self) -> torch.dtype:
        return self.input.dtype

    @property
    def narrow(self) -> bool:
        return compute_dtype(self.inner) != self.inner

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.input.shape[2:]

    def rows(self, x: Value) -> Value:
        """Channels last, one row per position: (N * positions, C)."""
        last = hlo.permute(x, [0, *range(2, x.ndim), 1])
        return hlo.reshape(hlo.convert(last, self.inner), (-1, x.shape[1]))

    def unrows(self, rows: Value, spatial: Sequence[int]) -> Value:
        n, c = self.input.shape[:2]
        shaped = hlo.reshape(rows, (n, *spatial, c))
        return hlo.permute(shaped, [0, shaped.ndim - 1, *range(1, shaped.ndim - 1)])

    def axes(self) -> list[_Axis]:
        """In the grid's order, x first."""
        return [_Axis(size, self.padding, self.align_corners) for size in reversed(self.sizes)]

    def reaches(self) -> list[_Reach]:
        points = hlo.reshape(hlo.convert(self.grid, self.inner), (-1, self.n))
        columns = [hlo.squeeze(hlo.slice_dim(points, 1, i, i + 1), 1) for i in range(self.n)]
        return [_reach(axis, x, self.mode) for axis, x in zip(self.axes(), columns, strict=True)]

    def combinations(self, reaches: Sequence[_Reach]) -> list[Combination]:
        """All of them, x running fastest."""
        return [c[::-1] for c in itertools.product(*(r.taps for r in reversed(reaches)))]

    def combinations_of_gradient(self, reaches: Sequence[_Reach]) -> list[Combination]:
        return (
            list(itertools.product(*(r.taps for r in reaches))) if self.mode == BICUBIC else self.combinations(reaches)
        )

    def index(self, taps: Combination) -> tuple[Value, Value]:
        """(row of the input, whether the point is inside) of one tap per dimension."""
        inside = hlo.full(taps[0].at.shape, True, torch.bool)
        for axis, tap in zip(self.axes(), taps, strict=True):
            inside = inside & axis.inside(tap.at)
        per_batch = inside.numel // self.input.shape[0]
        row = hlo.divide(hlo.iota((inside.numel,), 0), max(per_batch, 1))
        for size, tap in zip(self.sizes, reversed(taps), strict=True):
            row = row * size + hlo.convert(hlo.select(inside, tap.at, 0), torch.int64)
        return row, inside

    def places(self, combinations: Sequence[Combination]) -> tuple[Value, Value]:
        """(rows, whether inside) side by side: (points, combinations)."""
        rows, insides = zip(*(self.index(c) for c in combinations), strict=True)
        return _beside(rows), _beside(insides)

    def values(self, combinations: Sequence[Combination]) -> list[Value]:
        """What each combination reads, (points, C): zero outside of the input."""
        row, inside = self.places(combinations)
        taken = hlo.take_rows(self.rows(self.input), row)
        taken = hlo.select(hlo.broadcast_in_dim(inside, taken.shape, [0, 1]), taken, 0)
        return [hlo.squeeze(hlo.slice_dim(taken, 1, i, i + 1), 1) for i in range(len(combinations))]

    def forward(self) -> Value:
        out = self.grid.shape[1:-1]
        shape = (*self.input.shape[:2], *out)
        if 0 in shape or 0 in self.input.shape:
            return hlo.full(shape, 0, self.input.dtype)
        reaches = self.reaches()
        combinations = self.combinations(reaches)
        values = self.values(combinations)
        if self.mode == BICUBIC:  # four rows, then across them
            lines = [_weighted(values[i : i + 4], [t.weight for t in reaches[0].taps]) for i in range(0, 16, 4)]
            return self.unrows(_weighted(lines, [t.weight for t in reaches[1].taps]), out)
        return self.unrows(_weighted(values, [_product([t.weight for t in c]) for c in combinations]), out)

    def input_gradient(self, grad: Value) -> Value:
        combinations = self.combinations_of_gradient(self.reaches())
        row, inside = self.places(combinations)
        g = self.rows(grad)
        if self.mode == BICUBIC:
            parts = [g * _column(x.weight) * _column(y.weight) for x, y in combinations]
        else:
            parts = [g * _column(_product([t.weight for t in c])) for c in combinations]
        updates = hlo.concatenate([hlo.unsqueeze(p, 1) for p in parts], 1)
        updates = hlo.select(hlo.broadcast_in_dim(inside, updates.shape, [0, 1]), updates, 0)
        if self.narrow and self.n == 2:
            row, updates = self.by_vectors(row), self.by_vectors(updates)
        total = hlo.scatter(
            hlo.full((self.input.shape[0] * math.prod(self.sizes), self.input.shape[1]), 0, g.dtype),
            hlo.reshape(row, (-1, 1)),
            hlo.reshape(updates, (-1, self.input.shape[1])),
            hlo.add,
            update_window_dims=[1],
            inserted=[0],
            scatter_map=[0],
        )
        return self.unrows(total, self.sizes)

    def by_vectors(self, x: Value) -> Value:
        """(points, combinations, ...) in the order in which the CPU's 2-d kernel adds: one combination after the other
        for each vector of a batch's points. The last vector is filled up with zeros.
        """
        split = hlo.reshape(x, (self.input.shape[0], -1, *x.shape[1:]))
        missing = -split.shape[1] % _VECTOR
        split = hlo.pad(split, [0] * split.ndim, [0, missing, *[0] * (split.ndim - 2)], 0)
        split = hlo.reshape(split, (split.shape[0], -1, _VECTOR, *split.shape[2:]))
        return hlo.permute(split, [0, 1, 3, 2, *range(4, split.ndim)])

    def grid_gradient(self, grad: Value) -> Value:
        if self.mode == NEAREST:
            return hlo.zeros_like(self.grid)
        reaches = self.reaches()
        combinations = self.combinations_of_gradient(reaches)
        values, g = self.values(combinations), self.rows(grad)
        columns = []
        for i, reach in enumerate(reaches):
            if self.mode == BICUBIC:
                terms = [_cubic_term(v, g, c, i) for v, c in zip(values, combinations, strict=True)]
            elif self.n == 2:
                terms = [_slope_of_square(values, g, reaches[1 - i], i)]
            else:
                terms = [_corner_term(v, g, c, i) for v, c in zip(values, combinations, strict=True)]
            columns.append(hlo.unsqueeze(self.over_channels(terms) * reach.scale, 1))
        return hlo.convert(hlo.reshape(hlo.concatenate(columns, 1), self.grid.shape), self.grid.dtype)

    def over_channels(self, terms: Sequence[Value]) -> Value:
        """The sum of (points, C) terms over channels and terms, a channel's terms together."""
        if not self.narrow:
            return hlo.sum_(functools.reduce(hlo.add, terms), 1)
        stacked = hlo.concatenate([hlo.unsqueeze(hlo.permute(t, [1, 0]), 1) for t in terms], 1)
        steps = hlo.reshape(stacked, (-1, stacked.shape[2]))

        def body(i: Value, total: Value) -> list[Value]:
            term = hlo.squeeze(hlo.dynamic_slice(steps, [i, 0], [1, steps.shape[1]]), 0)
            return [i + 1, total + term]

        carry = [hlo.constant(0, torch.int64), hlo.full((steps.shape[1],), 0, steps.dtype)]
        return hlo.while_loop(carry, lambda i, _: hlo.lt(i, steps.shape[0]), body)[1]


def _column(x: Value) -> Value:
    return hlo.unsqueeze(x, 1)


def _weighted(values: Sequence[Value], weights: Sequence[Value]) -> Value:
    return functools.reduce(hlo.add, [v * _column(w) for v, w in zip(values, weights, strict=True)])


def _corner_term(value: Value, g: Value, taps: Combination, i: int) -> Value:
    """A corner's part of the derivative by position i."""
    others = [t.weight for j, t in enumerate(taps) if j != i]
    return functools.reduce(lambda v, w: v * _column(w), others, value) * g * _column(taps[i].slope)


def _cubic_term(value: Value, g: Value, taps: Combination, i: int) -> Value:
    return value * g * _column(taps[i].slope) * _column(taps[1 - i].weight)


def _slope_of_square(values: Sequence[Value], g: Value, other: _Reach, i: int) -> Value:
    """The derivative by position i between the four corners (x fastest), weighted along the other dimension."""
    near, far = [values[0], values[2 - i]], [values[1 + i], values[3]]
    return _weighted([b - a for a, b in zip(near, far, strict=True)], [t.weight for t in other.taps]) * g


def _beside(columns: Sequence[Value]) -> Value:
    return hlo.concatenate([hlo.unsqueeze(c, 1) for c in columns], 1)


@lower("aten::grid_sampler_2d", "aten::grid_sampler_3d")
def grid_sampler(input: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Value:
    return _Sampler(input, grid, interpolation_mode, padding_mode, align_corners).forward()


@lower("aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward")
def grid_sampler_backward(
    grad_output: Value,
    input: Value,
    grid: Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Value | None, Value | None]:
    s = _Sampler(input, grid, interpolation_mode, padding_mode, align_corners)
    if grad_output.numel == 0 or input.numel == 0:
        return hlo.zeros_like(input) if output_mask[0] else None, hlo.zeros_like(grid)
    return s.input_gradient(grad_output) if output_mask[0] else None, s.grid_gradient(grad_output)
