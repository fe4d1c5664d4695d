"""Matrix factorisations: Cholesky, LU, QR, eigenvalues and singular values."""

# ruff: noqa: N803, N806  (arguments keep their names in torch's schemas)
from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import complex_of, is_complex, real_of
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.hlo import lapack
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value


def batched(x: Value) -> Value:
    """(..., m, n) as (batch, m, n)."""
    return hlo.reshape(x, (math.prod(x.shape[:-2]), *x.shape[-2:]))


def transpose(x: Value) -> Value:
    return hlo.permute(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


def conjugate(x: Value) -> Value:
    return hlo.complex_(hlo.real(x), -hlo.imag(x)) if is_complex(x.dtype) else x


def triangle(x: Value, upper: bool, offset: int = 0) -> Value:
    """triu or tril, zeros elsewhere."""
    shape = x.shape[-2:]
    distance = hlo.iota(shape, 1) - hlo.iota(shape, 0)
    keep = hlo.ge(distance, offset) if upper else hlo.le(distance, offset)
    return hlo.select(hlo.broadcast_to(keep, x.shape), x, 0)


def eye(rows: int, columns: int, dtype: torch.dtype) -> Value:
    shape = (rows, columns)
    return hlo.convert(hlo.eq(hlo.iota(shape, 0), hlo.iota(shape, 1)), dtype)


def zeros(shape: Sequence[int], dtype: torch.dtype) -> Value:
    return hlo.full(tuple(shape), 0, dtype)


def succeeded(info: Value, name: str, what: str) -> None:
    """Fails like torch.linalg does when any info is not zero."""
    require(hlo.all_(hlo.eq(info, 0)), "LinAlgError", f"{name}: {what}")


NOT_FINITE = "The algorithm failed to converge because the input matrix contained non-finite values."
NOT_POSITIVE = "The factorization could not be completed because the input is not positive-definite."


def _first_nan(factor: Value, info: Value) -> Value:
    """LAPACK builds differ on a NaN pivot: where the routine went on, info is the order of the first minor with one."""
    broken = hlo.is_nan(diagonal_of(factor))
    order = hlo.convert(hlo.argreduce(hlo.convert(broken, torch.int32), 1, largest=True)[1], torch.int32) + 1
    return hlo.select(hlo.eq(info, 0) & hlo.any_(broken, 1), order, info)


@lower("aten::linalg_cholesky_ex")
def cholesky_ex(self: Value, *, upper: bool = False, check_errors: bool = False) -> tuple[Value, Value]:
    batch = self.shape[:-2]
    if self.numel == 0:
        return self, zeros(batch, torch.int32)
    factor, info = lapack.potrf(batched(self), upper)
    info = _first_nan(factor, info)
    if check_errors:
        succeeded(info, "linalg.cholesky_ex", NOT_POSITIVE)
    return hlo.reshape(triangle(factor, upper), self.shape), hlo.reshape(info, batch)


@lower("aten::cholesky")
def cholesky(self: Value, upper: bool = False) -> Value:
    factor, info = cholesky_ex(self, upper=upper)
    succeeded(info, "cholesky", NOT_POSITIVE)
    return factor


def factor_lu(a: Value) -> tuple[Value, Value, Value]:
    """(LU, pivots, info) of (..., m, n), empty matrices included."""
    *batch, m, n = a.shape
    k = min(m, n)
    if a.numel == 0:
        return a, zeros((*batch, k), torch.int32), zeros(batch, torch.int32)
    lu, pivots, info = lapack.getrf(batched(a))
    return hlo.reshape(lu, a.shape), hlo.reshape(pivots, (*batch, k)), hlo.reshape(info, batch)


@lower("aten::linalg_lu_factor_ex")
def lu_factor_ex(A: Value, *, pivot: bool = True, check_errors: bool = False) -> tuple[Value, Value, Value]:
    if not pivot:
        raise Unsupported("LAPACK has no LU factorisation without pivoting")
    lu, pivots, info = factor_lu(A)
    if check_errors:
        succeeded(info, "torch.linalg.lu_factor_ex", "U is singular: a diagonal element is zero")
    return lu, pivots, info


def permutation(pivots: Value, m: int) -> Value:
    """(batch, m) int64: row i of P^T A is row result[i] of A, from LAPACK's row swaps (batch, k)."""
    b, k = pivots.shape
    rows = hlo.iota((b, m), 1)
    if k == 0 or b == 0:
        return rows
    swaps = hlo.convert(pivots, torch.int64) - 1

    def body(i: Value, perm: Value, swaps: Value) -> list[Value]:
        j = hlo.dynamic_slice(swaps, [0, i], [b, 1])
        at_i, at_j = hlo.eq(rows, i), hlo.eq(rows, j)
        mine = hlo.dynamic_slice(perm, [0, i], [b, 1])
        other = hlo.sum_(hlo.select(at_j, perm, 0), 1, True)
        return [i + 1, hlo.select(at_i, other, hlo.select(at_j, mine, perm)), swaps]

    start = [hlo.constant(0, torch.int64), rows, swaps]
    return hlo.while_loop(start, lambda i, *_: hlo.lt(i, k), body)[1]


@lower("aten::lu_unpack")
def lu_unpack(
    LU_data: Value, LU_pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Value, Value, Value]:
    *batch, m, n = LU_data.shape
    k = min(m, n)
    dtype = LU_data.dtype
    P = L = U = zeros((0,), dtype)
    if unpack_data:
        low = hlo.slice_dim(LU_data, LU_data.ndim - 1, 0, k)
        L = triangle(low, upper=False, offset=-1) + eye(m, k, dtype)
        U = triangle(hlo.slice_dim(LU_data, LU_data.ndim - 2, 0, k), upper=True)
    if unpack_pivots:
        b = math.prod(batch)
        perm = permutation(hlo.reshape(LU_pivots, (b, LU_pivots.shape[-1])), m)
        hot = hlo.eq(hlo.iota((b, m, m), 1), hlo.reshape(perm, (b, 1, m)))
        P = hlo.reshape(hlo.convert(hot, dtype), (*batch, m, m))
    return P, L, U


@lower("aten::linalg_lu")
def lu(A: Value, *, pivot: bool = True) -> tuple[Value, Value, Value]:
    packed, pivots, _ = lu_factor_ex(A, pivot=pivot)
    return lu_unpack(packed, pivots)


def factored(A: Value) -> tuple[Value, Value, Value]:
    """LU of A, or of its transpose when A is real and contiguous: torch's backward formulas of det expect that."""
    return factor_lu(transpose(A) if A.row_major and not is_complex(A.dtype) else A)


def diagonal_of(x: Value) -> Value:
    """The diagonal of (..., n, n)."""
    n = x.shape[-1]
    hot = hlo.broadcast_to(hlo.eq(hlo.iota((n, n), 0), hlo.iota((n, n), 1)), x.shape)
    return hlo.sum_(hlo.select(hot, x, 0), x.ndim - 1)


def _swap_sign(pivots: Value, dtype: torch.dtype) -> Value:
    """-1 for an odd number of row swaps."""
    k = pivots.shape[-1]
    moved = hlo.ne(pivots, hlo.iota(pivots.shape, pivots.ndim - 1, torch.int32) + 1)
    sign = hlo.select(moved, hlo.full((), -1, dtype), hlo.full((), 1, dtype))
    return hlo.prod(sign, pivots.ndim - 1) if k else hlo.full(pivots.shape[:-1], 1, dtype)


@lower("aten::_linalg_det")
def det(A: Value) -> tuple[Value, Value, Value]:
    packed, pivots, _ = factored(A)
    diagonal = diagonal_of(packed)
    return hlo.prod(diagonal, diagonal.ndim - 1) * _swap_sign(pivots, A.dtype), packed, pivots


@lower("aten::_linalg_slogdet")
def slogdet(A: Value) -> tuple[Value, Value, Value, Value]:
    packed, pivots, _ = factored(A)
    diagonal = diagonal_of(packed)
    size = hlo.abs_(diagonal)
    last = diagonal.ndim - 1
    if is_complex(A.dtype):
        unit = hlo.select(hlo.eq(size, 0.0), hlo.zeros_like(diagonal), diagonal / hlo.convert(size, A.dtype))
    else:
        unit = hlo.sign(diagonal)
    sign = hlo.prod(unit, last) * _swap_sign(pivots, A.dtype)
    return sign, hlo.sum_(hlo.log(size), last), packed, pivots


@lower("aten::geqrf")
def geqrf(self: Value) -> tuple[Value, Value]:
    *batch, m, n = self.shape
    if self.numel == 0:
        return self, zeros((*batch, min(m, n)), self.dtype)
    a, tau = lapack.geqrf(batched(self))
    return hlo.reshape(a, self.shape), hlo.reshape(tau, (*batch, min(m, n)))


@lower("aten::linalg_householder_product")
def householder_product(input: Value, tau: Value) -> Value:
    if input.numel == 0:
        return input
    k = tau.shape[-1]
    if k == 0:
        return hlo.broadcast_to(eye(input.shape[-2], input.shape[-1], input.dtype), input.shape)
    b = math.prod(input.shape[:-2])
    return hlo.reshape(lapack.orgqr(batched(input), hlo.reshape(tau, (b, k))), input.shape)


@lower("aten::ormqr")
def ormqr(self: Value, tau: Value, other: Value, left: bool = True, transpose: bool = False) -> Value:
    if other.numel == 0 or tau.shape[-1] == 0:
        return other
    k = tau.shape[-1]
    b = math.prod(self.shape[:-2])
    out = lapack.ormqr(batched(self), hlo.reshape(tau, (b, k)), batched(other), left, transpose)
    return hlo.reshape(out, other.shape)


@lower("aten::linalg_qr")
def qr(A: Value, mode: str = "reduced") -> tuple[Value, Value]:
    *batch, m, n = A.shape
    k = min(m, n)
    columns = m if mode == "complete" else k
    if A.numel == 0:
        q = hlo.broadcast_to(eye(m, columns, A.dtype), (*batch, m, columns))
        return zeros((0,), A.dtype) if mode == "r" else q, zeros((*batch, columns, n), A.dtype)
    a, tau = lapack.geqrf(batched(A))
    top = hlo.slice_dim(a, 1, 0, min(columns, m))
    r = hlo.reshape(triangle(top, upper=True), (*batch, columns, n))
    if mode == "r":
        return zeros((0,), A.dtype), r
    reflectors = hlo.slice_dim(a, 2, 0, min(n, columns))
    reflectors = hlo.pad(reflectors, [0, 0, 0], [0, 0, max(columns - n, 0)])
    return hlo.reshape(lapack.orgqr(reflectors, tau), (*batch, m, columns)), r


@lower("aten::_linalg_eigh")
def eigh(A: Value, UPLO: str = "L", compute_v: bool = True) -> tuple[Value, Value]:
    *batch, n, _ = A.shape
    none = zeros((0,), A.dtype)
    if A.numel == 0:
        return zeros((*batch, n), real_of(A.dtype)), A if compute_v else none
    w, v, info = lapack.syevd(batched(A), UPLO.upper() == "U", compute_v)
    succeeded(info, "linalg.eigh", "The algorithm failed to converge because the input matrix is ill-conditioned.")
    return hlo.reshape(w, (*batch, n)), hlo.reshape(v, A.shape) if compute_v else none


def _eig(A: Value, vectors: bool, name: str) -> tuple[Value, Value]:
    *batch, n, _ = A.shape
    dtype = complex_of(A.dtype)
    if A.numel == 0:
        return zeros((*batch, n), dtype), zeros(A.shape, dtype)
    finite = hlo.is_finite(hlo.real(A))
    if is_complex(A.dtype):
        finite = finite & hlo.is_finite(hlo.imag(A))
    require(hlo.all_(finite), "RuntimeError", f"torch.{name}: input tensor should not contain infs or NaNs.")
    w, v, info = lapack.geev(batched(A), vectors)
    succeeded(info, name, "The algorithm failed to converge because the input matrix is ill-conditioned.")
    return hlo.reshape(w, (*batch, n)), hlo.reshape(v, A.shape)


@lower("aten::linalg_eig")
def eig(self: Value) -> tuple[Value, Value]:
    return _eig(self, True, "linalg.eig")


@lower("aten::_linalg_eigvals", "aten::linalg_eigvals")
def eigvals(self: Value) -> Value:
    return _eig(self, False, "linalg.eigvals")[0]


@lower("aten::_linalg_svd")
def svd(
    A: Value, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Value, Value, Value]:
    *batch, m, n = A.shape
    k = min(m, n)
    none = zeros((0,), A.dtype)
    if A.numel == 0:
        s = zeros((*batch, k), real_of(A.dtype))
        if not compute_uv:
            return none, s, none
        rows, columns = (m, n) if full_matrices else (k, k)
        u = hlo.broadcast_to(eye(m, rows, A.dtype), (*batch, m, rows))
        return u, s, hlo.broadcast_to(eye(columns, n, A.dtype), (*batch, columns, n))
    u, s, vh, info = lapack.gesdd(batched(A), ("A" if full_matrices else "S") if compute_uv else "N")
    finite = hlo.all_(hlo.ne(info, -4))  # LAPACK's word for a NaN in its fourth argument
    require(finite, "LinAlgError", f"linalg.svd: {NOT_FINITE}")
    succeeded(info, "linalg.svd", "The algorithm failed to converge because the input matrix is ill-conditioned.")
    s = hlo.reshape(s, (*batch, k))
    if not compute_uv:
        return none, s, none
    return hlo.reshape(u, (*batch, *u.shape[1:])), s, hlo.reshape(vh, (*batch, *vh.shape[1:]))
