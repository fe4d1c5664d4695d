"""Linear systems, inverses and products of matrices."""

# ruff: noqa: N803  (arguments keep their names in torch's schemas)
from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import real_of
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.hlo import lapack
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.ops.linalg import (
    batched,
    conjugate,
    diagonal_of,
    eigh,
    eye,
    factor_lu,
    permutation,
    succeeded,
    svd,
    transpose,
    zeros,
)
from torch_neuronx.lowering.promotion import promote
from torch_neuronx.lowering.table import in_steps, lower
from torch_neuronx.lowering.value import Sized, Value


def _common_batch(*xs: Value) -> tuple[tuple[int, ...], list[Value]]:
    """(batch shape, operands broadcast to it and flattened to (batch, m, n))."""
    batch = hlo.broadcast_shapes(*(x.shape[:-2] for x in xs))
    return batch, [batched(hlo.broadcast_to(x, (*batch, *x.shape[-2:]))) for x in xs]


def _triangular(a: Value, b: Value, *, left: bool, upper: bool, trans: str = "N", unit: bool = False) -> Value:
    """trsm with batches broadcast and empty systems answered."""
    batch, (a3, b3) = _common_batch(a, b)
    if b3.numel == 0 or a3.numel == 0:
        return zeros((*batch, *b.shape[-2:]), b.dtype)
    out = lapack.trsm(a3, b3, left=left, upper=upper, trans=trans, unit=unit)
    return hlo.reshape(out, (*batch, *b.shape[-2:]))


@lower("aten::linalg_solve_triangular")
def solve_triangular(self: Value, B: Value, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Value:
    return _triangular(self, B, left=left, upper=upper, unit=unitriangular)


@lower("aten::triangular_solve")
def triangular_solve(
    self: Value, A: Value, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Value, Value]:
    batch = hlo.broadcast_shapes(self.shape[:-2], A.shape[:-2])
    trans = "T" if transpose else "N"
    x = _triangular(A, self, left=True, upper=upper, trans=trans, unit=unitriangular)
    return x, hlo.broadcast_to(A, (*batch, *A.shape[-2:]))


def cholesky_apply(factor: Value, b: Value, upper: bool) -> Value:
    """x with (L L^H) x = b, or (U^H U) x = b."""
    first, second = ("C", "N") if upper else ("N", "C")
    y = _triangular(factor, b, left=True, upper=upper, trans=first)
    return _triangular(factor, y, left=True, upper=upper, trans=second)


@lower("aten::_cholesky_solve_helper")
def cholesky_solve_helper(self: Value, A: Value, upper: bool) -> Value:
    return cholesky_apply(A, self, upper)


@lower("aten::cholesky_solve")
def cholesky_solve(self: Value, input2: Value, upper: bool = False) -> Value:
    return cholesky_apply(input2, self, upper)


@lower("aten::cholesky_inverse")
def cholesky_inverse(self: Value, upper: bool = False) -> Value:
    if self.numel == 0:
        return self
    regular = hlo.all_(hlo.ne(diagonal_of(self), 0))
    require(regular, "LinAlgError", "cholesky_inverse: a diagonal element is zero: the input matrix is singular.")
    return cholesky_apply(self, eye(self.shape[-1], self.shape[-1], self.dtype), upper)


def take_rows(x: Value, rows: Value) -> Value:
    """x[b, rows[b, i]] for (batch, n, k) and (batch, m)."""
    return hlo.gather(
        x,
        hlo.reshape(rows, (*rows.shape, 1)),
        offset_dims=[2],
        collapsed=[1],
        index_map=[1],
        slice_sizes=[1, 1, x.shape[2]],
        operand_batching=[0],
        indices_batching=[0],
    )


def _inverse_permutation(perm: Value) -> Value:
    return hlo.sort([perm, hlo.iota(perm.shape, 1)], 1, lambda a, b, *_: hlo.lt(a, b))[1]


def _solve_factored(lu: Value, pivots: Value, b: Value, trans: str) -> Value:
    """x with op(A) x = b for (batch, n, n) factors of A; op is N, T or C."""
    perm = permutation(pivots, lu.shape[1])
    if trans == "N":
        y = lapack.trsm(lu, take_rows(b, perm), left=True, upper=False, unit=True)
        return lapack.trsm(lu, y, left=True, upper=True)
    y = lapack.trsm(lu, b, left=True, upper=True, trans=trans)
    y = lapack.trsm(lu, y, left=True, upper=False, trans=trans, unit=True)
    return take_rows(y, _inverse_permutation(perm))


@lower("aten::linalg_lu_solve")
def lu_solve(LU: Value, pivots: Value, B: Value, *, left: bool = True, adjoint: bool = False) -> Value:
    batch = hlo.broadcast_shapes(LU.shape[:-2], B.shape[:-2])
    shape = (*batch, *B.shape[-2:])
    if math.prod(shape) == 0:
        return zeros(shape, B.dtype)
    _, (lu, b) = _common_batch(LU, B)
    n = lu.shape[1]
    swaps = hlo.reshape(hlo.broadcast_to(pivots, (*batch, n)), (lu.shape[0], n))
    if left:
        return hlo.reshape(_solve_factored(lu, swaps, b, "C" if adjoint else "N"), shape)
    if adjoint:  # X A^H = B  <=>  A conj(X^T) = conj(B^T)
        x = transpose(conjugate(_solve_factored(lu, swaps, conjugate(transpose(b)), "N")))
    else:  # X A = B  <=>  A^T X^T = B^T
        x = transpose(_solve_factored(lu, swaps, transpose(b), "T"))
    return hlo.reshape(x, shape)


def _is_vector(A: Value, B: Value) -> bool:
    """Whether torch takes B as a batch of right-hand-side vectors."""
    return B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])


@lower("aten::_linalg_solve_ex")
def solve_ex(A: Value, B: Value, *, left: bool = True, check_errors: bool = False) -> tuple[Value, Value, Value, Value]:
    packed, pivots, info = factor_lu(A)
    if check_errors:
        succeeded(info, "torch.linalg.solve_ex", "The solver failed because the input matrix is singular.")
    vector = _is_vector(A, B)
    b = hlo.reshape(B, (*B.shape, 1)) if vector else B
    x = lu_solve(packed, pivots, b, left=left)
    return hlo.reshape(x, x.shape[:-1]) if vector else x, packed, pivots, info


@lower("aten::linalg_inv_ex")
def inv_ex(A: Value, *, check_errors: bool = False) -> tuple[Value, Value]:
    packed, pivots, info = factor_lu(A)
    if check_errors:
        succeeded(info, "linalg.inv_ex", "The diagonal element is zero, the inversion could not be completed.")
    identity = hlo.broadcast_to(eye(A.shape[-1], A.shape[-1], A.dtype), A.shape)
    return lu_solve(packed, pivots, identity), info


def matmul(a: Value, b: Value) -> Value:
    """(batch, m, k) times (batch, k, n)."""
    return hlo.dot_general(a, b, ((2,), (1,)), ((0,), (0,)))


@lower("aten::linalg_cross")
def cross(self: Value, other: Value, *, dim: int = -1) -> Value:
    _, (a, b) = promote(self, other)
    shape = hlo.broadcast_shapes(a.shape, b.shape)
    a, b = hlo.broadcast_to(a, shape), hlo.broadcast_to(b, shape)
    d = dim % len(shape)

    def turn(x: Value, by: int) -> Value:
        return hlo.concatenate([hlo.slice_dim(x, d, by, 3), hlo.slice_dim(x, d, 0, by)], d)

    return turn(a, 1) * turn(b, 2) - turn(a, 2) * turn(b, 1)


_TAYLOR_DEGREE = 18
_TAYLOR_BOUND = {torch.float32: 3.0, torch.float64: 1.0}  # 1-norms for which degree 18 is exact to rounding


@lower("aten::linalg_matrix_exp")
def matrix_exp(self: Value) -> Value:
    """Scaling and squaring around a Taylor polynomial; each matrix is squared as often as it was halved."""
    if self.numel == 0:
        return self
    a = batched(self)
    b, n, _ = a.shape
    real = real_of(a.dtype)
    if real not in _TAYLOR_BOUND:
        raise Unsupported(f"of {self.dtype} the CPU's own result depends on its blocking, and is NaN for most inputs")
    norm = hlo.reduce_max(hlo.sum_(hlo.abs_(a), 1), 1)
    ratio = norm / _TAYLOR_BOUND[real]
    needed = hlo.ceil(hlo.log(hlo.maximum(ratio, 1.0)) * (1.0 / math.log(2.0)))
    halvings = hlo.convert(hlo.clamp(0.0, needed, 1024.0), torch.int64)
    scale = hlo.power(hlo.full((b,), 2.0, real), -hlo.convert(halvings, real))
    x = a * hlo.reshape(hlo.convert(scale, a.dtype), (b, 1, 1))
    identity = hlo.broadcast_to(eye(n, n, a.dtype), a.shape)
    powers = [identity, x, matmul(x, x)]
    powers.append(matmul(powers[2], x))
    # Paterson-Stockmeyer: blocks of three powers, Horner in x^3
    total = hlo.zeros_like(x)
    for block in reversed(range(_TAYLOR_DEGREE // 3 + 1)):
        terms = [powers[j] * (1.0 / math.factorial(3 * block + j)) for j in range(3) if 3 * block + j <= _TAYLOR_DEGREE]
        total = matmul(total, powers[3]) if block != _TAYLOR_DEGREE // 3 else total
        for term in terms:
            total = total + term
    most = hlo.reduce_max(halvings)

    def body(i: Value, total: Value) -> Sequence[Value]:
        again = hlo.reshape(hlo.lt(i, halvings), (b, 1, 1))
        return [i + 1, hlo.select(again, matmul(total, total), total)]

    total = hlo.while_loop([hlo.constant(0, torch.int64), total], lambda i, _: hlo.lt(i, most), body)[1]
    return hlo.reshape(total, self.shape)


@lower("aten::_compute_linear_combination")
def linear_combination(input: Value, coefficients: Value) -> Value:
    """Row i of the result is the sum over j of coefficients[i, j] * input[j]."""
    return hlo.dot_general(coefficients, input, ([1], [0]))


@lower("aten::linalg_lstsq", attributes=["rcond"])
def lstsq(
    self: Value, b: Value, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Value, Value | Sized, Value, Value]:
    """Least squares of minimal norm through the singular values, for every driver."""
    m, n = self.shape[-2:]
    vector = _is_vector(self, b)
    rhs = hlo.reshape(b, (*b.shape, 1)) if vector else b
    method = driver or "gelsy"
    if self.numel == 0 or rhs.numel == 0:
        raise Unsupported("least squares of an empty system")
    shape, (a, y) = _common_batch(self, rhs)
    real = real_of(a.dtype)
    u, s, vh = svd(a)
    eps = torch.finfo(real).eps
    cut = eps * max(m, n) if rcond is None else float(rcond)
    kept = hlo.gt(s, cut * hlo.slice_dim(s, 1, 0, 1))
    inverse = hlo.select(kept, 1.0 / s, 0.0)
    x = matmul(conjugate(transpose(u)), y) * hlo.reshape(hlo.convert(inverse, a.dtype), (*s.shape, 1))
    x = hlo.reshape(matmul(conjugate(transpose(vh)), x), (*shape, n, y.shape[2]))
    rank = hlo.sum_(hlo.convert(kept, torch.int64), 1)
    none = zeros((0,), real)
    residuals: Value | Sized = none
    if m > n and method != "gelsy":
        apart = hlo.abs_(matmul(a, batched(x)) - y)
        residuals = hlo.reshape(hlo.sum_(apart * apart, 1), (*shape, y.shape[2]))
        if method in ("gelsd", "gelss"):
            if shape:
                raise Unsupported("residuals of a batch, which exist only when every matrix has full rank")
            count = hlo.select(hlo.all_(hlo.eq(rank, n)), residuals.shape[0], hlo.constant(0, torch.int64))
            residuals = Sized(residuals, count)
    ranks = hlo.reshape(rank, shape) if method != "gels" else zeros((0,), torch.int64)
    values = hlo.reshape(s, (*shape, s.shape[1])) if method in ("gelsd", "gelss") else none
    return hlo.reshape(x, x.shape[:-1]) if vector else x, residuals, ranks, values


@in_steps("aten::linalg_lstsq")
def lstsq_in_steps(
    self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A batch has residuals when all of its matrices have full rank: that takes a look."""
    if self.numel() == 0 or b.numel() == 0:  # nothing to compute: the CPU knows the shapes
        none = torch.ops.aten.linalg_lstsq.default(self.cpu(), b.cpu(), rcond, driver=driver)
        return tuple(t.to(self.device) for t in none)
    x, _, rank, _ = torch.ops.aten.linalg_lstsq.default(self, b, rcond)
    vector = b.dim() == 1 or b.shape == self.shape[:-1]
    rhs = b.unsqueeze(-1) if vector else b
    values = torch.linalg.svdvals(self).expand(*rank.shape, -1)
    residuals = values.new_empty(0)
    if bool((rank == self.shape[-1]).all()):
        residuals = (self @ (x.unsqueeze(-1) if vector else x) - rhs).abs().square().sum(-2)
    return x, residuals, rank, values


@lower("aten::linalg_pinv.atol_rtol_tensor")
def pinv(self: Value, *, atol: Value | None = None, rtol: Value | None = None, hermitian: bool = False) -> Value:
    *batch, m, n = self.shape
    if self.numel == 0:
        return zeros((*batch, n, m), self.dtype)
    if hermitian:
        values, u = eigh(self)
        size = hlo.abs_(values)
        right, left = u, conjugate(transpose(u))
    else:
        u, values, vh = svd(self)
        size, right, left = values, conjugate(transpose(vh)), conjugate(transpose(u))
    keep = hlo.gt(size, hlo.unsqueeze(_cut_off(hlo.reduce_max(size, size.ndim - 1), atol, rtol, max(m, n)), -1))
    inverse = hlo.convert(hlo.select(keep, 1.0 / values, hlo.zeros_like(values)), self.dtype)
    scaled = right * hlo.reshape(inverse, (*batch, 1, inverse.shape[-1]))
    return hlo.reshape(matmul(batched(scaled), batched(left)), (*batch, n, m))


def _cut_off(largest: Value, atol: Value | None, rtol: Value | None, extent: int) -> Value:
    """max(atol, rtol * largest singular value); rtol defaults to eps * extent unless atol is positive."""
    usual = torch.finfo(largest.dtype).eps * extent
    absolute = None if atol is None else hlo.convert(atol, largest.dtype)
    if rtol is not None:
        relative = hlo.convert(rtol, largest.dtype)
    elif absolute is not None:
        relative = hlo.select(hlo.gt(absolute, 0.0), hlo.zeros_like(absolute), hlo.full_like(absolute, usual))
    else:
        relative = hlo.constant(usual, largest.dtype)
    bound = relative * largest
    return bound if absolute is None else hlo.maximum(absolute, bound)
