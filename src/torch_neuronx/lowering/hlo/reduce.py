"""Reductions, windows and scans."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx.lowering.dtypes import max_value, min_value, tensor_type
from torch_neuronx.lowering.hlo import elementwise as ew
from torch_neuronx.lowering.hlo.literal import constant, iota
from torch_neuronx.lowering.hlo.mask import mask
from torch_neuronx.lowering.hlo.shape import reshape
from torch_neuronx.lowering.value import Scalar, Value, static_dims

Combine = Callable[[Value, Value], Value]


def _region(op: ir.OpView, dtypes: Sequence[torch.dtype], body: Callable[..., Sequence[Value]]) -> None:
    """Fills a region over pairs of scalars: (a0, a1, ..., b0, b1, ...) -> results."""
    types = [tensor_type((), d) for d in dtypes]
    block = op.regions[0].blocks.append(*types, *types)
    with ir.InsertionPoint(block):
        values = [Value(a, d, ()) for a, d in zip(block.arguments, [*dtypes, *dtypes], strict=True)]
        stablehlo.return_([v.ssa for v in body(*values)])


def reduce(
    xs: Sequence[Value], inits: Sequence[Scalar], dims: Sequence[int], body: Callable[..., Sequence[Value]]
) -> list[Value]:
    """Variadic reduce; the reduced dimensions are dropped. `body(*accumulators, *elements)`."""
    drop = sorted(d % xs[0].ndim for d in dims)
    kept = [d for i, d in enumerate(xs[0].dims) if i not in drop]
    xs = [mask(x, drop, init) for x, init in zip(xs, inits, strict=True)]
    seeds = [i.strong() if isinstance(i, Value) else constant(i, x.dtype) for i, x in zip(inits, xs, strict=True)]
    types = [tensor_type([d.bound for d in kept], x.dtype) for x in xs]
    op = stablehlo.ReduceOp(types, [x.ssa for x in xs], [s.ssa for s in seeds], drop)
    _region(op, [x.dtype for x in xs], body)
    return [Value(r, x.dtype, tuple(kept)) for r, x in zip(op.results, xs, strict=True)]


def _axes(x: Value, dims: Sequence[int] | int | None) -> list[int]:
    if dims is None:
        return list(range(x.ndim))
    return [d % x.ndim for d in ([dims] if isinstance(dims, int) else dims)]


def map_single(x: Value, init: Scalar, dims: Sequence[int] | int | None, keepdim: bool, combine: Combine) -> Value:
    axes = _axes(x, dims)
    if not axes:
        return x
    (out,) = reduce([x], [init], axes, lambda a, b: [combine(a, b)])
    return reshape(out, [1 if i in axes else n for i, n in enumerate(x.shape)]) if keepdim else out


def sum_(x: Value, dims: Sequence[int] | int | None = None, keepdim: bool = False) -> Value:
    """Sum in x's own dtype; convert first to accumulate wider. None reduces everything."""
    return map_single(x, 0, dims, keepdim, ew.add)


def prod(x: Value, dims: Sequence[int] | int | None = None, keepdim: bool = False) -> Value:
    return map_single(x, 1, dims, keepdim, ew.multiply)


def reduce_max(x: Value, dims: Sequence[int] | int | None = None, keepdim: bool = False) -> Value:
    """Maximum; NaN wins. Bool means any."""
    return map_single(x, min_value(x.dtype), dims, keepdim, ew.maximum)


def reduce_min(x: Value, dims: Sequence[int] | int | None = None, keepdim: bool = False) -> Value:
    """Minimum; NaN wins. Bool means all."""
    return map_single(x, max_value(x.dtype), dims, keepdim, ew.minimum)


def any_(x: Value, dims: Sequence[int] | int | None = None, keepdim: bool = False) -> Value:
    return map_single(x, False, dims, keepdim, ew.or_)


def all_(x: Value, dims: Sequence[int] | int | None = None, keepdim: bool = False) -> Value:
    return map_single(x, True, dims, keepdim, ew.and_)


def argreduce(x: Value, dim: int, largest: bool) -> tuple[Value, Value]:
    """(value, int64 index) of the first maximum or minimum along dim; NaN wins. The dim is dropped."""
    dim = dim % x.ndim
    better = ew.gt if largest else ew.lt

    def body(av: Value, ai: Value, bv: Value, bi: Value) -> list[Value]:
        wins = better(av, bv)
        if x.dtype.is_floating_point:
            wins = wins | (ew.is_nan(av) & ew.not_(ew.is_nan(bv)))
            tie = ew.eq(av, bv) | (ew.is_nan(av) & ew.is_nan(bv))
        else:
            tie = ew.eq(av, bv)
        take_a = wins | (tie & ew.lt(ai, bi))
        return [ew.select(take_a, av, bv), ew.select(take_a, ai, bi)]

    init = min_value(x.dtype) if largest else max_value(x.dtype)
    last = torch.iinfo(torch.int64).max
    value, index = reduce([x, iota(x.shape, dim)], [init, last], [dim], body)
    return value, index


def _pairs(padding: Sequence[tuple[int, int]]) -> ir.DenseIntElementsAttr:
    return ir.DenseIntElementsAttr.get(np.asarray(padding, np.int64).reshape(len(padding), 2))


def reduce_window(
    xs: Sequence[Value],
    inits: Sequence[Scalar],
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    body: Callable[..., Sequence[Value]],
    dilation: Sequence[int] | None = None,
) -> list[Value]:
    """Windowed reduction over all dimensions (extent 1 where nothing is pooled)."""
    dil = list(dilation or [1] * xs[0].ndim)
    shape = [
        (n + lo + hi - (d * (w - 1) + 1)) // s + 1
        for n, w, s, d, (lo, hi) in zip(xs[0].shape, window, strides, dil, padding, strict=True)
    ]
    seeds = [i.strong() if isinstance(i, Value) else constant(i, x.dtype) for i, x in zip(inits, xs, strict=True)]
    op = stablehlo.ReduceWindowOp(
        [tensor_type(shape, x.dtype) for x in xs],
        [x.ssa for x in xs],
        [s.ssa for s in seeds],
        list(window),
        window_strides=list(strides),
        window_dilations=dil,
        padding=_pairs(padding),
    )
    _region(op, [x.dtype for x in xs], body)
    return [Value(r, x.dtype, static_dims(shape)) for r, x in zip(op.results, xs, strict=True)]


def select_and_scatter(
    x: Value,
    source: Value,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    select: Combine,
) -> Value:
    """Adds each element of source to the x-position its window selects (max-pool's gradient)."""
    op = stablehlo.SelectAndScatterOp(
        tensor_type(x.shape, x.dtype),
        x.ssa,
        source.ssa,
        constant(0, x.dtype).ssa,
        window_dimensions=list(window),
        window_strides=list(strides),
        padding=_pairs(padding),
    )
    kind = tensor_type((), x.dtype)
    for region, combine in zip(op.regions, (select, ew.add), strict=True):
        block = region.blocks.append(kind, kind)
        with ir.InsertionPoint(block):
            a, b = (Value(arg, x.dtype, ()) for arg in block.arguments)
            stablehlo.return_([combine(a, b).ssa])
    return Value(op.result, x.dtype, x.dims)


def cumulative(
    xs: Sequence[Value], inits: Sequence[Scalar], dim: int, body: Callable[..., Sequence[Value]]
) -> list[Value]:
    """Inclusive scan along dim; body must be associative and `inits` its identity.

    `body(*earlier, *later)`. XLA rewrites a window that reaches back to the start into a tree of
    blocks (2-9 ms for a million elements), so this is not quadratic; log-step doubling takes 18-67 ms.
    """
    dim = dim % xs[0].ndim
    n = xs[0].shape[dim]
    if n <= 1:
        return list(xs)
    if xs[0].numel == n:
        return _sequential(xs, inits, dim, body)
    window = [n if i == dim else 1 for i in range(xs[0].ndim)]
    padding = [(n - 1, 0) if i == dim else (0, 0) for i in range(xs[0].ndim)]
    return reduce_window(xs, inits, window, [1] * xs[0].ndim, padding, body)


def _sequential(
    xs: Sequence[Value], inits: Sequence[Scalar], dim: int, body: Callable[..., Sequence[Value]]
) -> list[Value]:
    """A scan of one row as a scalar loop: 4 ns an element like the tree, but a quarter of its compile time."""
    from torch_neuronx.lowering.hlo.control import while_loop
    from torch_neuronx.lowering.hlo.literal import full
    from torch_neuronx.lowering.hlo.shape import dynamic_slice, dynamic_update_slice

    k, n, one = len(xs), xs[0].shape[dim], [1] * xs[0].ndim

    def step(i: Value, *carry: Value) -> list[Value]:
        totals, outs, sources = carry[:k], carry[k : 2 * k], carry[2 * k :]
        at = [i if d == dim else 0 for d in range(len(one))]
        totals = tuple(body(*totals, *(dynamic_slice(x, at, one) for x in sources)))
        outs = tuple(dynamic_update_slice(o, t, at) for o, t in zip(outs, totals, strict=True))
        return [i + 1, *totals, *outs, *sources]

    totals = [full(one, init, x.dtype) for x, init in zip(xs, inits, strict=True)]
    carry = [constant(0, torch.int64), *totals, *xs, *xs]
    return while_loop(carry, lambda i, *rest: ew.lt(i, n), step)[1 + k : 1 + 2 * k]
