"""Adding and multiplying COO tensors, with each other and with dense ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_neuronx.sparse.parts import broadcast_rows, find, keys, make_coo, sparse_sizes
from torch_neuronx.sparse.table import kernel
from torch_neuronx.sparse.write import write


@kernel("aten::add.out")
def add_out(self: Tensor, other: Tensor, alpha: Any, out: Tensor) -> Tensor:
    if self.is_sparse:
        write(out, _add_sparse(self, other, alpha))
        return out
    if self.shape != other.shape:
        raise RuntimeError(
            f"add: expected sizes of 'self' and 'other' to match, but {tuple(self.shape)} != {tuple(other.shape)}. "
            "A dense and a sparse tensor do not broadcast: expand the sparse one's dense form."
        )
    if out is self and out.dtype == torch.result_type(self, other):
        return add_into(out, other, alpha)
    total = self.to(torch.result_type(self, other), copy=True)
    write(out, add_into(total, other, alpha))
    return out


def add_into(dense: Tensor, sparse: Tensor, alpha: Any = 1) -> Tensor:
    """dense += alpha * sparse: touches the places that `sparse` has, and no others."""
    values = sparse._values().to(dense.dtype)
    if values.numel() == 0:
        return dense
    if alpha != 1:
        values = values * alpha
    if sparse.sparse_dim() == 0:
        return dense.add_(values.sum(0))
    return dense.index_put_(tuple(sparse._indices().unbind(0)), values, accumulate=True)


def _add_sparse(self: Tensor, other: Tensor, alpha: Any) -> Tensor:
    dtype = torch.result_type(self, other)
    if self.shape != other.shape:
        raise RuntimeError(
            f"add: expected sizes of 'self' and 'other' to match, but {tuple(self.shape)} != {tuple(other.shape)}. "
            "Sparse tensors do not broadcast when they are added."
        )
    if other._nnz() == 0:
        return self.to(dtype, copy=True)
    scaled = other._values().to(dtype)
    scaled = scaled if alpha == 1 else scaled * alpha
    if self._nnz() == 0:
        return make_coo(other._indices().clone(), scaled.clone(), self.shape, coalesced=other.is_coalesced())
    if self.sparse_dim() != other.sparse_dim():
        raise RuntimeError(
            f"add: expected both tensors to have the same sparse dims, but they have {self.sparse_dim()} and "
            f"{other.sparse_dim()}. Convert one with .to_dense().to_sparse(sparse_dim)."
        )
    values = torch.cat([self._values().to(dtype), scaled])
    total = make_coo(torch.cat([self._indices(), other._indices()], 1), values, self.shape)
    return total.coalesce() if self.is_coalesced() and other.is_coalesced() else total


@kernel("aten::mul.out")
def mul_out(self: Tensor, other: Tensor, out: Tensor) -> Tensor:
    write(out, _mul(self, other))
    return out


def _mul(self: Tensor, other: Tensor) -> Tensor:
    if not self.is_sparse:
        return _mul_dense(other, self)
    if not other.is_sparse:
        return _mul_dense(self, other)
    if other.dim() == 0 or self.dim() == 0:
        sparse, scalar = (self, other) if other.dim() == 0 else (other, self)
        return _mul_dense(sparse, scalar.to_dense())
    return _mul_sparse(self, other)


def _mul_dense(self: Tensor, dense: Tensor) -> Tensor:
    """A sparse tensor times a dense one that may broadcast to it, or that it broadcasts to in its dense dims."""
    if dense.dim() == 0:
        return _with_values(self, self._values() * dense)
    shape = torch.broadcast_shapes(self.shape, dense.shape)
    if shape != self.shape:
        self = torch._sparse_broadcast_to(self, shape)
    full = dense.expand(shape)
    values = self._values()
    if self._nnz() == 0:
        return _with_values(self, values.to(torch.result_type(self, dense)))
    return _with_values(self, values * full[tuple(self._indices().unbind(0))])


def _with_values(self: Tensor, values: Tensor) -> Tensor:
    return make_coo(self._indices().clone(), values, self.shape, coalesced=self.is_coalesced())


def _mul_sparse(self: Tensor, other: Tensor) -> Tensor:
    """Coalesced factors of one shape: what both have. Others: all that one has, zero where the other has none."""
    if self.dim() != other.dim() or sparse_sizes(self) != sparse_sizes(other):
        raise RuntimeError(
            "mul: expects sparse inputs with equal dimensionality, number of sparse dimensions, and shape of sparse "
            f"dimensions, but got {tuple(self.shape)} ({self.sparse_dim()} sparse) and {tuple(other.shape)} "
            f"({other.sparse_dim()} sparse). Convert one of them with .to_dense()."
        )
    shape = torch.broadcast_shapes(self.shape, other.shape)
    kept, searched = _which_is_kept(self, other)
    kept_values, indices = kept._values(), kept._indices()
    if kept._nnz() == 0 or searched._nnz() == 0:
        return make_coo(indices[:, :0].clone(), _no_values(self, other, shape), shape, coalesced=True)
    sizes = sparse_sizes(kept)
    position, there = find(keys(indices, sizes), keys(searched._indices(), sizes))
    if self.is_coalesced() and other.is_coalesced() and self.shape == other.shape:
        places = there.nonzero().squeeze(1)
        values = kept_values[places] * searched._values()[position[places]]
        return make_coo(indices[:, places], values, shape, coalesced=True)
    values = kept_values * searched._values()[position]
    values = torch.where(broadcast_rows(there, values), values, torch.zeros_like(values))
    return make_coo(indices.clone(), values, shape, coalesced=kept.is_coalesced())


def _which_is_kept(self: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """The factor whose entries the product has, and the other, coalesced so that it can be searched."""
    if self.is_coalesced() != other.is_coalesced():
        return (other, self) if self.is_coalesced() else (self, other)
    return (other, self.coalesce()) if self._nnz() >= other._nnz() else (self, other.coalesce())


def _no_values(self: Tensor, other: Tensor, shape: torch.Size) -> Tensor:
    dtype = torch.result_type(self, other)
    return torch.empty((0, *shape[self.sparse_dim() :]), dtype=dtype, device=self.device)
