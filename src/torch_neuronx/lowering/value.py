"""Values of the program being built, and the dimensions they have."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from jaxlib.mlir import ir

Size = Any  # an int, or a symbolic expression once dynamic shapes use it


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor of a dimension: its run-time size and the bound it is padded to."""

    size: Size
    bound: int

    @property
    def padded(self) -> bool:
        return not (isinstance(self.size, int) and self.size == self.bound)


@dataclass(frozen=True, slots=True)
class Dim:
    """A dimension is a list of factors; a static dimension has one that is not padded."""

    factors: tuple[Factor, ...]

    @classmethod
    def static(cls, size: int) -> Dim:
        return cls((Factor(size, size),))

    @property
    def bound(self) -> int:
        return math.prod(f.bound for f in self.factors)

    @property
    def padded(self) -> bool:
        return any(f.padded for f in self.factors)


def static_dims(shape: tuple[int, ...] | list[int]) -> tuple[Dim, ...]:
    return tuple(Dim.static(int(n)) for n in shape)


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An SSA value with torch's dtype and shape.

    `weak` marks a wrapped number (a Python scalar's tensor): rank 0, and it does not raise the
    dtype category of what it meets. `row_major` is False for an argument that torch does not call
    contiguous: a few factorisations choose by it what they save for backward.
    """

    ssa: ir.Value
    dtype: torch.dtype
    dims: tuple[Dim, ...]
    weak: bool = False
    row_major: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """Physical extents; equal to the logical ones while every dimension is static."""
        return tuple(d.bound for d in self.dims)

    @property
    def ndim(self) -> int:
        return len(self.dims)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def strong(self) -> Value:
        return replace(self, weak=False) if self.weak else self

    # Operators work on one dtype with numpy broadcasting; a Python number takes the value's dtype.
    def __add__(self, other: Scalar) -> Value:
        return _hlo().add(self, other)

    def __radd__(self, other: Scalar) -> Value:
        return _hlo().add(other, self)

    def __sub__(self, other: Scalar) -> Value:
        return _hlo().subtract(self, other)

    def __rsub__(self, other: Scalar) -> Value:
        return _hlo().subtract(other, self)

    def __mul__(self, other: Scalar) -> Value:
        return _hlo().multiply(self, other)

    def __rmul__(self, other: Scalar) -> Value:
        return _hlo().multiply(other, self)

    def __truediv__(self, other: Scalar) -> Value:
        return _hlo().divide(self, other)

    def __rtruediv__(self, other: Scalar) -> Value:
        return _hlo().divide(other, self)

    def __neg__(self) -> Value:
        return _hlo().negate(self)

    def __and__(self, other: Scalar) -> Value:
        return _hlo().and_(self, other)

    def __or__(self, other: Scalar) -> Value:
        return _hlo().or_(self, other)

    def __xor__(self, other: Scalar) -> Value:
        return _hlo().xor(self, other)

    def __invert__(self) -> Value:
        return _hlo().not_(self)

    def __lt__(self, other: Scalar) -> Value:
        return _hlo().lt(self, other)

    def __le__(self, other: Scalar) -> Value:
        return _hlo().le(self, other)

    def __gt__(self, other: Scalar) -> Value:
        return _hlo().gt(self, other)

    def __ge__(self, other: Scalar) -> Value:
        return _hlo().ge(self, other)

    def __bool__(self) -> bool:
        raise RuntimeError("a Value has no truth value while the program is being built; use hlo.select")


def _hlo() -> Any:
    from torch_neuronx.lowering import hlo

    return hlo


@dataclass(frozen=True, slots=True, eq=False)
class Sized:
    """A data-dependent result: the first `count` rows along dim 0 of `value` are valid.

    `columns`: of a matrix that torch keeps column by column.
    """

    value: Value
    count: Value
    columns: bool = False


Scalar = Value | bool | int | float | complex
NUMBER: Final = (bool, int, float, complex)


def number_dtype(x: bool | int | float | complex) -> torch.dtype:
    """The dtype of a Python number as a wrapped tensor: bool, int64, float64 or complex128."""
    if isinstance(x, bool):
        return torch.bool
    if isinstance(x, int):
        return torch.int64
    return torch.float64 if isinstance(x, float) else torch.complex128
