"""Matrix products: dot_general in full precision, low-precision floats accumulated in float32."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import compute_dtype, is_integral
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.promotion import result_type
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value

Axes = tuple[Sequence[int], Sequence[int]]


def product(a: Value, b: Value, contract: Axes, batch: Axes = ((), ())) -> Value:
    """dot_general in the accumulation dtype; the caller rounds. bf16 dots are 30 times slower on XLA's CPU."""
    inner = compute_dtype(a.dtype)
    return hlo.dot_general(hlo.convert(a, inner), hlo.convert(b, inner), contract, batch)


def contraction(a: Value, a_dims: str, b: Value, b_dims: str, out: str) -> Value:
    """A two-operand einsum over named dimensions, as one dot_general."""

    def summed(x: Value, dims: str, other: str) -> tuple[Value, str]:
        alone = [i for i, c in enumerate(dims) if c not in other and c not in out]
        kept = "".join(c for i, c in enumerate(dims) if i not in alone)
        return (hlo.sum_(x, alone) if alone else x), kept

    a, a_dims = summed(a, a_dims, b_dims)
    b, b_dims = summed(b, b_dims, a_dims)
    shared = [c for c in a_dims if c in b_dims]
    batch = [c for c in shared if c in out]
    inner = [c for c in shared if c not in out]
    result = hlo.dot_general(
        a,
        b,
        ([a_dims.index(c) for c in inner], [b_dims.index(c) for c in inner]),
        ([a_dims.index(c) for c in batch], [b_dims.index(c) for c in batch]),
    )
    names = [*batch, *(c for c in a_dims if c not in shared), *(c for c in b_dims if c not in shared)]
    return hlo.permute(result, [names.index(c) for c in out])


def _scaled(x: Value, factor: Scalar) -> Value:
    if not isinstance(factor, Value) and factor == 1:
        return x
    return x * _number(factor, x.dtype)


def _number(factor: Scalar, dtype: torch.dtype) -> Value:
    """In the tensors' dtype: torch truncates a fractional factor of integers."""
    return hlo.convert(hlo.as_value(factor), dtype)


def combine(self: Value, prod: Value, beta: Scalar, alpha: Scalar, dtype: torch.dtype) -> Value:
    """beta * self + alpha * prod, rounded once; self is not looked at (NaN) when beta is zero."""
    prod = _scaled(prod, alpha)
    if not isinstance(beta, Value) and beta == 0:
        return hlo.convert(prod, dtype)
    base = hlo.broadcast_to(hlo.convert(self, prod.dtype), prod.shape)
    if isinstance(beta, Value):
        factor = _number(beta, prod.dtype)
        base = hlo.select(hlo.eq(factor, 0), hlo.zeros_like(base), base * factor)
    else:
        base = _scaled(base, beta)
    return hlo.convert(base + prod, dtype)


@lower("aten::mm")
def mm(self: Value, mat2: Value) -> Value:
    _no_bool(self)
    return hlo.convert(product(self, mat2, ([1], [0])), self.dtype)


@lower("aten::bmm")
def bmm(self: Value, mat2: Value) -> Value:
    _no_bool(self)
    return hlo.convert(product(self, mat2, ([2], [1]), ([0], [0])), self.dtype)


@lower("aten::mv")
def mv(self: Value, vec: Value) -> Value:
    _no_bool(self)
    return hlo.convert(product(self, vec, ([1], [0])), self.dtype)


@lower("aten::dot")
def dot(self: Value, tensor: Value) -> Value:
    _no_bool(self)
    return hlo.convert(product(self, tensor, ([0], [0])), self.dtype)


@lower("aten::vdot")
def vdot(self: Value, other: Value) -> Value:
    if self.dtype.is_complex:
        self = hlo.complex_(hlo.real(self), -hlo.imag(self))
    return dot(self, other)


@lower("aten::addmm")
def addmm(self: Value, mat1: Value, mat2: Value, *, beta: Scalar, alpha: Scalar) -> Value:
    _no_bool(mat1)
    return combine(self, product(mat1, mat2, ([1], [0])), beta, alpha, mat1.dtype)


@lower("aten::_addmm_activation")
def addmm_activation(self: Value, mat1: Value, mat2: Value, *, beta: Scalar, alpha: Scalar, use_gelu: bool) -> Value:
    _no_bool(mat1)
    dtype = mat1.dtype
    x = combine(self, product(mat1, mat2, ([1], [0])), beta, alpha, dtype)
    x = hlo.convert(x, compute_dtype(dtype))
    x = x * 0.5 * (hlo.erf(x * 0.7071067811865476) + 1) if use_gelu else hlo.maximum(x, 0)
    return hlo.convert(x, dtype)


@lower("aten::baddbmm")
def baddbmm(self: Value, batch1: Value, batch2: Value, *, beta: Scalar, alpha: Scalar) -> Value:
    _no_bool(batch1)
    return combine(self, product(batch1, batch2, ([2], [1]), ([0], [0])), beta, alpha, batch1.dtype)


@lower("aten::addbmm")
def addbmm(self: Value, batch1: Value, batch2: Value, *, beta: Scalar, alpha: Scalar) -> Value:
    _no_bool(batch1)
    dtype, n = batch1.dtype, batch1.shape[0]
    if compute_dtype(dtype) == dtype or n <= 1:
        return combine(self, product(batch1, batch2, ([0, 2], [0, 1])), beta, alpha, dtype)

    def taken(x: Value, i: Scalar) -> Value:
        return hlo.squeeze(hlo.dynamic_slice(x, [i, 0, 0], [1, *x.shape[1:]]), 0)

    def body(i: Value, total: Value) -> list[Value]:
        return [i + 1, addmm(total, taken(batch1, i), taken(batch2, i), beta=1, alpha=alpha)]

    first = addmm(self, taken(batch1, 0), taken(batch2, 0), beta=beta, alpha=alpha)
    carry = [hlo.constant(1, torch.int64), first]
    return hlo.while_loop(carry, lambda i, _: hlo.lt(i, n), body)[1]  # rounded after each product, as on the CPU


@lower("aten::addmv")
def addmv(self: Value, mat: Value, vec: Value, *, beta: Scalar, alpha: Scalar) -> Value:
    _no_bool(mat)
    return combine(self, product(mat, vec, ([1], [0])), beta, alpha, mat.dtype)


@lower("aten::addr")
def addr(self: Value, vec1: Value, vec2: Value, *, beta: Scalar, alpha: Scalar) -> Value:
    dtype = result_type(self, vec1, vec2)
    if is_integral(dtype) and not all(is_integral(hlo.as_value(f).dtype) for f in (beta, alpha)):
        raise Unsupported("a floating point alpha or beta for integral tensors, which torch refuses")
    left, right = (hlo.convert(v, dtype) for v in (vec1, vec2))
    if dtype is torch.bool:
        outer = hlo.unsqueeze(left, 1) & hlo.unsqueeze(right, 0) & hlo.convert(hlo.as_value(alpha), dtype)
        return (hlo.convert(self, dtype) & hlo.convert(hlo.as_value(beta), dtype)) | outer
    # each step in the dtype, as on the CPU: it shows where the two terms cancel
    return combine(self, hlo.unsqueeze(_scaled(left, alpha), 1) * hlo.unsqueeze(right, 0), beta, 1, dtype)


@lower("aten::mm.dtype", "aten::bmm.dtype")
def product_in_dtype(self: Value, mat2: Value, out_dtype: torch.dtype) -> Value:
    if self.ndim == 3:
        return hlo.convert(product(self, mat2, ([2], [1]), ([0], [0])), out_dtype)
    return hlo.convert(product(self, mat2, ([1], [0])), out_dtype)


@lower("aten::addmm.dtype", "aten::baddbmm.dtype")
def add_product_in_dtype(
    self: Value, a: Value, b: Value, out_dtype: torch.dtype, *, beta: Scalar, alpha: Scalar
) -> Value:
    prod = product(a, b, ([2], [1]), ([0], [0])) if a.ndim == 3 else product(a, b, ([1], [0]))
    return combine(self, prod, beta, alpha, out_dtype)


@lower("aten::_int_mm")
def int_mm(self: Value, mat2: Value) -> Value:
    return hlo.dot_general(hlo.convert(self, torch.int32), hlo.convert(mat2, torch.int32), ([1], [0]))


@lower("aten::_trilinear")
def trilinear(
    i1: Value,
    i2: Value,
    i3: Value,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int,
) -> Value:
    """sum over sumdim of i1 * i2 * i3, each without its expanded dimensions: two contractions, each rounded.

    Where unroll_dim is summed, the CPU adds up rounded results for one of its elements after the other.
    """
    ndim = i1.ndim + len(expand1)
    everything = "".join(chr(ord("a") + d) for d in range(ndim))
    names = ["".join(everything[d] for d in range(ndim) if d not in e) for e in (expand1, expand2, expand3)]
    out = "".join(everything[d] for d in range(ndim) if d not in sumdim)
    dtype, xs = i1.dtype, (i1, i2, i3)
    if unroll_dim not in sumdim or compute_dtype(dtype) == dtype:
        return _contracted(xs, names, out)
    unrolled = everything[unroll_dim]
    rest = [n.replace(unrolled, "") for n in names]
    sizes = {name: size for n, x in zip(names, xs, strict=True) for name, size in zip(n, x.shape, strict=True)}

    def taken(x: Value, n: str, i: Value) -> Value:
        if unrolled not in n:
            return x
        at = n.index(unrolled)
        cut = hlo.dynamic_slice(x, [i if d == at else 0 for d in range(x.ndim)], [*x.shape[:at], 1, *x.shape[at + 1 :]])
        return hlo.squeeze(cut, at)

    def body(i: Value, total: Value) -> list[Value]:
        return [i + 1, total + _contracted([taken(x, n, i) for x, n in zip(xs, names, strict=True)], rest, out)]

    carry = [hlo.constant(0, torch.int64), hlo.full([sizes[n] for n in out], 0, dtype)]
    return hlo.while_loop(carry, lambda i, _: hlo.lt(i, sizes[unrolled]), body)[1]


def _contracted(xs: Sequence[Value], names: Sequence[str], out: str) -> Value:
    """The named dimensions of three operands contracted to `out`, first to second, then with the third."""
    dtype = xs[0].dtype
    a, b, c = (hlo.convert(v, compute_dtype(dtype)) for v in xs)
    kept = "".join(sorted(n for n in {*names[0], *names[1]} if n in names[2] or n in out))
    first = hlo.convert(hlo.convert(contraction(a, names[0], b, names[1], kept), dtype), a.dtype)
    return hlo.convert(contraction(first, kept, c, names[2], out), dtype)


def _no_bool(x: Value) -> None:
    if x.dtype is torch.bool:
        raise Unsupported("a matrix product of bool tensors, which torch refuses")
