"""Converting sparse tensors to BSR and BSC: entries are put together in blocks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_neuronx.sparse.parts import compressed_parts, keys, make_compressed, row_offsets, unkey
from torch_neuronx.sparse.table import compressed, kernel


@kernel("aten::_to_sparse_bsr", tables=(compressed,))
def to_bsr(self: Tensor, blocksize: Sequence[int], dense_dim: int | None) -> Tensor:
    return _to_blocks(self, tuple(blocksize), dense_dim, torch.sparse_bsr)


@kernel("aten::_to_sparse_bsc", tables=(compressed,))
def to_bsc(self: Tensor, blocksize: Sequence[int], dense_dim: int | None) -> Tensor:
    return _to_blocks(self, tuple(blocksize), dense_dim, torch.sparse_bsc)


def _to_blocks(self: Tensor, block: tuple[int, ...], dense_dim: int | None, layout: torch.layout) -> Tensor:
    name = f"to_{str(layout).removeprefix('torch.')}"
    if dense_dim is not None:
        raise RuntimeError(f"{name}: dense_dim is taken from the input when that is sparse. Leave it out.")
    if self.layout == layout:
        if _block_of(self) == block:
            return self.clone()
        raise RuntimeError(f"{name}: conversion to other block sizes is not supported. Go through .to_dense().")
    if self.layout in (torch.sparse_bsr, torch.sparse_bsc) and _block_of(self) != block:
        raise RuntimeError(f"{name}: conversion to other block sizes is not supported. Go through .to_dense().")
    if compressed_parts(self)[0].dim() != 1:
        raise RuntimeError(f"{name}: conversion of batches is not supported. Go through .to_dense().")
    if len(block) != 2 or min(block) < 1 or self.shape[0] % block[0] or self.shape[1] % block[1]:
        raise RuntimeError(
            f"{name}: tensor sparse size {tuple(self.shape)} must be divisible by given blocksize {block}. Change it."
        )
    return _grouped(self.to_sparse(), block, layout, compressed_parts(self)[0].dtype)


def _block_of(self: Tensor) -> tuple[int, ...]:
    first = compressed_parts(self)[1].dim()
    return tuple(self.values().shape[first : first + 2])


def _grouped(entries: Tensor, block: tuple[int, ...], layout: torch.layout, index: torch.dtype) -> Tensor:
    """A COO matrix in blocks: all blocks that have an entry, in the order of the layout."""
    rows, columns = entries._indices().unbind(0)
    grid = [entries.shape[0] // block[0], entries.shape[1] // block[1]]
    place = [rows // block[0], columns // block[1]]
    if layout == torch.sparse_bsc:
        grid, place = grid[::-1], place[::-1]
    blocks, owner = torch.unique(keys(torch.stack(place), grid), return_inverse=True)
    shape = (blocks.shape[0], *block, *entries.shape[2:])
    values = torch.zeros(shape, dtype=entries.dtype, device=entries.device)
    if entries._nnz():
        values.index_put_((owner, rows % block[0], columns % block[1]), entries._values())
    outer, inner = unkey(blocks, grid).to(index).unbind(0)
    offsets = row_offsets(outer, grid[0]).to(index)
    return make_compressed(offsets, inner.clone(), values, entries.shape, layout)
