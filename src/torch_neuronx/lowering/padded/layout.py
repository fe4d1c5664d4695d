"""Values with padded dimensions: masking, regrouping, and moving from one padding to another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.padded.sizes import NeedsExact, bound_of, dim_of, quotient, same, size_of, value_of
from torch_neuronx.lowering.value import Dim, Factor, Scalar, Size, Value, static_dims


def physical(x: Value) -> Value:
    """The same array with its padding taken for data."""
    return replace(x, dims=static_dims(x.shape))


def with_dims(x: Value, dims: Sequence[Dim]) -> Value:
    """An array of the dimensions' bounds, with their padding known."""
    if x.shape != tuple(d.bound for d in dims):
        raise RuntimeError(f"an array of {x.shape} is no {[d.bound for d in dims]}")
    return replace(x, dims=tuple(dims))


def is_padded(x: Value) -> bool:
    return any(d.padded for d in x.dims)


def sizes_of(x: Value) -> tuple[Size, ...]:
    return tuple(size_of(d) for d in x.dims)


def is_prefix(dim: Dim) -> bool:
    """Whether the valid part comes first and the padding after it."""
    return not any(f.padded for f in dim.factors[1:])


def valid(dim: Dim) -> Value | None:
    """bool (bound,): which places of a dimension are no padding; None when there is none."""
    if not dim.padded:
        return None
    place = hlo.iota((dim.bound,), 0, torch.int64)
    ok: Value | None = None
    inner = dim.bound
    for f in dim.factors:
        inner //= f.bound
        if f.padded:
            at = hlo.remainder(hlo.divide(place, inner), f.bound) if len(dim.factors) > 1 else place
            held = hlo.lt(at, hlo.broadcast_to(value_of(f.size), (dim.bound,)))
            ok = held if ok is None else hlo.and_(ok, held)
    return ok


def mask(x: Value, dims: Sequence[int], fill: Scalar) -> Value:
    """x with `fill` in the place of garbage along `dims`."""
    out = physical(x)
    for d in dims:
        ok = valid(x.dims[d])
        if ok is not None:
            spread = hlo.broadcast_in_dim(ok, x.shape, [d])
            out = hlo.select(spread, out, hlo.full(x.shape, fill, x.dtype))
    return replace(out, dims=x.dims)


def merged(dim: Dim) -> Dim:
    """Neighbouring factors that are not padded are one."""
    factors: list[Factor] = []
    for f in dim.factors:
        if f.bound == 1 and not f.padded:
            continue
        if factors and not f.padded and not factors[-1].padded:
            last = factors.pop()
            f = Factor(last.size * f.size, last.bound * f.bound)
        factors.append(f)
    return Dim(tuple(factors) or (Factor(1, 1),))


def regroup(x: Value, sizes: Sequence[Size]) -> Value:
    """x.view(sizes): factors are kept in order and grouped anew; where that cannot be, elements move."""
    dims = _regrouped([f for d in x.dims for f in d.factors], sizes)
    if dims is None:
        return relayout(x, [dim_of(s) for s in sizes])
    return with_dims(hlo.reshape(physical(x), [d.bound for d in dims]), dims)


def _regrouped(factors: list[Factor], sizes: Sequence[Size]) -> list[Dim] | None:
    left = [f for f in factors if not (f.bound == 1 and not f.padded)]
    dims = []
    for wanted in sizes:
        need: Size = wanted
        group: list[Factor] = []
        while not same(need, 1):
            if not left:
                return None
            f = left.pop(0)
            rest = quotient(need, f.size)
            if rest is not None:
                group.append(f)
                need = rest
                continue
            inner = quotient(f.size, need)
            if not isinstance(inner, int) or f.bound % inner:
                return None
            group.append(Factor(need, f.bound // inner))
            left.insert(0, Factor(inner, inner))
            need = 1
        dims.append(merged(Dim(tuple(group))))
    return dims if not left else None


def relayout(x: Value, dims: Sequence[Dim]) -> Value:
    """The same elements in row-major order under other dimensions: one gather, the last resort that always works."""
    shape = tuple(d.bound for d in dims)
    if not x.numel:  # there is nothing to gather from, so all there is room for is garbage
        return with_dims(hlo.full(shape, 0, x.dtype), dims)
    linear = _logical_index(dims, shape)
    places = _physical_place(x.dims, linear)
    moved = hlo.take_rows(hlo.flatten(physical(x)), hlo.reshape(places, (math.prod(shape),)))
    return with_dims(hlo.reshape(moved, shape), dims)


def _logical_index(dims: Sequence[Dim], shape: tuple[int, ...]) -> Value:
    """The row-major index among valid elements of every place of an array with these dimensions."""
    place = hlo.reshape(hlo.iota((math.prod(shape),), 0, torch.int64), shape)
    index = hlo.zeros_like(place)
    step = hlo.constant(1, torch.int64)
    inner = 1
    for dim in reversed(dims):
        for f in reversed(dim.factors):
            at = hlo.remainder(hlo.divide(place, inner), f.bound)
            index = index + at * hlo.broadcast_to(step, shape)
            step = step * value_of(f.size)
            inner *= f.bound
    return index


def places(dims: Sequence[Dim]) -> Value:
    """int64 (number of places,): the row-major index among valid elements of each; any in the padding."""
    shape = tuple(d.bound for d in dims)
    return hlo.flatten(_logical_index(dims, shape))


def _physical_place(dims: Sequence[Dim], linear: Value) -> Value:
    """Where the element with a row-major index lies in an array with these dimensions; in range for any index."""
    place = hlo.zeros_like(linear)
    inner = 1
    rest = linear
    for dim in reversed(dims):
        for f in reversed(dim.factors):
            size = hlo.broadcast_to(hlo.maximum(value_of(f.size), hlo.constant(1, torch.int64)), linear.shape)
            place = place + hlo.remainder(rest, size) * inner
            rest = hlo.divide(rest, size)
            inner *= f.bound
    return place


def along(x: Value, d: int, dim: Dim) -> Value:
    """x with dimension d padded as `dim`, which has the same size: one gather of rows."""
    if merged(x.dims[d]) == merged(dim):
        return x
    linear = _logical_index([dim], (dim.bound,))
    places = _physical_place([x.dims[d]], linear)
    moved = hlo.take_rows(physical(x), places, d)
    return with_dims(moved, [*x.dims[:d], dim, *x.dims[d + 1 :]])


def window(x: Value, d: int, start: Value, extent: int) -> Value:
    """Places start ... start + extent - 1 along d; beyond the array there is garbage, and no start is moved."""
    zero = hlo.constant(0, torch.int64)
    high = [extent if i == d else 0 for i in range(x.ndim)]
    wide = hlo.pad(physical(x), [0] * x.ndim, high)
    starts = [start if i == d else zero for i in range(x.ndim)]
    return hlo.dynamic_slice(wide, starts, [extent if i == d else n for i, n in enumerate(x.shape)])


def picked(x: Value, d: int, source: Value, dim: Dim) -> Value:
    """Places source[i] along d of x, padded behind there, for every place i of `dim`; any for the garbage's."""
    room = max(x.shape[d] - 1, 0)
    if not x.numel:
        shape = [dim.bound if i == d else n for i, n in enumerate(x.shape)]
        return with_dims(hlo.full(shape, 0, x.dtype), [*x.dims[:d], dim, *x.dims[d + 1 :]])
    moved = hlo.take_rows(physical(x), hlo.clamp(0, source, room), d)
    return with_dims(moved, [*x.dims[:d], dim, *x.dims[d + 1 :]])


def common(dims: Sequence[Dim]) -> Dim:
    """The dimension that operands of one size are brought to: theirs if they agree, else padded behind."""
    first = dims[0]
    if all(merged(d) == merged(first) for d in dims):
        return first
    if not all(same(size_of(d), size_of(first)) for d in dims):
        raise NeedsExact(f"sizes {[size_of(d) for d in dims]} meet")
    prefix = [d for d in dims if is_prefix(d)]
    return prefix[0] if prefix else Dim((Factor(size_of(first), bound_of(size_of(first))),))


def broadcast(xs: Sequence[Value]) -> tuple[list[Value], tuple[Dim, ...]]:
    """Operands of an elementwise op with equal padding, and the result's dimensions."""
    ndim = max((x.ndim for x in xs), default=0)
    dims: list[Dim] = []
    for i in range(ndim):
        there = [x.dims[i - ndim + x.ndim] for x in xs if i - ndim + x.ndim >= 0]
        wide = [d for d in there if d.padded or d.bound != 1]
        dims.append(common(wide) if wide else there[0])
    out = []
    for x in xs:
        for d in range(x.ndim):
            target = dims[ndim - x.ndim + d]
            if x.dims[d].padded or (x.dims[d].bound != 1):
                x = along(x, d, target)
        out.append(x)
    return out, tuple(dims)


def dims_for(sizes: Sequence[Size], sources: Sequence[Value]) -> list[Dim]:
    """Dimensions of a result: for a size that is no number, the one of an operand that has it."""
    known = [d for x in sources for d in x.dims if d.padded]
    out = []
    for s in sizes:
        if isinstance(s, int):
            out.append(Dim.static(s))
            continue
        found = next((d for d in known if same(size_of(d), s)), None)
        out.append(found if found is not None else dim_of(s))
    return out
