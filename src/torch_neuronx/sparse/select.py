"""Taking parts of COO tensors: by index, by another's pattern."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_neuronx.sparse.parts import broadcast_rows, find, keys, make_coo, sparse_sizes, spread
from torch_neuronx.sparse.table import kernel


@kernel("aten::index_select")
def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    if self.dim() == 0:
        raise IndexError("index_select() cannot be applied to a 0-dim tensor. Unsqueeze it first.")
    if not -self.dim() <= dim < self.dim():
        low, high = -self.dim(), self.dim() - 1
        raise IndexError(f"Dimension out of range (expected to be in range of [{low}, {high}], but got {dim})")
    if index.dim() != 1 or index.dtype != torch.int64:
        raise IndexError(
            f"index_select(): expected a vector of int64, but got {index.dtype} of shape {tuple(index.shape)}. "
            "Convert the index with .long().flatten()."
        )
    dim %= self.dim()
    size = self.shape[dim]
    shape = (*self.shape[:dim], index.shape[0], *self.shape[dim + 1 :])
    if dim >= self.sparse_dim():
        values = self._values().index_select(dim - self.sparse_dim() + 1, index)
        return make_coo(self._indices().clone(), values, shape)
    if index.numel() and not bool(((index >= -size) & (index < size)).all()):
        raise IndexError(
            f"index_select(): index contains a value that is out of range for tensor of size {list(self.shape)} at "
            f"dimension {dim}. Clamp it."
        )
    return _select_sparse(self, dim, torch.where(index < 0, index + size, index), shape)


def _select_sparse(self: Tensor, dim: int, index: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Every wanted index meets every entry that has it."""
    indices = self._indices()
    if self._nnz() == 0 or index.shape[0] == 0:
        return make_coo(indices[:, :0], self._values()[:0], shape)
    order = indices[dim].argsort(stable=True)
    counts = torch.bincount(indices[dim], minlength=self.shape[dim])
    first = counts.cumsum(0) - counts
    wanted, number = spread(counts[index])
    entry = order[first[index][wanted] + number]
    rows = list(indices[:, entry].unbind(0))
    rows[dim] = wanted
    return make_coo(torch.stack(rows), self._values()[entry], shape)


@kernel("aten::sparse_mask")
def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """The values of `self` where `mask` has any, zero where `self` has none."""
    if self.shape != mask.shape:
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {tuple(self.shape)} but mask has size "
            f"{tuple(mask.shape)}. Give a mask of self's size."
        )
    if not mask.is_sparse:
        raise RuntimeError("sparse_mask(): expected a sparse mask, but it is dense. Convert it with .to_sparse().")
    indices = mask._indices()
    if mask._nnz() == 0 or mask.sparse_dim() == 0:
        return _mask_trivially(self, mask)
    if not self.is_sparse:
        values = self[tuple(indices.unbind(0))]
        return make_coo(indices.clone(), values, mask.shape, coalesced=mask.is_coalesced())
    return project(self.coalesce(), mask)


def _mask_trivially(self: Tensor, mask: Tensor) -> Tensor:
    if mask._nnz() == 0:
        values = mask._values().to(self.dtype, copy=True)
    else:
        whole = self.to_dense() if self.is_sparse else self
        values = whole.unsqueeze(0).expand(mask._nnz(), *whole.shape).clone()
    return make_coo(mask._indices().clone(), values, mask.shape, coalesced=mask.is_coalesced())


def project(self: Tensor, mask: Tensor) -> Tensor:
    """A coalesced tensor's values at the places that `mask` has."""
    if self.sparse_dim() != mask.sparse_dim():
        raise RuntimeError(
            f"sparse_mask(): the tensor has {self.sparse_dim()} sparse dims and the mask {mask.sparse_dim()}. "
            "Give both the same, with .to_dense().to_sparse(sparse_dim)."
        )
    return make_coo(mask._indices().clone(), lookup(self, mask), mask.shape, coalesced=mask.is_coalesced())


def lookup(self: Tensor, mask: Tensor) -> Tensor:
    """The values of the coalesced `self` at each index of `mask`, zeros where it has none."""
    sizes = sparse_sizes(self)
    position, there = find(keys(mask._indices(), sizes), keys(self._indices(), sizes))
    values = self._values()
    if values.shape[0] == 0:
        return torch.zeros((mask._nnz(), *values.shape[1:]), dtype=values.dtype, device=values.device)
    found = values[position]
    return torch.where(broadcast_rows(there, found), found, torch.zeros_like(found))


@kernel("aten::_sparse_mask_projection")
def sparse_mask_projection(self: Tensor, mask: Tensor, accumulate_matches: bool) -> Tensor:
    """`self` as it is where `mask` has an entry, zero elsewhere; times the number of entries there when they add up."""
    if self.shape != mask.shape or self.sparse_dim() != mask.sparse_dim():
        raise RuntimeError(
            f"_sparse_mask_projection: the mask of shape {tuple(mask.shape)} ({mask.sparse_dim()} sparse) does not go "
            f"with a tensor of shape {tuple(self.shape)} ({self.sparse_dim()} sparse). Both must be the same."
        )
    values, sizes = self._values(), sparse_sizes(self)
    if self._nnz() == 0 or mask._nnz() == 0:
        return make_coo(self._indices().clone(), torch.zeros_like(values), self.shape, coalesced=self.is_coalesced())
    places, wanted = keys(mask._indices(), sizes), keys(self._indices(), sizes)
    if not mask.is_coalesced():
        places = places.sort().values
    first = torch.searchsorted(places, wanted)
    matches = torch.searchsorted(places, wanted, right=True) - first
    if not accumulate_matches:
        matches = matches.clamp(max=1)
    scaled = values * broadcast_rows(matches, values).to(values.dtype)
    return make_coo(self._indices().clone(), scaled, self.shape, coalesced=self.is_coalesced())
