"""Reshaping, slicing and joining."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx.lowering.dtypes import tensor_type
from torch_neuronx.lowering.hlo.literal import constant
from torch_neuronx.lowering.hlo.words import from_words, to_words
from torch_neuronx.lowering.value import Scalar, Value, static_dims


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """numpy's rule, in four lines: the first torch.broadcast_shapes call imports sympy (0.7 s)."""
    ndim = max((len(s) for s in shapes), default=0)
    out = [1] * ndim
    for shape in shapes:
        for i, n in enumerate(shape, start=ndim - len(shape)):
            if n != 1 and out[i] not in (1, n):
                raise RuntimeError(f"shapes {[tuple(s) for s in shapes]} cannot be broadcast to one another")
            out[i] = n if n != 1 else out[i]
    return tuple(out)


def reshape(x: Value, shape: Sequence[int]) -> Value:
    """Row-major reshape; one extent may be -1."""
    target = list(shape)
    if -1 in target:
        known = math.prod(n for n in target if n != -1)
        target[target.index(-1)] = x.numel // known if known else 0
    if tuple(target) == x.shape:
        return x
    return Value(stablehlo.reshape(tensor_type(target, x.dtype), x.ssa), x.dtype, static_dims(target))


def flatten(x: Value) -> Value:
    return reshape(x, (x.numel,))


def broadcast_in_dim(x: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
    """StableHLO's broadcast_in_dim: dimension i of x becomes dimension dims[i] of the result."""
    ssa = stablehlo.broadcast_in_dim(tensor_type(list(shape), x.dtype), x.ssa, list(dims))
    return Value(ssa, x.dtype, static_dims(list(shape)))


def broadcast_to(x: Value, shape: Sequence[int]) -> Value:
    """numpy's broadcast_to: new dimensions in front."""
    if x.shape == tuple(shape):
        return x
    return broadcast_in_dim(x, shape, range(len(shape) - x.ndim, len(shape)))


def permute(x: Value, order: Sequence[int]) -> Value:
    order = [d % x.ndim for d in order]
    if order == list(range(x.ndim)):
        return x
    return Value(stablehlo.transpose(x.ssa, order), x.dtype, tuple(x.dims[d] for d in order))


def unsqueeze(x: Value, dim: int) -> Value:
    dim = dim % (x.ndim + 1)
    return reshape(x, (*x.shape[:dim], 1, *x.shape[dim:]))


def squeeze(x: Value, *dims: int) -> Value:
    """Drops the given dimensions, which must have extent 1."""
    drop = {d % x.ndim for d in dims} if x.ndim else set()
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in drop))


def _moved(words: ir.Value, shape: Sequence[int], dtype: torch.dtype) -> Value:
    return Value(from_words(words, shape, dtype), dtype, static_dims(list(shape)))


def slice_(x: Value, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] | None = None) -> Value:
    steps = list(strides or [1] * x.ndim)
    if list(starts) == [0] * x.ndim and tuple(limits) == x.shape and steps == [1] * x.ndim:
        return x
    shape = tuple(max(0, -(-(b - a) // s)) for a, b, s in zip(starts, limits, steps, strict=True))
    return _moved(stablehlo.slice(to_words(x), list(starts), list(limits), steps), shape, x.dtype)


def slice_dim(x: Value, dim: int, start: int, stop: int, step: int = 1) -> Value:
    """x[..., start:stop:step, ...] along one dimension, 0 <= start <= stop <= extent."""
    dim = dim % x.ndim
    starts, limits, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[dim], limits[dim], strides[dim] = start, stop, step
    return slice_(x, starts, limits, strides)


def _index(i: Scalar) -> Value:
    return i if isinstance(i, Value) else constant(int(i), torch.int64)  # type: ignore[arg-type]


def dynamic_slice(x: Value, starts: Sequence[Scalar], sizes: Sequence[int]) -> Value:
    """Run-time start indices (rank-0 int64); StableHLO clamps a start so that the slice fits."""
    ssa = stablehlo.dynamic_slice(to_words(x), [_index(i).ssa for i in starts], list(sizes))
    return _moved(ssa, sizes, x.dtype)


def dynamic_update_slice(x: Value, update: Value, starts: Sequence[Scalar]) -> Value:
    ssa = stablehlo.dynamic_update_slice(to_words(x), to_words(update), [_index(i).ssa for i in starts])
    return _moved(ssa, x.shape, x.dtype)


def concatenate(xs: Sequence[Value], dim: int) -> Value:
    if len(xs) == 1:
        return xs[0]
    dim = dim % xs[0].ndim
    shape = list(xs[0].shape)
    shape[dim] = sum(x.shape[dim] for x in xs)
    return _moved(stablehlo.concatenate([to_words(x) for x in xs], dim), shape, xs[0].dtype)


def pad(
    x: Value,
    low: Sequence[int],
    high: Sequence[int],
    fill: Scalar = 0,
    interior: Sequence[int] | None = None,
) -> Value:
    """Pads with a number or a rank-0 Value; negative amounts crop; `interior` dilates."""
    inner = list(interior or [0] * x.ndim)
    value = fill.strong() if isinstance(fill, Value) else constant(fill, x.dtype)
    shape = tuple(n + a + b + max(n - 1, 0) * i for n, a, b, i in zip(x.shape, low, high, inner, strict=True))
    if shape == x.shape and not any(low) and not any(high):
        return x
    return _moved(stablehlo.pad(to_words(x), to_words(value), list(low), list(high), inner), shape, x.dtype)


def reverse(x: Value, dims: Sequence[int]) -> Value:
    axes = [d % x.ndim for d in dims]
    return _moved(stablehlo.reverse(to_words(x), axes), x.shape, x.dtype) if axes else x
