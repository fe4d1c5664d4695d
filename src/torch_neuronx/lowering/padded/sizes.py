"""Sizes as expressions over symbols: their bounds, and their values while the program runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils._sympy.functions import (
    CeilToInt,
    CleanDiv,
    FloatTrueDiv,
    FloorDiv,
    FloorToInt,
    IntTrueDiv,
    Max,
    Min,
    Mod,
    ModularIndexing,
    PythonMod,
    ToFloat,
    TruncToInt,
)

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.value import Dim, Factor, Size, Value


class NeedsExact(Exception):
    """This graph cannot be compiled for padded sizes: the reason names the op or the size.

    node  the graph's node it came from, when one was being lowered
    """

    node: fx.Node | None = None


@dataclass
class Symbols:
    """The symbols of one program. Operators whose results' sizes depend on data add theirs.

    bounds   symbol -> what it is padded to
    values   symbol -> int64 rank 0, its size in this call
    """

    bounds: dict[Any, int]
    values: dict[Any, Value]
    memo: dict[Any, Value] = field(default_factory=dict)


class _Current(threading.local):
    symbols: Symbols | None = None


_current = _Current()


@contextmanager
def using(symbols: Symbols) -> Iterator[None]:
    before, _current.symbols = _current.symbols, symbols
    try:
        yield
    finally:
        _current.symbols = before


def current() -> Symbols:
    assert _current.symbols is not None, "padded sizes outside sizes.using()"
    return _current.symbols


def symbolic_in(traced: Any) -> list[Any]:
    """The SymInts among what tracing knows of a node: itself, the sizes of a tensor, those of each in a list."""
    if isinstance(traced, (list, tuple)):
        return [s for x in traced for s in symbolic_in(x)]
    if isinstance(traced, torch.Tensor):
        return symbolic_in(list(traced.shape))
    return [traced] if isinstance(traced, torch.SymInt) else []


def expression(size: Any) -> Size:
    """An int as it is; a SymInt's expression, or an int when that is a number. A SymFloat likewise."""
    if isinstance(size, (torch.SymInt, torch.SymFloat)):
        real, size = isinstance(size, torch.SymFloat), size.node.expr
        if real:
            return float(size) if size.is_number else size
    if isinstance(size, sympy.Expr):
        size = sympy.simplify(size) if size.is_number else size.replace(FloorDiv, _whole)
        return int(size) if size.is_number else size
    return int(size)


def _whole(a: Any, b: Any) -> Any:
    """A floor division, without the division where nothing is left over."""
    rest = quotient(a, b)
    return FloorDiv(a, b) if rest is None else sympy.sympify(rest)


def bound_of(size: Size) -> int:
    """The largest value of a size; raises NeedsExact for one that does not grow with every symbol."""
    if isinstance(size, int):
        return size
    bounds = current().bounds
    free = sorted(size.free_symbols, key=str)
    if any(s not in bounds for s in free):
        raise NeedsExact(
            f"the size {size} depends on data and has no end; torch._check(n >= 0) and torch._check(n <= most) say "
            "what it can be"
        )
    corner = int(size.subs({s: bounds[s] for s in free}))
    for s in free:
        at = {x: bounds[x] for x in free}
        for value in (2, 3, max(2, bounds[s] // 2), max(2, bounds[s] - 1)):
            if int(size.subs({**at, s: min(value, bounds[s])})) > corner:
                raise NeedsExact(f"the size {size} does not grow with {s}")
    return corner


def value_of(size: Size) -> Value:
    """The size in this call, int64 rank 0; float64 for an expression that is no integer."""
    if isinstance(size, float):
        return hlo.constant(size, torch.float64)
    if isinstance(size, int):
        return hlo.constant(size, torch.int64)
    symbols = current()
    if size in symbols.values:
        return symbols.values[size]
    if size not in symbols.memo:
        symbols.memo[size] = _computed(size)
    return symbols.memo[size]


def _computed(size: Any) -> Value:
    if size.is_Integer:
        return hlo.constant(int(size), torch.int64)
    if size.is_Float:
        return hlo.constant(float(size), torch.float64)
    parts = [value_of(expression(a) if a.is_Integer else a) for a in size.args]
    if any(p.dtype is torch.float64 for p in parts) or isinstance(size, (ToFloat, IntTrueDiv, FloatTrueDiv)):
        parts = [hlo.convert(p, torch.float64) for p in parts]
    first, *rest = parts
    if isinstance(size, ToFloat):
        return first
    if isinstance(size, (IntTrueDiv, FloatTrueDiv)):
        return hlo.divide(first, rest[0])
    if isinstance(size, (TruncToInt, CeilToInt, FloorToInt)):
        rounded = {TruncToInt: hlo.trunc, CeilToInt: hlo.ceil, FloorToInt: hlo.floor}[type(size)](first)
        return hlo.convert(rounded, torch.int64)
    if isinstance(size, sympy.Add):
        return _fold(lambda a, b: a + b, parts)
    if isinstance(size, sympy.Mul) and all(not a.is_Rational or a.is_Integer for a in size.args):
        return _fold(lambda a, b: a * b, parts)
    if isinstance(size, sympy.Pow) and size.args[1].is_Integer and 0 < int(size.args[1]) < 8:
        return _fold(lambda a, b: a * b, [first] * int(size.args[1]))
    if isinstance(size, (FloorDiv, CleanDiv)):
        return hlo.divide(first, rest[0])  # sizes are not negative
    if isinstance(size, (Mod, PythonMod)):
        return hlo.remainder(first, rest[0])
    if isinstance(size, ModularIndexing):
        return hlo.remainder(hlo.divide(first, rest[0]), rest[1])
    if isinstance(size, (Max, sympy.Max)):
        return _fold(hlo.maximum, parts)
    if isinstance(size, (Min, sympy.Min)):
        return _fold(hlo.minimum, parts)
    raise NeedsExact(f"the size {size} has no form in a program")


def _fold(build: Any, parts: list[Value]) -> Value:
    out = parts[0]
    for p in parts[1:]:
        out = build(out, p)
    return out


def dim_of(size: Size) -> Dim:
    """A dimension whose padding, if any, is behind its valid part."""
    return Dim((Factor(size, bound_of(size)),))


def size_of(dim: Dim) -> Size:
    """The logical extent of a dimension."""
    out: Any = 1
    for f in dim.factors:
        out = out * f.size
    return expression(out) if isinstance(out, sympy.Expr) else int(out)


def same(a: Size, b: Size) -> bool:
    """Whether two sizes are equal for every value of the symbols."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return bool(sympy.expand(sympy.sympify(a) - sympy.sympify(b)) == 0)


def quotient(a: Size, b: Size) -> Size | None:
    """a / b when that is a whole polynomial, else None."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    ratio = sympy.cancel(sympy.sympify(a) / sympy.sympify(b))
    numerator, denominator = sympy.fraction(ratio)
    if denominator != 1 or not _has_whole_coefficients(numerator):
        return None
    return expression(ratio)


def quotient_up(a: Size, b: int) -> Size:
    """ceil(a / b)."""
    return -(-a // b) if isinstance(a, int) else FloorDiv(a + (b - 1), b)


def _has_whole_coefficients(polynomial: Any) -> bool:
    if polynomial.is_number:
        return bool(polynomial.is_Integer)
    atoms = sorted(polynomial.free_symbols, key=str)
    try:
        return all(c.is_Integer for c in sympy.Poly(polynomial, *atoms).coeffs())
    except sympy.PolynomialError:  # a floor division in it
        return True
