"""LDL factorisation with Bunch-Kaufman pivots, in LAPACK's storage; jaxlib has no sytrf.

Each matrix of a batch advances by its own step (1 or 2 columns) at a time, so positions are one-hot masks.
"""

from __future__ import annotations

import math

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import is_complex
from torch_neuronx.lowering.ops.arg_reduce import first_where
from torch_neuronx.lowering.ops.linalg import batched, conjugate, succeeded, transpose, triangle, zeros
from torch_neuronx.lowering.ops.linalg_solve import take_rows
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value

_ALPHA = (1 + math.sqrt(17)) / 8


def _same(x: Value) -> Value:
    return x


def _at(x: Value, k: Value) -> Value:
    """x[b, k[b]] as (batch, 1, ...): a row of (batch, n, m) or an element of (batch, n); 0 outside."""
    tail = [1] * (x.ndim - 2)
    hot = hlo.eq(hlo.iota(x.shape[:2], 1), k)
    return hlo.sum_(hlo.select(hlo.reshape(hot, (*hot.shape, *tail)), x, 0), 1, True)


def _column(x: Value, k: Value) -> Value:
    """x[b, :, k[b]] as (batch, n)."""
    b, n, _ = x.shape
    return hlo.reshape(_at(transpose(x), k), (b, n))


def _swapped(b: int, n: int, i: Value, j: Value) -> Value:
    """The order of n rows with i and j exchanged."""
    rows = hlo.iota((b, n), 1)
    return hlo.select(hlo.eq(rows, i), j, hlo.select(hlo.eq(rows, j), i, rows))


def _size(x: Value) -> Value:
    """What LAPACK compares: |re| + |im|."""
    return hlo.abs_(hlo.real(x)) + hlo.abs_(hlo.imag(x)) if is_complex(x.dtype) else hlo.abs_(x)


def _outer(x: Value, y: Value) -> Value:
    return hlo.unsqueeze(x, 2) * hlo.unsqueeze(y, 1)


def _pivot(s: Value, k: Value) -> tuple[Value, Value, Value]:
    """(row to exchange, whether two columns are eliminated, whether the column is zero)."""
    rows = hlo.iota(s.shape[:2], 1)
    size = _size(_column(s, k))
    here = _at(size, k)
    below = hlo.select(hlo.gt(rows, k), size, -1.0)
    most = hlo.maximum(hlo.reduce_max(below, 1, True), 0.0)
    best = hlo.minimum(first_where(hlo.eq(below, most), 1), s.shape[1] - 1)
    across = _size(_column(s, best))
    own = _at(across, best)
    row_most = hlo.reduce_max(hlo.select(hlo.ge(rows, k) & hlo.ne(rows, best), across, 0.0), 1, True)
    zero = hlo.eq(hlo.maximum(here, most), 0.0)
    stays = zero | hlo.ge(here, _ALPHA * most) | hlo.ge(here, _ALPHA * most * (most / row_most))
    single = stays | hlo.ge(own, _ALPHA * row_most)
    return hlo.select(stays, k, best), hlo.not_(single), zero


def _block(s: Value, k: Value) -> tuple[Value, Value, Value]:
    """The diagonal block at k: (s[k, k], s[k + 1, k], s[k + 1, k + 1])."""
    first, second = _column(s, k), _column(s, k + 1)
    return _at(first, k), _at(first, k + 1), _at(second, k + 1)


@lower("aten::linalg_ldl_factor_ex")
def ldl_factor_ex(self: Value, *, hermitian: bool = False, check_errors: bool = False) -> tuple[Value, Value, Value]:
    *batch, n, _ = self.shape
    if self.numel == 0:
        return self, zeros((*batch, n), torch.int32), zeros(batch, torch.int32)
    conj = conjugate if hermitian and is_complex(self.dtype) else _same
    low = triangle(batched(self), upper=False)
    b = low.shape[0]
    rows = hlo.iota((b, n), 1)

    def inside(mask: Value) -> Value:
        return hlo.reshape(mask, (b, n, 1)) & hlo.reshape(mask, (b, 1, n))

    def put(s: Value, k: Value, keep: Value, column: Value) -> Value:
        """Column k below the block takes new values."""
        chosen = hlo.reshape(keep, (b, n, 1)) & hlo.reshape(hlo.eq(rows, k), (b, 1, n))
        return hlo.select(chosen, hlo.unsqueeze(column, 2), s)

    def body(k: Value, s: Value, pivots: Value, info: Value) -> list[Value]:
        other, double, zero = _pivot(s, k)
        last = k + hlo.convert(double, torch.int64)
        order = _swapped(b, n, last, other)
        moved = transpose(take_rows(transpose(take_rows(s, order)), order))
        s = hlo.select(inside(hlo.ge(rows, k)), moved, s)
        rest = hlo.gt(rows, last)
        x = hlo.select(rest, _column(s, k), 0)
        y = hlo.select(rest & double, _column(s, k + 1), 0)
        d, e, f = _block(s, k)
        det = d * f - e * conj(e)
        l_one = hlo.select(double, (f * x - e * y) / det, x / d)
        l_two = hlo.select(double, (d * y - conj(e) * x) / det, 0)
        change = _outer(l_one, conj(x)) + _outer(l_two, conj(y))
        works = rest & hlo.not_(zero)
        s = hlo.select(inside(works), s - change, s)
        s = put(s, k, works, l_one)
        s = put(s, k + 1, works & double, l_two)
        mark = hlo.convert(hlo.select(double, -(other + 1), other + 1), torch.int32)
        pivots = hlo.select(hlo.ge(rows, k) & hlo.le(rows, last), mark, pivots)
        fails = zero & hlo.eq(info, 0) & hlo.lt(k, n)
        info = hlo.select(fails, hlo.convert(k + 1, torch.int32), info)
        return [hlo.minimum(last + 1, n), s, pivots, info]

    mirrored = low + conj(transpose(triangle(low, upper=False, offset=-1)))
    start = [zeros((b, 1), torch.int64), mirrored, zeros((b, n), torch.int32), zeros((b, 1), torch.int32)]
    _, s, pivots, info = hlo.while_loop(start, lambda k, *_: hlo.any_(hlo.lt(k, n)), body)
    if check_errors:
        succeeded(info, "torch.linalg.ldl_factor_ex", "the factor D is singular")
    factors = hlo.reshape(triangle(s, upper=False), self.shape)
    return factors, hlo.reshape(pivots, (*batch, n)), hlo.reshape(info, batch)


@lower("aten::linalg_ldl_solve")
def ldl_solve(LD: Value, pivots: Value, B: Value, *, hermitian: bool = False) -> Value:  # noqa: N803
    batch = hlo.broadcast_shapes(LD.shape[:-2], B.shape[:-2])
    n, columns = B.shape[-2:]
    shape = (*batch, n, columns)
    if math.prod(shape) == 0:
        return zeros(shape, B.dtype)
    conj = conjugate if hermitian and is_complex(LD.dtype) else _same
    ld = batched(hlo.broadcast_to(LD, (*batch, n, n)))
    x = batched(hlo.broadcast_to(B, shape))
    b = ld.shape[0]
    marks = hlo.convert(hlo.reshape(hlo.broadcast_to(pivots, (*batch, n)), (b, n)), torch.int64)
    rows = hlo.iota((b, n), 1)

    def exchange(x: Value, k: Value) -> Value:
        return take_rows(x, _swapped(b, n, k, hlo.abs_(_at(marks, k)) - 1))

    def place(x: Value, k: Value, when: Value, row: Value) -> Value:
        return hlo.select(hlo.unsqueeze(hlo.eq(rows, k) & when, 2), row, x)

    def down(k: Value, x: Value) -> list[Value]:
        active = hlo.lt(k, n)
        double = hlo.lt(_at(marks, k), 0)
        last = k + hlo.convert(double, torch.int64)
        x = hlo.select(hlo.unsqueeze(active, 2), exchange(x, last), x)
        top, next_ = _at(x, k), hlo.select(hlo.unsqueeze(double, 2), _at(x, k + 1), 0)
        below = hlo.gt(rows, last)
        one = hlo.unsqueeze(hlo.select(below, _column(ld, k), 0), 2)
        two = hlo.unsqueeze(hlo.select(below, _column(ld, k + 1), 0), 2)
        x = x - one * top - two * next_
        d, e, f = (hlo.unsqueeze(v, 2) for v in _block(ld, k))
        det, pair = d * f - e * conj(e), hlo.unsqueeze(double, 2)
        x = place(x, k, active, hlo.select(pair, (f * top - conj(e) * next_) / det, top / d))
        x = place(x, k + 1, active & double, (d * next_ - e * top) / det)
        return [hlo.minimum(last + 1, n), x]

    def up(k: Value, x: Value) -> list[Value]:
        active = hlo.ge(k, 0)
        double = hlo.lt(_at(marks, k), 0)
        below = hlo.gt(rows, k)

        def corrected(x: Value, column: Value, when: Value) -> Value:
            factor = hlo.unsqueeze(hlo.select(below, conj(_column(ld, column)), 0), 2)
            return place(x, column, when, _at(x, column) - hlo.sum_(factor * x, 1, True))

        x = corrected(corrected(x, k, active), k - 1, active & double)
        x = hlo.select(hlo.unsqueeze(active, 2), exchange(x, k), x)
        return [k - 1 - hlo.convert(double, torch.int64), x]

    x = hlo.while_loop([zeros((b, 1), torch.int64), x], lambda k, _: hlo.any_(hlo.lt(k, n)), down)[1]
    start = [hlo.full((b, 1), n - 1, torch.int64), x]
    return hlo.reshape(hlo.while_loop(start, lambda k, _: hlo.any_(hlo.ge(k, 0)), up)[1], shape)
