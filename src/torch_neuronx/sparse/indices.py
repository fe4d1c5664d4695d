"""Converting and checking the indices of compressed tensors. They arrive as dense tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_neuronx.sparse.parts import entry_rows, make_coo, row_offsets
from torch_neuronx.sparse.table import kernel


@kernel("aten::_convert_indices_from_coo_to_csr")
def coo_to_csr(self: Tensor, size: int, out_int32: bool) -> Tensor:
    return row_offsets(self, size).to(torch.int32 if out_int32 else torch.int64)


@kernel("aten::_convert_indices_from_csr_to_coo")
def csr_to_coo(crow_indices: Tensor, col_indices: Tensor, out_int32: bool, transpose: bool) -> Tensor:
    dtype = torch.int32 if out_int32 else torch.int64
    nnz = col_indices.shape[-1]
    rows, columns = entry_rows(crow_indices, nnz).to(dtype).reshape(-1), col_indices.to(dtype).reshape(-1)
    pair = [columns, rows] if transpose else [rows, columns]
    if crow_indices.dim() == 1:
        return torch.stack(pair)
    batch = crow_indices.shape[:-1]
    number = torch.arange(batch.numel(), dtype=dtype, device=rows.device).repeat_interleave(nnz)
    where = torch.unravel_index(number, batch)
    return torch.stack([*(w.to(dtype) for w in where), *pair])


@kernel("aten::_validate_compressed_sparse_indices")
def validate(is_crow: bool, compressed: Tensor, plain: Tensor, cdim: int, dim: int, nnz: int) -> None:
    c, p = ("crow_indices", "col_indices") if is_crow else ("ccol_indices", "row_indices")
    rows, columns = ("nrows", "ncols") if is_crow else ("ncols", "nrows")
    if compressed.numel():
        first, last, steps = compressed[..., 0], compressed[..., -1], compressed.diff(dim=-1)
        _require((first == 0).all(), f"`{c}[..., 0] == 0` is not satisfied")
        _require((last == nnz).all(), f"`{c}[..., -1] == nnz` is not satisfied")
        _require(
            ((steps >= 0) & (steps <= dim)).all(), f"`0 <= {c}[..., 1:] - {c}[..., :-1] <= {columns}` is not satisfied"
        )
    if plain.numel():
        _require(((plain >= 0) & (plain < dim)).all(), f"`0 <= {p} < {columns}` is not satisfied")
        inside = f"`{p}[..., {c}[..., i - 1]:{c}[..., i]] for all i = 1, ..., {rows}"
        _require(
            _increases(compressed, plain),
            f"{inside} are sorted and distinct along the last dimension values` is not satisfied",
        )


def _increases(compressed: Tensor, plain: Tensor) -> Tensor:
    """Whether the plain indices grow inside each row."""
    rows = entry_rows(compressed, plain.shape[-1])
    return ((plain.diff(dim=-1) > 0) | (rows.diff(dim=-1) > 0)).all()


def _require(holds: Tensor, what: str) -> None:
    if not bool(holds):
        raise RuntimeError(f"{what}.")


@kernel("aten::_spdiags")
def spdiags(diagonals: Tensor, offsets: Tensor, shape: list[int], layout: torch.layout | None) -> Tensor:
    """Rows of `diagonals` put on the diagonals of a sparse matrix; column j of a row goes to column j."""
    rows, columns = torch.broadcast_tensors(
        torch.arange(diagonals.shape[1], device=diagonals.device) - offsets.reshape(-1, 1),
        torch.arange(diagonals.shape[1], device=diagonals.device).reshape(1, -1),
    )
    inside = (rows >= 0) & (rows < shape[0]) & (columns < shape[1])
    indices = torch.stack([rows[inside], columns[inside]])
    result = make_coo(indices, diagonals.reshape(offsets.numel(), -1)[inside], shape)
    return result if layout is None else result.to_sparse(layout=layout)
