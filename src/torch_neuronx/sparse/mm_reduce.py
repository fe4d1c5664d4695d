"""sparse.mm(csr, dense, reduce): a product whose sum is replaced by a mean, a maximum or a minimum."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_neuronx.sparse.parts import entry_rows, make_compressed, sum_rows, widened
from torch_neuronx.sparse.table import compressed, kernel


def _terms(self: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """The row of every entry, and its value times the row of `other` that it meets."""
    rows = entry_rows(self.crow_indices(), self._nnz())
    return rows, widened(self.values()).unsqueeze(1) * widened(other[self.col_indices()])


def _row_counts(self: Tensor) -> Tensor:
    return self.crow_indices().diff().clamp(min=1)


@kernel("aten::_sparse_mm_reduce_impl", tables=(compressed,))
def mm_reduce(self: Tensor, other: Tensor, reduce: str) -> tuple[Tensor, Tensor]:
    """The result and, for amax and amin, which entry each of its elements came from."""
    _check(self, other, reduce)
    rows, terms = _terms(self, other)
    shape = (self.shape[0], other.shape[1])
    none = torch.empty((0,), dtype=torch.int64, device=other.device)
    if reduce in ("sum", "mean"):
        total = sum_rows(terms, rows, shape[0])
        total = total / _row_counts(self).unsqueeze(1).to(total.dtype) if reduce == "mean" else total
        return total.to(other.dtype), none
    if terms.numel() == 0:
        return torch.zeros(shape, dtype=other.dtype, device=other.device), none.new_full(shape, self._nnz())
    best = torch.zeros(shape, dtype=terms.dtype, device=terms.device)
    best = best.index_reduce(0, rows, terms, reduce, include_self=False)
    entry = torch.arange(self._nnz(), device=rows.device).unsqueeze(1).expand(terms.shape)
    reached = (terms == best[rows]) | terms.isnan()
    candidates = torch.where(reached, entry, self._nnz())
    first = none.new_full(shape, self._nnz()).index_reduce(0, rows, candidates, "amin")
    return best.to(other.dtype), first


def _check(self: Tensor, other: Tensor, reduce: str) -> None:
    if self.layout != torch.sparse_csr or other.layout != torch.strided:
        raise RuntimeError(
            f"sparse.mm with reduce={reduce!r}: expected a CSR and a dense matrix, but got {self.layout} and "
            f"{other.layout}. Convert with .to_sparse_csr() or .to_dense()."
        )
    if not other.is_floating_point():
        raise NotImplementedError(
            f"sparse.mm with reduce={reduce!r}: not implemented for {other.dtype}. Convert with .float()."
        )
    if other.dim() != 2 or self.dim() != 2 or self.shape[1] != other.shape[0]:
        raise RuntimeError(
            f"sparse.mm with reduce={reduce!r}: {tuple(self.shape)} and {tuple(other.shape)} cannot be multiplied. "
            "The columns of the first must be as many as the rows of the second."
        )
    if reduce not in ("sum", "mean", "amax", "amin"):
        raise RuntimeError(
            f"sparse.mm: reduce must be one of sum, mean, amax, amin, but got {reduce!r}. Use one of them."
        )


@kernel("aten::_sparse_mm_reduce_impl_backward", tables=(compressed,))
def mm_reduce_backward(
    self: Tensor, grad_out: Tensor, weight: Tensor, reduce: str, arg_out: Tensor, output_mask: list[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of the sparse and the dense factor."""
    rows, columns = entry_rows(self.crow_indices(), self._nnz()), self.col_indices()
    grad = grad_out / _row_counts(self).unsqueeze(1).to(grad_out.dtype) if reduce == "mean" else grad_out
    share = grad[rows]  # what each entry's term gets of the gradient
    if reduce in ("amax", "amin"):
        entry = torch.arange(self._nnz(), device=rows.device).unsqueeze(1)
        share = torch.where(arg_out[rows] == entry, share, torch.zeros_like(share))
    sparse = dense = None
    if output_mask[0]:
        values = (share * weight[columns]).sum(1)
        sparse = make_compressed(self.crow_indices().clone(), columns.clone(), values, self.shape, self.layout)
    if output_mask[1]:
        dense = sum_rows(share * self.values().unsqueeze(1), columns, weight.shape[0])
    return sparse, dense
