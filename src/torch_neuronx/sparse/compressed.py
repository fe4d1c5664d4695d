"""Arithmetic of CSR, CSC, BSR and BSC tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_neuronx.sparse.arithmetic import add_into
from torch_neuronx.sparse.parts import (
    COMPRESSED,
    compressed_parts,
    entry_rows,
    make_compressed,
    row_offsets,
    scale,
    sum_rows,
)
from torch_neuronx.sparse.products import combine, multiply_rows
from torch_neuronx.sparse.table import compressed, kernel
from torch_neuronx.sparse.write import write

ONLY = (compressed,)


@kernel("aten::add.out", tables=ONLY)
def add_out(self: Tensor, other: Tensor, alpha: Any, out: Tensor) -> Tensor:
    write(out, _add(self, other, alpha, in_place=out is self))
    return out


def _add(self: Tensor, other: Tensor, alpha: Any, *, in_place: bool) -> Tensor:
    if self.shape != other.shape:
        raise RuntimeError(
            f"add: Expected input tensors to have the same shape, but got {tuple(self.shape)} and "
            f"{tuple(other.shape)}. Sparse tensors do not broadcast when they are added."
        )
    if self.layout == torch.strided:
        dtype = torch.result_type(self, other)
        target = self if in_place and self.dtype == dtype else self.to(dtype, copy=True)
        return add_into(target, other.to_sparse(), alpha)
    if other.layout == torch.strided:
        return other.to(torch.result_type(self, other)) * alpha + self.to_dense()
    if self.layout != other.layout:
        raise RuntimeError(
            f"add: expected tensors of one layout, but got {self.layout} and {other.layout}. Convert one of them."
        )
    parts, others = compressed_parts(self), compressed_parts(other)
    batch = parts[0].dim() - 1
    if not batch:
        return back(torch.add(self.to_sparse(), other.to_sparse(), alpha=alpha).coalesce(), self)
    if self.values().shape != other.values().shape or not all(map(torch.equal, parts, others)):
        raise RuntimeError(
            f"add: batches of {self.layout} matrices can be added where both have the same places filled. "
            "Add them one by one, or as .to_dense()."
        )
    values = torch.add(self.values(), other.values(), alpha=alpha)
    return make_compressed(parts[0].clone(), parts[1].clone(), values, self.shape, self.layout)


def back(coo: Tensor, like: Tensor) -> Tensor:
    """A COO tensor in the layout of another, with its kind of indices and block size."""
    block = like.values().shape[-2:] if like.layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    made = coo.to_sparse(layout=like.layout, blocksize=block)
    index, plain = compressed_parts(made)
    dtype = compressed_parts(like)[0].dtype
    return make_compressed(index.to(dtype), plain.to(dtype), made.values(), made.shape, like.layout)


@kernel("aten::addmm.out", tables=ONLY)
def addmm_out(self: Tensor, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any, out: Tensor) -> Tensor:
    write(out, _addmm(self, mat1, mat2, beta, alpha))
    return out


def _addmm(self: Tensor, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any) -> Tensor:
    if mat1.dim() != 2 or mat2.dim() != 2 or mat1.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"addmm: mat1 and mat2 shapes cannot be multiplied, {tuple(mat1.shape)} and {tuple(mat2.shape)}. "
            "The columns of the first must be as many as the rows of the second."
        )
    product = multiply(mat1, mat2)
    if self.layout in COMPRESSED:
        if product.layout == torch.strided:
            raise RuntimeError("addmm: the result is dense, but `input` is sparse. Convert it with .to_dense().")
        product = scale(product, alpha)
        return back(product if beta == 0 else torch.add(product, self.to_sparse(), alpha=beta).coalesce(), self)
    return combine(self, product.to_dense(), beta, alpha)


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """A product of two matrices of which at least one is sparse: dense if one is dense, else COO."""
    if a.layout == torch.strided:
        return multiply(b.transpose(0, 1), a.transpose(0, 1)).transpose(0, 1)
    if b.layout != torch.strided:
        return torch._sparse_sparse_matmul(a.to_sparse(), b.to_sparse())
    if a.layout == torch.sparse_csr:
        rows = entry_rows(a.crow_indices(), a._nnz())
        return multiply_rows(rows, a.col_indices(), a.values(), b, a.shape[0])
    return torch.mm(a.to_sparse(), b)


@kernel("aten::addmv.out", tables=ONLY)
def addmv_out(self: Tensor, mat: Tensor, vec: Tensor, beta: Any, alpha: Any, out: Tensor) -> Tensor:
    if mat.dim() != 2 or vec.dim() != 1 or mat.shape[1] != vec.shape[0]:
        raise RuntimeError(
            f"addmv: size mismatch, got input ({tuple(self.shape)}), mat ({tuple(mat.shape)}), vec "
            f"({tuple(vec.shape)}). The columns of mat must be as many as the elements of vec."
        )
    product = multiply(mat, vec.unsqueeze(1)).squeeze(1)
    write(out, combine(self, product, beta, alpha))
    return out


@kernel("aten::sparse_sampled_addmm", tables=ONLY)
def sampled_addmm(self: Tensor, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any) -> Tensor:
    """alpha * (mat1 @ mat2) at the places that `self` has, plus beta * self."""
    _check_sampled(self, mat1, mat2)
    crow, columns = self.crow_indices(), self.col_indices()
    rows = entry_rows(crow, columns.shape[-1])
    if crow.dim() == 1:
        products = (mat1[rows] * mat2.transpose(0, 1)[columns]).sum(1)
    else:
        a, b = mat1.reshape(-1, *mat1.shape[-2:]), mat2.transpose(-2, -1).reshape(-1, mat2.shape[-1], mat2.shape[-2])
        batch = torch.arange(a.shape[0], device=a.device).unsqueeze(1)
        flat = (a.shape[0], columns.shape[-1])
        products = (a[batch, rows.reshape(flat)] * b[batch, columns.reshape(flat)]).sum(2).reshape(columns.shape)
    values = products * alpha
    if beta != 0:
        values = values + self.values() * beta
    return make_compressed(crow.clone(), columns.clone(), values, self.shape, torch.sparse_csr)


def _check_sampled(self: Tensor, mat1: Tensor, mat2: Tensor) -> None:
    if self.layout != torch.sparse_csr or mat1.layout != torch.strided or mat2.layout != torch.strided:
        raise RuntimeError(
            f"sampled_addmm: Expected a CSR input and two dense matrices, but got {self.layout}, {mat1.layout} and "
            f"{mat2.layout}. Convert with .to_sparse_csr() or .to_dense()."
        )
    if not (self.is_floating_point() or self.is_complex()):
        raise RuntimeError(
            f"sampled_addmm: Expected self to be a floating-point or complex tensor, but got {self.dtype}. "
            "Convert it with .to(dtype)."
        )
    if not self.dtype == mat1.dtype == mat2.dtype:
        raise RuntimeError(
            f"sampled_addmm: Expected one dtype, but got {self.dtype}, {mat1.dtype} and {mat2.dtype}. Use .to(dtype)."
        )
    fits = mat1.dim() >= 2 and mat2.dim() >= 2 and mat1.shape[-1] == mat2.shape[-2]
    if not fits or self.shape != (*mat1.shape[:-1], mat2.shape[-1]) or mat1.shape[:-2] != mat2.shape[:-2]:
        raise RuntimeError(
            f"sampled_addmm: self of shape {tuple(self.shape)} does not match the product of mat1 "
            f"{tuple(mat1.shape)} and mat2 {tuple(mat2.shape)}. Batches must be equal too."
        )


@kernel("aten::triangular_solve.X", tables=ONLY)
def triangular_solve(
    self: Tensor,
    A: Tensor,  # noqa: N803
    upper: bool,
    transpose: bool,
    unitriangular: bool,
    X: Tensor,  # noqa: N803
    M: Tensor,  # noqa: N803
) -> tuple[Tensor, Tensor]:
    """Through the dense matrix: a substitution is sequential whatever the layout."""
    del M  # torch leaves it empty for sparse matrices
    matrix = A.to_dense()
    matrix, upper = (matrix.transpose(-2, -1), not upper) if transpose else (matrix, upper)
    write(X, torch.linalg.solve_triangular(matrix, self, upper=upper, unitriangular=unitriangular))
    return X, torch.empty((0,), dtype=X.dtype, device=X.device)


def _reduce(self: Tensor, dims: list[int], keepdim: bool, dtype: torch.dtype | None, product: bool) -> Tensor:
    name = "_sparse_csr_prod" if product else "_sparse_csr_sum"
    if not keepdim:
        raise RuntimeError(f"{name}: reduction operations on CSR tensors with keepdim=False is unsupported. Pass True.")
    if self.dim() != 2 or self.layout != torch.sparse_csr:
        raise RuntimeError(f"{name}: expected a CSR matrix, but got {self.layout} with {self.dim()} dims. Convert it.")
    values = self.values()
    if dtype is None:
        dtype = torch.int64 if not (values.is_floating_point() or values.is_complex()) else values.dtype
    values = values.to(dtype)
    over = {d % 2 for d in dims} or {0, 1}
    columns = self.col_indices()
    if over == {0, 1}:
        return _one(self, values.prod() if product else values.sum())
    if over == {0}:
        unique, group = torch.unique(columns, return_inverse=True)
        offsets = torch.tensor([0, unique.shape[0]], dtype=columns.dtype, device=columns.device)
        reduced = _combine(values, group, unique.shape[0], product)
        return make_compressed(offsets, unique.to(columns.dtype), reduced, (1, self.shape[1]), torch.sparse_csr)
    filled, group = torch.unique(entry_rows(self.crow_indices(), self._nnz()), return_inverse=True)
    offsets = row_offsets(filled, self.shape[0]).to(columns.dtype)
    reduced = _combine(values, group, filled.shape[0], product)
    return make_compressed(
        offsets, torch.zeros_like(filled).to(columns.dtype), reduced, (self.shape[0], 1), self.layout
    )


def _one(self: Tensor, total: Tensor) -> Tensor:
    """A 1 x 1 matrix, empty when nothing was summed."""
    filled = min(self._nnz(), 1)
    columns = self.col_indices()
    offsets = torch.tensor([0, filled], dtype=columns.dtype, device=columns.device)
    values = total.reshape(1)[:filled]
    return make_compressed(offsets, torch.zeros_like(columns[:filled]), values, (1, 1), torch.sparse_csr)


def _combine(values: Tensor, group: Tensor, count: int, product: bool) -> Tensor:
    if not product:
        return sum_rows(values, group, count)
    return torch.ones((count,), dtype=values.dtype, device=values.device).index_reduce_(0, group, values, "prod")


@kernel("aten::_sparse_csr_sum.dim_dtype", tables=ONLY)
def csr_sum(self: Tensor, dim: list[int], keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    return _reduce(self, dim, keepdim, dtype, False)


@kernel("aten::_sparse_csr_prod.dim_dtype", tables=ONLY)
def csr_prod(self: Tensor, dim: list[int], keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    return _reduce(self, dim, keepdim, dtype, True)
