"""Binary search and counting into bins."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import INTEGER, compute_dtype
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.ops.unique import scatter_rows
from torch_neuronx.lowering.promotion import promote
from torch_neuronx.lowering.table import in_steps, lower
from torch_neuronx.lowering.value import Scalar, Value

Find = Callable[[Value, Value], tuple[Value, Value]]
_SCAN_LIMIT = 32  # shorter sequences are compared with every element instead of searched


def _search(sequence: Value, x: Value, right: bool) -> Value:
    """int64 insertion points of x (..., m) in sequence (n,) or (..., n), sorted along the last dim.

    Decides as torch's loops do, so NaN lands where it does there.
    """
    n = sequence.shape[-1]
    if n == 0 or x.numel == 0:
        return hlo.full(x.shape, 0, torch.int64)

    def before(at: Value, v: Value) -> Value:
        return hlo.not_(hlo.gt(at, v) if right else hlo.ge(at, v))

    # what a NaN in the sequence hides, only a search tells
    if n <= _SCAN_LIMIT and not sequence.dtype.is_floating_point:
        wide = hlo.reshape(sequence, (*sequence.shape[:-1], 1, n)) if sequence.ndim > 1 else sequence
        passed = before(wide, hlo.reshape(x, (*x.shape, 1)))
        return hlo.sum_(hlo.convert(passed, torch.int64), -1)
    low = hlo.full(x.shape, 0, torch.int64)
    high = hlo.full(x.shape, n, torch.int64)
    for _ in range(n.bit_length()):
        middle = hlo.shift_right_arithmetic(low + high, 1)
        probe = hlo.minimum(middle, n - 1)
        at = hlo.take_rows(sequence, probe) if sequence.ndim == 1 else hlo.take_along(sequence, probe, -1)
        go = before(at, x) & hlo.lt(low, high)
        low, high = hlo.select(go, middle + 1, low), hlo.select(go | hlo.ge(low, high), high, middle)
    return low


def _searchsorted(
    sequence: Value, x: Value, out_int32: bool, right: bool, side: str | None, sorter: Value | None
) -> Value:
    if sorter is not None and sequence.numel:
        order = hlo.convert(sorter, torch.int64)
        inside = hlo.all_(hlo.ge(order, 0) & hlo.lt(order, sequence.shape[-1]))
        require(inside, "RuntimeError", "torch.searchsorted(): sorter index out of range")
        sequence = hlo.take_along(sequence, order, -1)
    _, (s, v) = promote(sequence, x)
    found = _search(s, hlo.reshape(v, (1,)) if v.ndim == 0 else v, right or side == "right")
    return hlo.convert(hlo.reshape(found, x.shape), torch.int32 if out_int32 else torch.int64)


@lower("aten::searchsorted.Tensor", "aten::searchsorted.Scalar")
def searchsorted(
    sorted_sequence: Value,
    self: Scalar,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    return _searchsorted(sorted_sequence, hlo.as_value(self), out_int32, right, side, sorter)


@lower("aten::bucketize.Tensor", "aten::bucketize.Scalar")
def bucketize(self: Scalar, boundaries: Value, *, out_int32: bool = False, right: bool = False) -> Value:
    return _searchsorted(boundaries, hlo.as_value(self), out_int32, right, None, None)


def _count(bins: int, place: Value, inside: Value, weight: Value) -> Value:
    """Sums weight (1-D) into bins at `place` where inside; the rest is dropped out of range."""
    target = hlo.select(inside, place, bins)
    return scatter_rows(hlo.full((bins,), 0, weight.dtype), target, weight, add=True)


def _bounds(x: Value, low: float, high: float, margin: float) -> tuple[Value, Value]:
    """The range of a histogram: the data's when low == high; an empty range grows by `margin` on both sides."""
    lo, hi = hlo.constant(low, x.dtype), hlo.constant(high, x.dtype)
    if low == high and x.numel:
        lo, hi = hlo.reduce_min(x), hlo.reduce_max(x)
        require(hlo.is_finite(lo) & hlo.is_finite(hi), "RuntimeError", "range of the data is not finite")
    flat = hlo.eq(lo, hi)
    return hlo.select(flat, lo - margin, lo), hlo.select(flat, hi + margin, hi)


def _linear_place(x: Value, low: Value, high: Value, bins: int) -> tuple[Value, Value]:
    inside = hlo.ge(x, low) & hlo.le(x, high)
    place = hlo.convert((x - low) * float(bins) / (high - low), torch.int64)
    return hlo.clamp(0, place, bins - 1), inside


@lower("aten::histc", attributes=["min", "max"])
def histc(self: Value, bins: int = 100, min: float = 0, max: float = 0) -> Value:
    # torch places low-precision elements with their own arithmetic
    x = hlo.flatten(self) if self.dtype.is_floating_point else hlo.convert(hlo.flatten(self), torch.float64)
    low, high = _bounds(x, float(min), float(max), 1.0)
    place, inside = _linear_place(x, low, high, bins)
    return hlo.convert(_count(bins, place, inside, hlo.full(x.shape, 1.0, compute_dtype(x.dtype))), self.dtype)


def _edges(low: Value, high: Value, bins: int) -> Value:
    """torch.linspace(low, high, bins + 1): computed from the nearer end."""
    step = (high - low) / float(bins)
    i = hlo.convert(hlo.iota((bins + 1,), 0), low.dtype)
    up, down = low + step * i, high - step * (float(bins) - i)
    return hlo.select(hlo.lt(hlo.iota((bins + 1,), 0), (bins + 1) // 2), up, down)


def _density(hist: Value, edges: Value, density: bool) -> Value:
    if not density:
        return hist
    n = hist.numel
    widths = hlo.slice_dim(edges, 0, 1, n + 1) - hlo.slice_dim(edges, 0, 0, n)
    return hist / widths / hlo.sum_(hist)


def _weights(x: Value, weight: Value | None) -> Value:
    return hlo.full(x.shape, 1.0, x.dtype) if weight is None else hlo.convert(hlo.flatten(weight), x.dtype)


def _between(edges: Value, x: Value) -> tuple[Value, Value]:
    """(bin, inside) for increasing edges; the last bin is closed on both sides."""
    n = edges.numel
    place = _search(edges, x, True) - 1
    inside = hlo.ge(x, hlo.slice_dim(edges, 0, 0, 1)) & hlo.le(x, hlo.slice_dim(edges, 0, n - 1, n))
    return hlo.clamp(0, place, n - 2), inside


def _range_edges(x: Value, given: Sequence[float] | None, bins: int) -> Value:
    """bins + 1 equal steps over the given range or the data's."""
    low, high = given if given is not None else (0.0, 0.0 if x.numel else 1.0)
    return _edges(*_bounds(x, float(low), float(high), 0.5), bins)


def _equal_place(x: Value, edges: Value) -> tuple[Value, Value]:
    """(bin, inside) for equally spaced edges, exact next to them."""
    bins = edges.numel - 1
    low, high = (hlo.reshape(hlo.slice_dim(edges, 0, i, i + 1), ()) for i in (0, bins))
    place, inside = _linear_place(x, low, high, bins)
    # the division may land one bin off next to an edge: torch moves such elements
    at = hlo.take_rows(edges, place)
    place = hlo.select(hlo.lt(x, at), place - 1, place)
    after = hlo.take_rows(edges, hlo.clamp(0, place + 1, bins))
    place = hlo.select(hlo.ge(x, after) & hlo.lt(place + 1, bins), place + 1, place)
    return place, inside


@lower("aten::histogram.bin_ct")
def histogram(
    self: Value,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> tuple[Value, Value]:
    x = hlo.flatten(self)
    edges = _range_edges(x, range, bins)
    place, inside = _equal_place(x, edges)
    hist = _count(bins, place, inside, _weights(x, weight))
    return _density(hist, edges, density), edges


@lower("aten::histogram.bins_tensor")
def histogram_edges(
    self: Value, bins: Value, *, weight: Value | None = None, density: bool = False
) -> tuple[Value, Value]:
    x = hlo.flatten(self)
    place, inside = _between(bins, x)
    hist = _count(bins.numel - 1, place, inside, _weights(x, weight))
    return _density(hist, bins, density), bins


def _columns(self: Value) -> list[Value]:
    """The coordinates of (..., D) points, one 1-D value each."""
    d = self.shape[-1]
    points = hlo.reshape(self, (self.numel // d if d else 0, d))
    return [hlo.flatten(hlo.slice_dim(points, 1, i, i + 1)) for i in range(d)]


def _joint(self: Value, edges: Sequence[Value], find: Find, weight: Value | None, density: bool) -> Value:
    """The D-dimensional histogram of points for the edges of each dimension."""
    columns = _columns(self)
    sizes = [e.numel - 1 for e in edges]
    place, inside = hlo.full((columns[0].numel,), 0, torch.int64), hlo.full((columns[0].numel,), True, torch.bool)
    for x, e, n in zip(columns, edges, sizes, strict=True):
        at, within = find(x, e)
        place, inside = place * n + at, inside & within
    hist = hlo.reshape(_count(math.prod(sizes), place, inside, _weights(columns[0], weight)), sizes)
    if density:
        total = hlo.sum_(hist)
        for d, (e, n) in enumerate(zip(edges, sizes, strict=True)):
            widths = hlo.slice_dim(e, 0, 1, n + 1) - hlo.slice_dim(e, 0, 0, n)
            hist = hist / hlo.reshape(widths, [n if i == d else 1 for i in range(len(sizes))])
        hist = hist / total
    return hist


@lower("aten::_histogramdd_bin_edges")
def histogramdd_edges(
    self: Value,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> list[Value]:
    limits = [None if range is None else range[2 * i : 2 * i + 2] for i, _ in enumerate(bins)]
    return [_range_edges(x, r, n) for x, r, n in zip(_columns(self), limits, bins, strict=True)]


@lower("aten::_histogramdd_from_bin_cts")
def histogramdd_counts(
    self: Value,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> Value:
    return _joint(self, histogramdd_edges(self, bins, range=range), _equal_place, weight, density)


@lower("aten::_histogramdd_from_bin_tensors")
def histogramdd_tensors(
    self: Value, bins: Sequence[Value], *, weight: Value | None = None, density: bool = False
) -> Value:
    return _joint(self, bins, lambda x, e: _between(e, x), weight, density)


@lower("aten::bincount")
def bincount(self: Value, weights: Value | None = None, minlength: int = 0) -> Value:
    raise Unsupported("the number of bins is one more than the largest element")


@in_steps("aten::bincount")
def bincount_in_steps(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if self.dtype not in INTEGER:
        raise NotImplementedError(f"bincount is not implemented for {self.dtype}. Convert the input with .long().")
    low, high = (int(v) for v in torch.aminmax(self)) if self.numel() else (0, -1)
    if self.dim() != 1 or low < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and weights.shape != self.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    kept = weights is not None and weights.dtype is torch.float32
    dtype = torch.int64 if weights is None else torch.float32 if kept else torch.float64
    ones = torch.ones_like(self, dtype=dtype) if weights is None else weights.to(dtype)
    bins = torch.zeros(max(high + 1, minlength), dtype=dtype, device=self.device)
    return bins.index_add(0, self.long(), ones)
