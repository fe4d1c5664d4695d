"""What sparse kernels are made of: keys of indices, groups, lookups. All of it runs on the device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def scale(values: Tensor, factor: Any) -> Tensor:
    """values * factor in the values' own dtype: an integer tensor's factor is cut to an integer, as on the CPU."""
    if isinstance(factor, float) and not (values.is_floating_point() or values.is_complex()):
        factor = int(factor)
    return values if factor == 1 else values * factor


def make_coo(indices: Tensor, values: Tensor, size: Sequence[int], *, coalesced: bool | None = None) -> Tensor:
    """A COO tensor without a check of its indices."""
    return torch.ops.aten._sparse_coo_tensor_unsafe(indices, values, size, is_coalesced=coalesced)


def keys(indices: Tensor, sizes: Sequence[int]) -> Tensor:
    """The row-major position of each column of `indices` (sparse dims x nnz)."""
    if not sizes:
        return torch.zeros(indices.shape[1], dtype=torch.int64, device=indices.device)
    key = indices[0]
    for d in range(1, len(sizes)):
        key = key * sizes[d] + indices[d]
    return key


def unkey(key: Tensor, sizes: Sequence[int]) -> Tensor:
    """The indices of row-major positions: the inverse of `keys`."""
    if not sizes:
        return key.new_zeros((0, key.shape[0]))
    rows = []
    for n in reversed(sizes):
        rows.append(key % max(n, 1))
        key = key // max(n, 1)
    return torch.stack(rows[::-1])


def sparse_sizes(self: Tensor) -> tuple[int, ...]:
    return tuple(self.shape[: self.sparse_dim()])


def broadcast_rows(rows: Tensor, like: Tensor) -> Tensor:
    """A vector with one entry for each row of `like`, shaped to multiply it."""
    return rows.reshape(rows.shape[0], *[1] * (like.dim() - 1))


def widened(x: Tensor) -> Tensor:
    """Half types as float32, so that products of which many are added up are not rounded one by one."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def sum_rows(values: Tensor, group: Tensor, count: int) -> Tensor:
    """The sum of the rows of each group."""
    out = torch.zeros((count, *values.shape[1:]), dtype=values.dtype, device=values.device)
    if math.prod(values.shape) == 0:
        return out
    if values.dtype is torch.bool:
        return out.index_put_((group,), values, accumulate=True)
    return out.index_add_(0, group, values)


def find(wanted: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """For each wanted key its position in the sorted keys `among`, and whether it is there."""
    if among.shape[0] == 0:
        nowhere = torch.zeros_like(wanted)
        return nowhere, nowhere.to(torch.bool)
    position = torch.searchsorted(among, wanted).clamp_(max=among.shape[0] - 1)
    return position, among[position] == wanted


def spread(counts: Tensor) -> tuple[Tensor, Tensor]:
    """[2, 0, 3] -> which entry each repetition belongs to, and its number there: [0, 0, 2, 2, 2], [0, 1, 0, 1, 2]."""
    total = int(counts.sum().item())
    owner = torch.repeat_interleave(counts, output_size=total)
    first = counts.cumsum(0) - counts
    return owner, torch.arange(total, device=counts.device) - first[owner]


def compressed_parts(self: Tensor) -> tuple[Tensor, Tensor]:
    """The compressed and the plain indices: crow and col, or ccol and row."""
    if self.layout in (torch.sparse_csr, torch.sparse_bsr):
        return self.crow_indices(), self.col_indices()
    return self.ccol_indices(), self.row_indices()


def entry_rows(compressed: Tensor, count: int) -> Tensor:
    """The row of each of `count` entries, by the offsets of the rows: [0, 2, 2, 3] -> [0, 0, 2]. Batches allowed."""
    numbers = torch.arange(count, dtype=compressed.dtype, device=compressed.device)
    if compressed.dim() > 1:
        numbers = numbers.expand(*compressed.shape[:-1], count).contiguous()
    return torch.searchsorted(compressed.contiguous(), numbers, right=True) - 1


def row_offsets(rows: Tensor, count: int) -> Tensor:
    """The inverse, of sorted rows."""
    edges = torch.arange(count + 1, dtype=rows.dtype, device=rows.device)
    return torch.searchsorted(rows.contiguous(), edges)


def make_compressed(
    compressed: Tensor, plain: Tensor, values: Tensor, size: Sequence[int], layout: torch.layout
) -> Tensor:
    """A compressed tensor without a check of its indices."""
    return torch.ops.aten._sparse_compressed_tensor_unsafe(
        compressed, plain, values, size, dtype=values.dtype, layout=layout, device=values.device
    )
