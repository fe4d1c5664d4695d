"""segment_reduce: reductions over runs of one dimension given by lengths or offsets."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.ops.scatter import COMBINE, scatter_flat, scatter_rows
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value

_REDUCE = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}
_START = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


@dataclass(frozen=True)
class Segments:
    """Runs of every outer row: `rows` is the segment of each position (-1: none), `lengths` is 1-D."""

    outer: int
    count: int  # segments of one outer row
    rows: Value  # (outer * positions,), index into outer * count segments
    lengths: Value  # (outer * count,)

    def sums(self, x: Value, start: Scalar, reduce: str) -> Value:
        """x of shape (outer * positions, inner) reduced to (outer * count, inner)."""
        into = hlo.full((self.outer * self.count, x.shape[1]), start, x.dtype)
        return scatter_rows(into, 0, self.rows, x, COMBINE[reduce])

    def spread(self, x: Value) -> Value:
        """Each position's own entry of (outer * count, inner); anything where it has none."""
        return hlo.take_rows(x, hlo.maximum(self.rows, 0))


def _segments(data: Value, lengths: Value | None, offsets: Value | None, axis: int) -> Segments:
    outer, n = math.prod(data.shape[:axis]), data.shape[axis]
    if offsets is not None:
        bounds = hlo.reshape(hlo.convert(offsets, torch.int64), (outer, offsets.shape[axis]))
        count = bounds.shape[1] - 1
        begins, ends = hlo.slice_dim(bounds, 1, 0, count), hlo.slice_dim(bounds, 1, 1, count + 1)
    elif lengths is not None:
        count = lengths.shape[axis]
        sizes = hlo.reshape(hlo.convert(lengths, torch.int64), (outer, count))
        (ends,) = hlo.cumulative([sizes], [0], 1, lambda a, b: [a + b])
        begins = ends - sizes
    else:
        raise Unsupported("segment_reduce with neither lengths nor offsets")
    # Segment of a position: the number of segments that end at or before it.
    row = hlo.iota((outer, count), 0) * (n + 1)
    marks = hlo.full((outer * (n + 1),), 0, torch.int64)
    ones = hlo.full((outer * count,), 1, torch.int64)
    marks = scatter_flat(marks, hlo.flatten(row + hlo.clamp(0, ends, n)), ones, hlo.add)
    (passed,) = hlo.cumulative([hlo.reshape(marks, (outer, n + 1))], [0], 1, lambda a, b: [a + b])
    segment = hlo.slice_dim(passed, 1, 0, n)
    first = hlo.slice_dim(begins, 1, 0, 1)
    inside = hlo.lt(segment, count) & hlo.ge(hlo.iota((outer, n), 1), first)
    rows = hlo.select(inside, segment + hlo.iota((outer, n), 0) * count, -1)
    return Segments(outer, count, hlo.flatten(rows), hlo.flatten(ends - begins))


def _check(data: Value, lengths: Value | None, axis: int) -> None:
    if lengths is None or not lengths.numel:
        return
    require(hlo.all_(hlo.ge(lengths, 0)), "RuntimeError", "segment_reduce(): lengths contains a negative value")
    totals = hlo.sum_(hlo.convert(lengths, torch.int64), axis)
    text = f"segment_reduce(): lengths must sum to {data.shape[axis]} along dimension {axis} unless unsafe=True"
    require(hlo.all_(hlo.eq(totals, data.shape[axis])), "RuntimeError", text)


@lower("aten::segment_reduce")
def segment_reduce(
    data: Value,
    reduce: str,
    *,
    lengths: Value | None = None,
    indices: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Scalar | None = None,
) -> Value:
    if indices is not None:
        raise Unsupported("segment_reduce with indices (torch has no such kernel)")
    axis %= data.ndim
    if not unsafe:
        _check(data, lengths, axis)
    s = _segments(data, lengths, offsets, axis)
    shape = (*data.shape[:axis], s.count, *data.shape[axis + 1 :])
    if not math.prod(shape):
        return hlo.full(shape, 0, data.dtype)
    dtype = data.dtype  # torch's kernel rounds at every step
    start = hlo.convert(hlo.as_value(_START[reduce] if initial is None else initial), dtype)
    inner = math.prod(data.shape[axis + 1 :])
    x = hlo.reshape(hlo.convert(data, dtype), (s.outer * data.shape[axis], inner))
    out = s.sums(x, start, _REDUCE[reduce]) if x.numel else hlo.full((s.outer * s.count, inner), start, dtype)
    if reduce == "mean":
        sizes = hlo.reshape(hlo.convert(s.lengths, dtype), (s.outer * s.count, 1))
        mean = hlo.divide(out, hlo.maximum(sizes, 1))
        out = mean if initial is not None else hlo.select(hlo.gt(sizes, 0), mean, math.nan)
    return hlo.convert(hlo.reshape(out, shape), data.dtype)


@lower("aten::_segment_reduce_backward")
def segment_reduce_backward(
    grad: Value,
    output: Value,
    data: Value,
    reduce: str,
    *,
    lengths: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    initial: Scalar | None = None,
) -> Value:
    axis %= data.ndim
    if not data.numel or not grad.numel:
        return hlo.full(data.shape, 0, grad.dtype)
    s = _segments(data, lengths, offsets, axis)
    dtype, inner = data.dtype, math.prod(data.shape[axis + 1 :])
    x = hlo.reshape(hlo.convert(data, dtype), (s.outer * data.shape[axis], inner))
    g, out = (hlo.reshape(hlo.convert(v, dtype), (s.outer * s.count, inner)) for v in (grad, output))
    here = s.spread(g)
    if reduce in ("max", "min"):
        here = _to_extremes(s, x, here, s.spread(out))
    elif reduce == "mean":
        here = hlo.divide(here, s.spread(hlo.reshape(hlo.convert(s.lengths, dtype), (s.outer * s.count, 1))))
    elif reduce == "prod":
        start = hlo.convert(hlo.as_value(_START["prod"] if initial is None else initial), dtype)
        here = _to_factors(s, x, here, s.spread(out), start)
    inside = hlo.reshape(hlo.ge(s.rows, 0), (s.rows.numel, 1))
    return hlo.convert(hlo.reshape(hlo.select(inside, here, 0), data.shape), grad.dtype)


def _to_extremes(s: Segments, x: Value, grad: Value, extreme: Value) -> Value:
    """Equal extremes share a positive gradient; each gets all of another one (as torch's kernel does)."""
    hit = hlo.eq(x, extreme) | hlo.is_nan(x)
    hits = s.spread(s.sums(hlo.convert(hit, x.dtype), 0, "sum"))
    shared = hlo.select(hlo.gt(grad, 0), hlo.divide(grad, hlo.maximum(hits, 1)), grad)
    return hlo.select(hit, shared, 0)


def _to_factors(s: Segments, x: Value, grad: Value, product: Value, start: Value) -> Value:
    """grad * product / x, and the product of the others where x is 0 or NaN."""
    zero, nan = hlo.eq(x, 0), hlo.is_nan(x)
    plain = s.spread(s.sums(hlo.select(zero | nan, 1, x), start, "prod"))
    zeros = s.spread(s.sums(hlo.convert(zero, x.dtype), 0, "sum")) - hlo.convert(zero, x.dtype)
    nans = s.spread(s.sums(hlo.convert(nan, x.dtype), 0, "sum")) - hlo.convert(nan, x.dtype)
    others = hlo.select(hlo.gt(zeros, 0), 0, plain)
    others = hlo.select(hlo.gt(nans, 0), math.nan, others)
    return hlo.select(zero | nan, grad * others, hlo.divide(grad * product, x))
