"""grid_sampler in two and three dimensions: rows of a channels-last input gathered at run-time points.

A point reads a combination of taps, one per dimension: an integer coordinate and a weight. One
gather (or scatter) serves all combinations.
Coordinates are kept in the grid's order: x (the last spatial dimension) first.
"""

from __future__ import annotations

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


def _taps(axis: _Axis, x: Value, mode: int) -> list[_Tap]:
    """The taps of one dimension for coordinates x in [-1, 1]; slopes are by x."""
    position, scale = axis.position(x)
    one = hlo.ones_like(position)
    if mode == BICUBIC:
        whole = hlo.floor(position)
        t = position - whole
        weights = cubic_weights(t, -0.75)
        slopes = _cubic_slopes(t, -0.75)
        taps = []
        for i in range(4):
            at, _ = axis.contained(whole + (i - 1))
            taps.append(_Tap(at, weights[i], slopes[i] * scale))
        return taps
    position, slope = axis.contained(position)
    if mode == NEAREST:
        return [_Tap(hlo.round_even(position), one, hlo.zeros_like(one))]
    whole = hlo.floor(position)
    t = position - whole
    return [_Tap(whole, 1 - t, -slope * scale), _Tap(whole + 1, t, slope * scale)]


def _cubic_slopes(t: Value, a: float) -> list[Value]:
    """Derivatives of cubic_weights by t."""

    def near(x: Value) -> Value:
        return (3 * (a + 2) * x - 2 * (a + 3)) * x

    def far(x: Value) -> Value:
        return (3 * a * x - 10 * a) * x + 8 * a

    return [far(t + 1), near(t), -near(1 - t), -far(2 - t)]


def _product(factors: Sequence[Value]) -> Value:
    return math.prod(factors[1:], start=factors[0])


@dataclass(frozen=True)
class _Plan:
    """Where each point reads, (points, combinations of taps); one slope per dimension of the grid."""

    row: Value
    inside: Value
    weight: Value
    slopes: list[Value]


@dataclass(frozen=True)
class _Sampler:
    """input (N, C, *spatial), grid (N, *out, n): rows are points, all batches and positions flattened."""

    input: Value
    grid: Value
    mode: int
    padding: int
    align_corners: bool

    @property
    def n(self) -> int:
        return self.input.ndim - 2

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.input.shape[2:]

    def rows(self, x: Value) -> Value:
        """Channels last, one row per position: (N * positions, C)."""
        last = hlo.permute(x, [0, *range(2, x.ndim), 1])
        return hlo.reshape(hlo.convert(last, compute_dtype(x.dtype)), (-1, x.shape[1]))

    def unrows(self, rows: Value, spatial: Sequence[int], dtype: torch.dtype) -> Value:
        n, c = self.input.shape[:2]
        shaped = hlo.reshape(rows, (n, *spatial, c))
        return hlo.convert(hlo.permute(shaped, [0, shaped.ndim - 1, *range(1, shaped.ndim - 1)]), dtype)

    def axes(self) -> list[_Axis]:
        """In the grid's order, x first."""
        return [_Axis(size, self.padding, self.align_corners) for size in reversed(self.sizes)]

    def taps(self) -> list[list[_Tap]]:
        inner = compute_dtype(self.input.dtype)
        points = hlo.reshape(hlo.convert(self.grid, inner), (-1, self.n))
        columns = [hlo.squeeze(hlo.slice_dim(points, 1, i, i + 1), 1) for i in range(self.n)]
        return [_taps(axis, x, self.mode) for axis, x in zip(self.axes(), columns, strict=True)]

    def index(self, taps: Sequence[_Tap]) -> tuple[Value, Value]:
        """(row of the input, whether the point is inside) of one tap per dimension."""
        inside = hlo.full(taps[0].at.shape, True, torch.bool)
        for axis, tap in zip(self.axes(), taps, strict=True):
            inside = inside & axis.inside(tap.at)
        per_batch = inside.numel // self.input.shape[0]
        row = hlo.divide(hlo.iota((inside.numel,), 0), max(per_batch, 1))
        for size, tap in zip(self.sizes, reversed(taps), strict=True):
            row = row * size + hlo.convert(hlo.select(inside, tap.at, 0), torch.int64)
        return row, inside

    def plan(self) -> _Plan:
        """All combinations of taps side by side: (points, combinations)."""
        combinations = list(itertools.product(*self.taps()))
        rows, insides = zip(*(self.index(c) for c in combinations), strict=True)
        weights = [_product([t.weight for t in c]) for c in combinations]
        slopes = [
            [_product([t.slope if j == i else t.weight for j, t in enumerate(c)]) for c in combinations]
            for i in range(self.n)
        ]
        return _Plan(_beside(rows), _beside(insides), _beside(weights), [_beside(s) for s in slopes])

    def values(self, plan: _Plan) -> Value:
        """(points, combinations, C): zero outside of the input."""
        taken = hlo.take_rows(self.rows(self.input), plan.row)
        return hlo.select(hlo.broadcast_in_dim(plan.inside, taken.shape, [0, 1]), taken, 0)

    def forward(self) -> Value:
        out = self.grid.shape[1:-1]
        shape = (*self.input.shape[:2], *out)
        if 0 in shape or 0 in self.input.shape:
            return hlo.full(shape, 0, self.input.dtype)
        plan = self.plan()
        total = hlo.sum_(self.values(plan) * hlo.unsqueeze(plan.weight, 2), 1)
        return self.unrows(total, out, self.input.dtype)

    def input_gradient(self, grad: Value) -> Value:
        g, plan = hlo.unsqueeze(self.rows(grad), 1), self.plan()
        updates = g * hlo.unsqueeze(plan.weight, 2)
        updates = hlo.select(hlo.broadcast_in_dim(plan.inside, updates.shape, [0, 1]), updates, 0)
        total = hlo.scatter(
            hlo.full((self.input.shape[0] * math.prod(self.sizes), self.input.shape[1]), 0, g.dtype),
            hlo.reshape(plan.row, (-1, 1)),
            hlo.reshape(updates, (-1, self.input.shape[1])),
            hlo.add,
            update_window_dims=[1],
            inserted=[0],
            scatter_map=[0],
        )
        return self.unrows(total, self.sizes, self.input.dtype)

    def grid_gradient(self, grad: Value) -> Value:
        if self.mode == NEAREST:
            return hlo.zeros_like(self.grid)
        plan = self.plan()
        dot = hlo.sum_(self.values(plan) * hlo.unsqueeze(self.rows(grad), 1), 2)
        columns = [hlo.unsqueeze(hlo.sum_(hlo.select(plan.inside, dot * s, 0), 1), 1) for s in plan.slopes]
        return hlo.convert(hlo.reshape(hlo.concatenate(columns, 1), self.grid.shape), self.grid.dtype)


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
