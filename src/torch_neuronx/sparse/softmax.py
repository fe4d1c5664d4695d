"""Softmax over the specified elements of COO tensors; what is not specified counts as minus infinity."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_neuronx.sparse.parts import keys, make_coo, sum_rows
from torch_neuronx.sparse.select import lookup
from torch_neuronx.sparse.table import kernel


def _groups(self: Tensor, dim: int) -> tuple[Tensor, int]:
    """Which pool each entry is in (all its sparse indices but that of `dim`), and how many there are."""
    others = [d for d in range(self.sparse_dim()) if d != dim]
    if not others:
        return torch.zeros(self._nnz(), dtype=torch.int64, device=self.device), 1
    sizes = [self.shape[d] for d in others]
    rows = self._indices()
    key = keys(torch.stack([rows[d] for d in others]), sizes)
    unique, group = torch.unique(key, return_inverse=True)
    return group, unique.shape[0]


def _prepare(name: str, self: Tensor, dim: int, half_to_float: bool) -> tuple[Tensor, int]:
    if half_to_float:
        raise RuntimeError(f"{name}: with Half to Float conversion is not supported on neuron. Convert with .float().")
    if not self.is_floating_point():
        raise NotImplementedError(f"{name}: not implemented for {self.dtype} sparse tensors. Convert with .float().")
    if not -self.dim() <= dim < max(self.dim(), 1):
        low, high = -self.dim(), self.dim() - 1
        raise IndexError(f"Dimension out of range (expected to be in range of [{low}, {high}], but got {dim})")
    return self.coalesce(), dim % max(self.dim(), 1)


def _like(self: Tensor, values: Tensor) -> Tensor:
    return make_coo(self._indices().clone(), values, self.shape, coalesced=True)


def _shifted(self: Tensor, group: Tensor, count: int) -> Tensor:
    """Values less the largest of their pool."""
    values = self._values()
    least = torch.full((count, *values.shape[1:]), float("-inf"), dtype=values.dtype, device=values.device)
    return values - least.index_reduce_(0, group, values, "amax")[group]


@kernel("aten::_sparse_softmax")
def softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    x, dim = _prepare("softmax", self, dim, half_to_float)
    if dim >= x.sparse_dim():
        return _like(x, torch.softmax(x._values(), dim - x.sparse_dim() + 1))
    if x._values().numel() == 0:
        return _like(x, x._values().clone())
    group, count = _groups(x, dim)
    e = torch.exp(_shifted(x, group, count))
    return _like(x, e / sum_rows(e, group, count)[group])


@kernel("aten::_sparse_log_softmax")
def log_softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    x, dim = _prepare("log_softmax", self, dim, half_to_float)
    if dim >= x.sparse_dim():
        return _like(x, torch.log_softmax(x._values(), dim - x.sparse_dim() + 1))
    if x._values().numel() == 0:
        return _like(x, x._values().clone())
    group, count = _groups(x, dim)
    shifted = _shifted(x, group, count)
    return _like(x, shifted - torch.log(sum_rows(torch.exp(shifted), group, count))[group])


def _gradient(grad: Tensor, output: Tensor, dim: int, *, log: bool) -> Tensor:
    out, dim = _prepare("softmax_backward", output, dim, False)
    y, g = out._values(), lookup(grad.coalesce(), out)
    weight = torch.exp(y) if log else y
    pooled = g if log else g * y
    if dim >= out.sparse_dim():
        total = pooled.sum(dim - out.sparse_dim() + 1, keepdim=True)
    elif y.numel() == 0:
        return _like(out, y.clone())
    else:
        group, count = _groups(out, dim)
        total = sum_rows(pooled, group, count)[group]
    return _like(out, g - weight * total if log else pooled - weight * total)


@kernel("aten::_sparse_softmax_backward_data")
def softmax_backward(grad_output: Tensor, output: Tensor, dim: int, self: Tensor) -> Tensor:
    return _gradient(grad_output, output, dim, log=False)


@kernel("aten::_sparse_log_softmax_backward_data")
def log_softmax_backward(grad_output: Tensor, output: Tensor, dim: int, self: Tensor) -> Tensor:
    return _gradient(grad_output, output, dim, log=True)


@kernel("aten::_sparse_sum_backward")
def sum_backward(grad: Tensor, self: Tensor, dim: list[int]) -> Tensor:
    """The gradient at each entry of `self`: what its place was summed into."""
    x = self.coalesce()
    dims = {d % self.dim() for d in dim}
    kept = [d for d in range(x.sparse_dim()) if d not in dims]
    dense_kept = [d not in dims for d in range(x.sparse_dim(), x.dim())]
    shape = x._values().shape
    if not kept:
        rows = grad.to_dense() if grad.is_sparse else grad
        return _like(x, _expand(rows.unsqueeze(0), dense_kept, shape))
    columns = torch.stack([x._indices()[d] for d in kept])
    sizes = [x.shape[d] for d in kept]
    places = make_coo(columns, torch.empty((x._nnz(),), dtype=grad.dtype, device=grad.device), sizes)
    if grad.is_sparse:
        return _like(x, _expand(lookup(grad.coalesce(), places), dense_kept, shape))
    return _like(x, _expand(grad[tuple(columns.unbind(0))], dense_kept, shape))


def _expand(rows: Tensor, kept: list[bool], shape: tuple[int, ...]) -> Tensor:
    """Puts the dense dims that were summed away back, and copies along them."""
    for position, stays in enumerate(kept):
        rows = rows if stays else rows.unsqueeze(position + 1)
    return rows.expand(shape).clone()
