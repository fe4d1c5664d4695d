"""Tensors from nothing: constants, ranges, identity and index patterns.

Eager mode makes most of them from `empty` and an in-place fill; the rows without a kernel serve
decompositions and whole-graph compilation. The `out` overloads are what the factories end in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import compute_dtype, is_integral
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.ops.arithmetic import power
from torch_neuronx.lowering.table import Writes, lower
from torch_neuronx.lowering.value import Scalar, Value, number_dtype


def _dtype_of(*xs: Scalar) -> torch.dtype:
    """What a factory infers from its numbers: int64, or the default float when one is a float."""
    kinds = [x.dtype if isinstance(x, Value) else number_dtype(x) for x in xs]
    if any(k.is_complex for k in kinds):
        return torch.promote_types(torch.get_default_dtype(), torch.complex32)
    if any(k.is_floating_point for k in kinds):
        return torch.get_default_dtype()
    return torch.bool if all(k is torch.bool for k in kinds) else torch.int64


@lower("aten::full", bind=False)
def full(size: Sequence[int], fill_value: Scalar, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return hlo.full(tuple(size), hlo.as_value(fill_value), dtype or _dtype_of(fill_value))


@lower("aten::scalar_tensor", bind=False)
def scalar_tensor(s: Scalar, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return hlo.full((), hlo.as_value(s), dtype or torch.get_default_dtype())


@lower("aten::full_like", bind=False)
def full_like(self: Value, fill_value: Scalar, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return hlo.full(self.shape, hlo.as_value(fill_value), dtype or self.dtype)


@lower("aten::new_full", bind=False)
def new_full(
    self: Value, size: Sequence[int], fill_value: Scalar, *, dtype: torch.dtype | None = None, **where: Any
) -> Value:
    return hlo.full(tuple(size), hlo.as_value(fill_value), dtype or self.dtype)


def _constant_factories(number: int, *suffixes: str) -> None:
    plain, like, new = suffixes

    @lower(plain, bind=False)
    def make(size: Sequence[int], *, dtype: torch.dtype | None = None, **where: Any) -> Value:
        return hlo.full(tuple(size), number, dtype or torch.get_default_dtype())

    @lower(like, bind=False)
    def make_like(self: Value, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
        return hlo.full(self.shape, number, dtype or self.dtype)

    @lower(new, bind=False)
    def make_new(self: Value, size: Sequence[int], *, dtype: torch.dtype | None = None, **where: Any) -> Value:
        return hlo.full(tuple(size), number, dtype or self.dtype)


_constant_factories(0, "aten::zeros", "aten::zeros_like", "aten::new_zeros")
_constant_factories(1, "aten::ones", "aten::ones_like", "aten::new_ones")
_constant_factories(0, "aten::empty.memory_format", "aten::empty_like", "aten::new_empty")  # unread memory is zero


@lower("aten::empty_strided", "aten::empty_permuted", bind=False)
def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: torch.dtype | None = None, **where: Any
) -> Value:
    return hlo.full(tuple(size), 0, dtype or torch.get_default_dtype())


@lower("aten::new_empty_strided", bind=False)
def new_empty_strided(
    self: Value, size: Sequence[int], stride: Sequence[int], *, dtype: torch.dtype | None = None, **where: Any
) -> Value:
    return hlo.full(tuple(size), 0, dtype or self.dtype)


@lower("aten::_efficientzerotensor", bind=False)
def efficient_zero(size: Sequence[int], *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return hlo.full(tuple(size), 0, dtype or torch.get_default_dtype())


def arange_values(start: Any, end: Any, step: Any, dtype: torch.dtype) -> Value:
    """start + i * step in torch's accumulation type: int64 for integers, double for floats."""
    if dtype is torch.bool or dtype.is_complex:
        raise Unsupported(f"torch has no arange of {dtype}")
    if dtype is torch.int64:  # cut before they are counted; narrower integers are counted as they come
        start, end, step = int(start), int(end), int(step)
    exact = all(isinstance(x, int) for x in (start, end, step))
    length = -(-(end - start) // step) if exact else math.ceil((end - start) / step)
    wide = torch.int64 if is_integral(dtype) else torch.float64
    if is_integral(dtype):
        start, step = int(start), int(step)
    index = hlo.iota((length,), 0, wide)
    return hlo.convert(index * hlo.constant(step, wide) + hlo.constant(start, wide), dtype)


def _step_dtype(*xs: Any) -> torch.dtype:
    """Truth values count as integers here."""
    dtype = _dtype_of(*xs)
    return torch.int64 if dtype is torch.bool else dtype


@lower("aten::arange.start_step", attributes=("start", "end", "step"))
def arange_start_step(start: Any, end: Any, step: Any = 1, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return arange_values(start, end, step, dtype or _step_dtype(start, end, step))


@lower("aten::arange.start", attributes=("start", "end"))
def arange_start(start: Any, end: Any, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return arange_values(start, end, 1, dtype or _step_dtype(start, end))


@lower("aten::arange", attributes=("end",))
def arange(end: Any, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return arange_values(0, end, 1, dtype or _step_dtype(end))


@lower("aten::arange.start_out", attributes=("start", "end", "step"))
def arange_out(start: Any, end: Any, step: Any = 1, *, out: Value) -> Writes:
    return Writes((), {"out": arange_values(start, end, step, out.dtype)})


def _range_values(start: Any, end: Any, step: Any, dtype: torch.dtype) -> Value:
    """torch.range: both ends included."""
    wide = torch.int64 if is_integral(dtype) else torch.float64
    length = int((end - start) / step + 1)
    index = hlo.iota((length,), 0, wide)
    return hlo.convert(index * hlo.constant(step, wide) + hlo.constant(start, wide), dtype)


@lower("aten::range.out", attributes=("start", "end", "step"))
def range_out(start: Any, end: Any, step: Any = 1, *, out: Value) -> Writes:
    return Writes((), {"out": _range_values(start, end, step, out.dtype)})


@lower("aten::range.step", attributes=("start", "end", "step"))
def range_step(start: Any, end: Any, step: Any = 1, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return _range_values(start, end, step, dtype or torch.get_default_dtype())


def linspace_values(start: Scalar, end: Scalar, steps: int, dtype: torch.dtype) -> Value:
    """From both ends towards the middle, so that start and end are exact."""
    wide = compute_dtype(dtype)
    if is_integral(dtype):
        wide = torch.float32 if dtype.itemsize < 4 else torch.float64
    first, last = (hlo.convert(hlo.as_value(v), dtype) for v in (start, end))
    if steps <= 1:
        return hlo.full((steps,), first, dtype)
    first, last = hlo.convert(first, wide), hlo.convert(last, wide)
    step = (last - first) / hlo.opaque(hlo.constant(steps - 1, wide))
    index = hlo.iota((steps,), 0, torch.int64)
    ahead = first + step * hlo.convert(index, wide)
    back = last - step * hlo.convert(steps - 1 - index, wide)
    return hlo.convert(hlo.select(index < steps // 2, ahead, back), dtype)


@lower(
    "aten::linspace.out",
    "aten::linspace.Tensor_Tensor_out",
    "aten::linspace.Tensor_Scalar_out",
    "aten::linspace.Scalar_Tensor_out",
)
def linspace_out(start: Scalar, end: Scalar, steps: int, *, out: Value) -> Writes:
    return Writes((), {"out": linspace_values(start, end, steps, out.dtype)})


@lower(
    "aten::linspace",
    "aten::linspace.Tensor_Tensor",
    "aten::linspace.Tensor_Scalar",
    "aten::linspace.Scalar_Tensor",
    bind=False,
)
def linspace(start: Scalar, end: Scalar, steps: int, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return linspace_values(start, end, steps, dtype or torch.get_default_dtype())


def logspace_values(start: Scalar, end: Scalar, steps: int, base: Scalar, dtype: torch.dtype) -> Value:
    wide = torch.float64 if is_integral(dtype) else compute_dtype(dtype)
    if is_integral(dtype):  # torch truncates the ends before it spaces them
        start, end = (hlo.convert(hlo.convert(hlo.as_value(v), dtype), wide) for v in (start, end))
    exponents = linspace_values(start, end, steps, wide)
    return hlo.convert(power(*hlo.operands(hlo.convert(hlo.as_value(base), wide), exponents)), dtype)


@lower(
    "aten::logspace.out",
    "aten::logspace.Tensor_Tensor_out",
    "aten::logspace.Tensor_Scalar_out",
    "aten::logspace.Scalar_Tensor_out",
)
def logspace_out(start: Scalar, end: Scalar, steps: int, base: Scalar = 10.0, *, out: Value) -> Writes:
    return Writes((), {"out": logspace_values(start, end, steps, base, out.dtype)})


@lower(
    "aten::logspace",
    "aten::logspace.Tensor_Tensor",
    "aten::logspace.Tensor_Scalar",
    "aten::logspace.Scalar_Tensor",
    bind=False,
)
def logspace(
    start: Scalar, end: Scalar, steps: int, base: Scalar = 10.0, *, dtype: torch.dtype | None = None, **where: Any
) -> Value:
    return logspace_values(start, end, steps, base, dtype or torch.get_default_dtype())


def eye_values(n: int, m: int, dtype: torch.dtype) -> Value:
    return hlo.convert(hlo.eq(hlo.iota((n, m), 0), hlo.iota((n, m), 1)), dtype)


@lower("aten::eye.out")
def eye_out(n: int, *, out: Value) -> Writes:
    return Writes((), {"out": eye_values(n, n, out.dtype)})


@lower("aten::eye.m_out")
def eye_m_out(n: int, m: int, *, out: Value) -> Writes:
    return Writes((), {"out": eye_values(n, m, out.dtype)})


@lower("aten::eye")
def eye(n: int, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return eye_values(n, n, dtype or torch.get_default_dtype())


@lower("aten::eye.m")
def eye_m(n: int, m: int, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return eye_values(n, m, dtype or torch.get_default_dtype())


def _triangle(rows: Any, dtype: torch.dtype | None) -> Value:
    return hlo.table(np.stack(rows).astype(np.int64), dtype or torch.int64)


@lower("aten::tril_indices")
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return _triangle(np.tril_indices(row, offset, col), dtype)


@lower("aten::triu_indices")
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return _triangle(np.triu_indices(row, offset, col), dtype)
