"""prims:: operators that torch's reference decompositions end in (elementwise ones sit beside their aten twins)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import max_value, min_value
from torch_neuronx.lowering.table import Writes, lower
from torch_neuronx.lowering.value import Scalar, Value


@lower("prims::broadcast_in_dim")
def broadcast_in_dim(a: Value, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Value:
    return hlo.broadcast_in_dim(a, shape, broadcast_dimensions)


@lower("prims::transpose")
def transpose(a: Value, permutation: Sequence[int]) -> Value:
    return hlo.permute(a, permutation)


@lower("prims::squeeze")
def squeeze(a: Value, dimensions: Sequence[int]) -> Value:
    return hlo.squeeze(a, *dimensions)


@lower("prims::reshape")
def reshape(a: Value, shape: Sequence[int]) -> Value:
    return hlo.reshape(a, shape)


@lower("prims::split_dim")
def split_dim(a: Value, dim: int, outer_length: int) -> Value:
    return hlo.reshape(a, (*a.shape[:dim], outer_length, a.shape[dim] // outer_length, *a.shape[dim + 1 :]))


@lower("prims::collapse", "prims::collapse_view")
def collapse(a: Value, start: int, end: int) -> Value:
    """Merges dimensions start..end, both included."""
    if a.ndim == 0:
        return hlo.reshape(a, (1,))
    return hlo.reshape(a, (*a.shape[:start], math.prod(a.shape[start : end + 1]), *a.shape[end + 1 :]))


@lower("prims::cat")
def cat(tensors: Sequence[Value], dim: int) -> Value:
    return hlo.concatenate(tensors, dim)


@lower("prims::rev")
def rev(a: Value, dims: Sequence[int]) -> Value:
    return hlo.reverse(a, dims)


@lower("prims::view_of")
def view_of(a: Value) -> Value:
    return a


@lower("prims::view_of_dtype")
def view_of_dtype(a: Value, dtype: torch.dtype) -> Value:
    return hlo.bitcast(a, dtype)


@lower("prims::copy_strided")
def copy_strided(a: Value, stride: Sequence[int]) -> Value:
    return a


@lower("prims::device_put")
def device_put(a: Value, device: Any, non_blocking: bool = False) -> Value:
    return a


@lower("prims::copy_to")
def copy_to(a: Value, b: Value) -> Writes:
    return Writes((), {"a": hlo.broadcast_to(hlo.convert(b, a.dtype), a.shape)})


def _finish(x: Value, output_dtype: torch.dtype | None) -> Value:
    return hlo.convert(x, output_dtype) if output_dtype else x


@lower("prims::sum")
def sum_(inp: Value, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None) -> Value:
    return _finish(hlo.sum_(inp, dims), output_dtype)


@lower("prims::prod")
def prod(inp: Value, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None) -> Value:
    return _finish(hlo.prod(inp, dims), output_dtype)


@lower("prims::amax")
def amax(inp: Value, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None) -> Value:
    return _finish(hlo.reduce_max(inp, dims), output_dtype)


@lower("prims::amin")
def amin(inp: Value, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None) -> Value:
    return _finish(hlo.reduce_min(inp, dims), output_dtype)


@lower("prims::xor_sum")
def xor_sum(inp: Value, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None) -> Value:
    axes = list(range(inp.ndim)) if dims is None else list(dims)
    if not axes:
        return _finish(inp, output_dtype)
    (out,) = hlo.reduce([inp], [0], axes, lambda a, b: [a ^ b])
    return _finish(out, output_dtype)


@lower("prims::var", attributes=("correction",))
def var(
    inp: Value, dims: Sequence[int] | None, correction: float | None = 1, *, output_dtype: torch.dtype | None = None
) -> Value:
    """Two passes: mean, then the mean squared distance."""
    axes = list(range(inp.ndim)) if dims is None else [d % inp.ndim for d in dims]
    count = math.prod(inp.shape[d] for d in axes)
    mean = hlo.sum_(inp, axes, keepdim=True) / hlo.constant(count, inp.dtype)
    distance = inp - mean
    total = hlo.sum_(distance * distance, axes)
    free = max(count - (1 if correction is None else correction), 0)
    return _finish(total / hlo.constant(free, inp.dtype), output_dtype)


@lower("prims::iota")
def iota(
    length: int, *, start: int, step: int, dtype: torch.dtype, device: Any = None, requires_grad: bool = False
) -> Value:
    counted = hlo.iota((length,), 0, torch.int64) * step + start
    return hlo.convert(counted, dtype)


@lower("prims::maximum_value")
def maximum_value(dtype: torch.dtype) -> bool | int | float:
    return max_value(dtype)


@lower("prims::minimum_value")
def minimum_value(dtype: torch.dtype) -> bool | int | float:
    return min_value(dtype)


@lower("prims::empty", "prims::empty_strided", "prims::empty_permuted")
def empty(
    shape: Sequence[int], layout: Sequence[int] = (), *, dtype: torch.dtype, device: Any, requires_grad: bool
) -> Value:
    return hlo.full(tuple(shape), 0, dtype)


@lower("prims::full", attributes=("fill_value",))
def full(shape: Sequence[int], fill_value: Scalar, *, dtype: torch.dtype, device: Any, requires_grad: bool) -> Value:
    return hlo.full(tuple(shape), fill_value, dtype)


@lower("prims::full_like")
def full_like(a: Value, fill_value: Scalar, *, dtype: torch.dtype, device: Any, requires_grad: bool) -> Value:
    return hlo.full(a.shape, fill_value, dtype)


@lower("prims::scalar_tensor")
def scalar_tensor(s: Scalar, *, dtype: torch.dtype | None = None, device: Any = None) -> Value:
    return hlo.full((), s, dtype)
