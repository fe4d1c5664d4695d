"""Matrix products with COO tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_neuronx.sparse.parts import make_coo, scale, spread, sum_rows, widened
from torch_neuronx.sparse.table import kernel
from torch_neuronx.sparse.write import write


@kernel("aten::addmm")
def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any) -> Tensor:
    """beta * self + alpha * (mat1 @ mat2) of a sparse and a dense matrix; `self` is dense."""
    return combine(self, _sparse_dense(mat1, mat2), beta, alpha)


def combine(base: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    """beta * base + alpha * product; when beta is 0, base is not looked at."""
    product = scale(product, alpha)
    return product if beta == 0 else product + scale(base.expand(product.shape), beta)


def _check_matrices(name: str, a: Tensor, b: Tensor) -> None:
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"{name}: expected two matrices that can be multiplied, but got {tuple(a.shape)} and {tuple(b.shape)}. "
            "The columns of the first must be as many as the rows of the second."
        )


def _two_sparse_dims(name: str, sparse: Tensor) -> None:
    if sparse.dense_dim():
        raise RuntimeError(
            f"{name}: expected a matrix with two sparse dims, but it has {sparse.dense_dim()} dense ones. "
            "Convert with .to_dense().to_sparse()."
        )


def _sparse_dense(sparse: Tensor, dense: Tensor) -> Tensor:
    _check_matrices("mm", sparse, dense)
    if sparse.layout != torch.sparse_coo or dense.layout != torch.strided:
        raise RuntimeError(
            f"mm: expected a sparse COO matrix times a dense one, but got {sparse.layout} and {dense.layout}. "
            "Convert with .to_dense() or .to_sparse()."
        )
    _two_sparse_dims("mm", sparse)
    rows, columns = sparse._indices().unbind(0)
    return multiply_rows(rows, columns, sparse._values(), dense, sparse.shape[0])


def multiply_rows(rows: Tensor, columns: Tensor, values: Tensor, dense: Tensor, count: int) -> Tensor:
    """The product of the matrix with `values` at (rows, columns), which has `count` rows, and a dense one."""
    if values.shape[0] == 0 or dense.shape[1] == 0:
        return torch.zeros((count, dense.shape[1]), dtype=dense.dtype, device=dense.device)
    return sum_rows(widened(values).unsqueeze(1) * widened(dense[columns]), rows, count).to(dense.dtype)


@kernel("aten::bmm")
def bmm(self: Tensor, mat2: Tensor) -> Tensor:
    """A batch of sparse matrices times a batch of dense ones: one product over (batch, row) pairs."""
    if self.dim() != 3 or mat2.dim() != 3 or self.shape[0] != mat2.shape[0] or self.shape[2] != mat2.shape[1]:
        raise RuntimeError(
            f"bmm: expected two batches of matrices that can be multiplied, but got {tuple(self.shape)} and "
            f"{tuple(mat2.shape)}. The batches must be equal and the inner sizes too."
        )
    if self.sparse_dim() != 3:
        raise RuntimeError(
            f"bmm: expected three sparse dims, but the first argument has {self.sparse_dim()}. "
            "Convert it with .to_dense().to_sparse()."
        )
    batch, row, column = self.coalesce()._indices().unbind(0)
    flat = mat2.reshape(mat2.shape[0] * mat2.shape[1], mat2.shape[2])
    product = multiply_rows(
        batch * self.shape[1] + row,
        batch * mat2.shape[1] + column,
        self.coalesce()._values(),
        flat,
        self.shape[0] * self.shape[1],
    )
    return product.reshape(self.shape[0], self.shape[1], mat2.shape[2])


@kernel("aten::hspmm")
def hspmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """A sparse matrix times a dense one, as a hybrid tensor of the rows that are not empty."""
    _check_matrices("hspmm", mat1, mat2)
    _two_sparse_dims("hspmm", mat1)
    rows, columns = mat1.coalesce()._indices().unbind(0)
    shape = (mat1.shape[0], mat2.shape[1])
    unique, group = torch.unique(rows, return_inverse=True)
    values = multiply_rows(group, columns, mat1.coalesce()._values(), mat2, unique.shape[0])
    return make_coo(unique.unsqueeze(0), values, shape)


@kernel("aten::sspaddmm.out")
def sspaddmm_out(self: Tensor, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any, out: Tensor) -> Tensor:
    """beta * self + alpha * (mat1 @ mat2), all but mat2 sparse."""
    product = hspmm(mat1, mat2)
    count, width = product._indices().shape[1], mat2.shape[1]
    columns = torch.arange(width, device=mat2.device).repeat(count)
    indices = torch.stack([product._indices()[0].repeat_interleave(width), columns])
    values = scale(product._values().reshape(-1), alpha)
    if beta != 0:
        indices = torch.cat([self._indices(), indices], 1)
        values = torch.cat([scale(self._values(), beta), values])
    write(out, make_coo(indices, values, product.shape, coalesced=False))
    return out


@kernel("aten::_sparse_sparse_matmul")
def sparse_sparse(self: Tensor, other: Tensor) -> Tensor:
    """Every entry (i, k) of the first meets every entry (k, j) of the second."""
    _check_matrices("sparse.mm", self, other)
    if self.dense_dim() or other.dense_dim():
        raise RuntimeError(
            "sparse.mm: scalar values expected, got hybrid tensors. Convert with .to_dense().to_sparse()."
        )
    a, b = self.coalesce(), other.coalesce()
    shape = (self.shape[0], other.shape[1])
    (rows, inner), (inner_b, columns) = a._indices().unbind(0), b._indices().unbind(0)
    counts = torch.bincount(inner_b, minlength=other.shape[0])
    first = counts.cumsum(0) - counts
    left, number = spread(counts[inner]) if a._nnz() else (inner, inner)
    right = first[inner][left] + number
    values = a._values()[left] * b._values()[right]
    return make_coo(torch.stack([rows[left], columns[right]]), values, shape).coalesce()
