"""Gather, scatter and sort."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx.lowering.dtypes import tensor_type
from torch_neuronx.lowering.hlo.literal import iota
from torch_neuronx.lowering.hlo.shape import concatenate, reshape
from torch_neuronx.lowering.hlo.words import from_words, to_words, word_dtype
from torch_neuronx.lowering.value import Value, static_dims


def gather(
    x: Value,
    indices: Value,
    *,
    offset_dims: Sequence[int],
    collapsed: Sequence[int],
    index_map: Sequence[int],
    slice_sizes: Sequence[int],
    index_vector_dim: int | None = None,
    operand_batching: Sequence[int] = (),
    indices_batching: Sequence[int] = (),
    sorted_indices: bool = False,
) -> Value:
    """StableHLO's gather; out-of-range starts are clamped, so check indices first."""
    vector = indices.ndim - 1 if index_vector_dim is None else index_vector_dim
    numbers = stablehlo.GatherDimensionNumbers.get(
        list(offset_dims), list(collapsed), list(operand_batching), list(indices_batching), list(index_map), vector
    )
    words = stablehlo.gather(to_words(x), indices.ssa, numbers, list(slice_sizes), indices_are_sorted=sorted_indices)
    shape = ir.RankedTensorType(words.type).shape
    return Value(from_words(words, shape, x.dtype), x.dtype, static_dims(shape))


def scatter(
    x: Value,
    indices: Value,
    updates: Value,
    body: Callable[[Value, Value], Value] | None,
    *,
    update_window_dims: Sequence[int],
    inserted: Sequence[int],
    scatter_map: Sequence[int],
    index_vector_dim: int | None = None,
    input_batching: Sequence[int] = (),
    indices_batching: Sequence[int] = (),
    unique: bool = False,
    sorted_indices: bool = False,
) -> Value:
    """StableHLO's scatter: body(old, update), or plain replacement when None; out of range is dropped."""
    vector = indices.ndim - 1 if index_vector_dim is None else index_vector_dim
    numbers = stablehlo.ScatterDimensionNumbers.get(
        list(update_window_dims),
        list(inserted),
        list(input_batching),
        list(indices_batching),
        list(scatter_map),
        vector,
    )
    dtype = x.dtype if body else word_dtype(x.dtype)
    op = stablehlo.ScatterOp(
        [tensor_type(x.shape, dtype)],
        [x.ssa if body else to_words(x)],
        indices.ssa,
        [updates.ssa if body else to_words(updates)],
        numbers,
        indices_are_sorted=sorted_indices,
        unique_indices=unique,
    )
    kind = tensor_type((), dtype)
    block = op.regions[0].blocks.append(kind, kind)
    with ir.InsertionPoint(block):
        old, new = (Value(arg, dtype, ()) for arg in block.arguments)
        stablehlo.return_([(body(old, new) if body else new).ssa])
    result = op.results[0] if body else from_words(op.results[0], x.shape, x.dtype)
    return Value(result, x.dtype, x.dims)


def take_rows(x: Value, indices: Value, dim: int = 0) -> Value:
    """x.index_select(dim, indices) for indices of any rank; their shape replaces `dim`.

    Indices must be in range and not negative.
    """
    dim = dim % x.ndim
    k = indices.ndim
    offsets = [*range(dim), *range(dim + k, x.ndim - 1 + k)]
    sizes = [1 if i == dim else n for i, n in enumerate(x.shape)]
    return gather(
        x,
        reshape(indices, (*indices.shape, 1)),
        offset_dims=offsets,
        collapsed=[dim],
        index_map=[dim],
        slice_sizes=sizes,
    )


def take_along(x: Value, indices: Value, dim: int) -> Value:
    """torch.gather for in-range indices: out[i][j] = x[index[i][j]][j] for dim 0."""
    dim = dim % x.ndim
    return gather(
        x,
        index_grid(indices, dim),
        offset_dims=[],
        collapsed=list(range(x.ndim)),
        index_map=list(range(x.ndim)),
        slice_sizes=[1] * x.ndim,
    )


def index_grid(indices: Value, dim: int) -> Value:
    """Full coordinates (*indices.shape, ndim): iota everywhere, `indices` along dim."""
    columns = [
        reshape(indices if d == dim else iota(indices.shape, d, indices.dtype), (*indices.shape, 1))
        for d in range(indices.ndim)
    ]
    return concatenate(columns, indices.ndim)


def sort(xs: Sequence[Value], dim: int, less: Callable[..., Value], *, stable: bool = True) -> list[Value]:
    """Sorts all xs together; `less(a0, b0, a1, b1, ...)` compares two rows."""
    op = stablehlo.SortOp(
        [tensor_type(x.shape, x.dtype) for x in xs], [x.ssa for x in xs], dimension=dim, is_stable=stable
    )
    kinds = [tensor_type((), x.dtype) for x in xs for _ in range(2)]
    block = op.regions[0].blocks.append(*kinds)
    with ir.InsertionPoint(block):
        dtypes = [x.dtype for x in xs for _ in range(2)]
        values = [Value(a, d, ()) for a, d in zip(block.arguments, dtypes, strict=True)]
        stablehlo.return_([less(*values).ssa])
    return [Value(r, x.dtype, x.dims) for r, x in zip(op.results, xs, strict=True)]
