"""Joining and repeating: cat, stack, repeat, block_diag, repeat_interleave."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.promotion import promote
from torch_neuronx.lowering.table import in_steps, lower
from torch_neuronx.lowering.value import Value


@lower("aten::cat")
def cat(tensors: Sequence[Value], dim: int = 0) -> Value:
    """1-D tensors without elements are skipped whatever the others' shape (a legacy rule), but promote."""
    _, values = promote(*tensors)
    parts = [v for v in values if v.shape != (0,)]
    if not parts:
        return values[0]
    dim = dim % parts[0].ndim
    filled = [p for p in parts if p.shape[dim]]
    return hlo.concatenate(filled, dim) if filled else parts[0]


@lower("aten::stack")
def stack(tensors: Sequence[Value], dim: int = 0) -> Value:
    _, values = promote(*tensors)
    dim = dim % (values[0].ndim + 1)
    return hlo.concatenate([hlo.unsqueeze(v, dim) for v in values], dim)


@lower("aten::_chunk_cat")
def chunk_cat(tensors: Sequence[Value], dim: int, num_chunks: int) -> Value:
    """Each tensor padded to num_chunks equal chunks along dim, chunks flattened and joined chunk by chunk."""
    dim = dim % tensors[0].ndim
    parts = []
    for x in tensors:
        size = -(-x.shape[dim] // num_chunks)
        fill = [size * num_chunks - x.shape[dim] if i == dim else 0 for i in range(x.ndim)]
        parts.append(hlo.reshape(hlo.pad(x, [0] * x.ndim, fill), (*x.shape[:dim], num_chunks, -1)))
    return hlo.concatenate(parts, dim + 1)


@lower("aten::repeat")
def repeat(self: Value, repeats: Sequence[int]) -> Value:
    shape = (1,) * (len(repeats) - self.ndim) + self.shape
    if not math.prod(repeats) or not self.numel:
        return hlo.full([n * r for n, r in zip(shape, repeats, strict=True)], 0, self.dtype)
    x = hlo.reshape(self, list(itertools.chain.from_iterable((1, n) for n in shape)))
    tiled = hlo.broadcast_to(x, list(itertools.chain.from_iterable(zip(repeats, shape, strict=True))))
    return hlo.reshape(tiled, [n * r for n, r in zip(shape, repeats, strict=True)])


@lower("aten::block_diag")
def block_diag(tensors: Sequence[Value]) -> Value:
    _, values = promote(*tensors)
    blocks = [hlo.reshape(v, (1,) * (2 - v.ndim) + v.shape) for v in values]
    columns, left, bands = sum(b.shape[1] for b in blocks), 0, []
    for block in blocks:
        bands.append(hlo.pad(block, [0, left], [0, columns - left - block.shape[1]]))
        left += block.shape[1]
    return hlo.concatenate(bands, 0)


@lower("aten::repeat_interleave.Tensor")
def repeat_interleave(repeats: Value, *, output_size: int | None = None) -> Value:
    """Index i of the result counts the entries whose running total is at most i."""
    if output_size is None:
        raise Unsupported("repeat_interleave without output_size has no size bound")
    n, counts = repeats.shape[0], hlo.convert(repeats, torch.int64)
    if n:
        require(hlo.all_(hlo.ge(counts, 0)), "RuntimeError", "repeat_interleave: repeats can not be negative")
    if not n or not output_size:
        return hlo.full((output_size,), 0, repeats.dtype)
    (ends,) = hlo.cumulative([counts], [0], 0, lambda a, b: [a + b])
    total = hlo.reshape(hlo.slice_dim(ends, 0, n - 1, n), ())
    require(
        hlo.eq(total, output_size), "RuntimeError", "repeat_interleave: allocated size does not match required size"
    )
    steps = hlo.scatter(
        hlo.full((output_size,), 0, torch.int64),
        hlo.reshape(ends, (n, 1)),
        hlo.full((n,), 1, torch.int64),
        hlo.add,
        update_window_dims=[],
        inserted=[0],
        scatter_map=[0],
        sorted_indices=True,
    )
    (index,) = hlo.cumulative([steps], [0], 0, lambda a, b: [a + b])
    return hlo.convert(index, repeats.dtype)


@in_steps("aten::repeat_interleave.Tensor")
def repeat_interleave_in_steps(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    total = int(repeats.sum()) if output_size is None else output_size
    out: Tensor = torch.ops.aten.repeat_interleave.Tensor(repeats, output_size=total)
    return out
