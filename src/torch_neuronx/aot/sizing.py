"""Which sizes a bundle's programs are compiled for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from torch_neuronx.aot.errors import BundleError
from torch_neuronx.aot.manifest import Leaf, Symbol
from torch_neuronx.lowering.expressions import NotExpressible, from_size
from torch_neuronx.lowering.padded.ladder import ladder

MOST_PROGRAMS: Final = 64

Buckets = Sequence[int] | str | Mapping[str, Mapping[int, Sequence[int]]] | None


def check_buckets(buckets: Any, leaves: Sequence[Leaf]) -> Buckets:
    """Raises ValueError for what is not "exact", a list of sizes or {argument: {dimension: sizes}}."""
    if buckets is None or buckets == "exact":
        return buckets
    if isinstance(buckets, Mapping):
        names = {leaf.name: leaf for leaf in leaves}
        for name, dims in buckets.items():
            if name not in names:
                raise ValueError(f"buckets names {name!r}, which is no argument. Arguments: {', '.join(names)}.")
            if not isinstance(dims, Mapping) or not all(_are_sizes(v) for v in dims.values()):
                raise ValueError(f"buckets[{name!r}] takes {{dimension: list of sizes}}, not {dims!r}")
            for d in dims:
                if not isinstance(d, int) or d >= len(names[name].shape) or isinstance(names[name].shape[d], int):
                    raise ValueError(f"buckets names dimension {d} of {name}, whose size does not vary")
        return buckets
    if not _are_sizes(buckets):
        raise ValueError(
            f'buckets takes "exact", a list of sizes or {{argument: {{dimension: sizes}}}}, not {buckets!r}'
        )
    return buckets


def _are_sizes(x: Any) -> bool:
    listed = list(x) if isinstance(x, (list, tuple)) else []
    return bool(listed) and all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in listed)


def symbols_of(
    leaves: Sequence[Leaf],
    traced: Sequence[Any],
    ranges: Mapping[str, tuple[int, int | None]],
    buckets: Buckets,
    exact: str | None,
) -> list[Symbol]:
    """Every size that varies, where it is found, and what is served of it; `exact` says why no two share a program.

    Raises BundleError, ValueError.
    """
    found: dict[str, Symbol] = {}
    for i, (leaf, value) in enumerate(zip(leaves, traced, strict=True)):
        sizes: list[tuple[int | None, Any]] = list(enumerate(value.shape)) if isinstance(value, torch.Tensor) else []
        if isinstance(value, torch.SymInt):
            sizes = [(None, value)]
        for dim, size in sizes:
            solved = _linear(size)
            if solved is None:
                continue
            name, scale, offset = solved
            if name not in found or (found[name].scale, found[name].offset) != (1, 0) == (scale, offset):
                least, most = ranges.get(name, (0, None))
                named = _named(buckets, leaf, dim)
                served = _served(name, leaf, dim, least, most, named, exact)
                most = served[-1] if most is None else min(most, served[-1])
                found[name] = Symbol(name, i, dim, scale, offset, least, most, served)
    return list(found.values())


def _linear(size: Any) -> tuple[str, int, int] | None:
    """(symbol, scale, offset) of scale * symbol + offset."""
    import sympy

    if not isinstance(size, torch.SymInt):
        return None
    expr = size.node.expr
    free = list(expr.free_symbols)
    if len(free) != 1:
        return None
    try:
        polynomial = sympy.Poly(expr, free[0])
    except sympy.PolynomialError:
        return None
    scale, offset = (polynomial.coeff_monomial(free[0] ** k) for k in (1, 0))
    fits = polynomial.degree() == 1 and scale.is_Integer and offset.is_Integer and scale > 0
    return (str(free[0]), int(scale), int(offset)) if fits else None


def _named(buckets: Buckets, leaf: Leaf, dim: int | None) -> Sequence[int] | None:
    if isinstance(buckets, Mapping):
        return None if dim is None else buckets.get(leaf.name, {}).get(dim)
    return None if buckets == "exact" or isinstance(buckets, str) else buckets


def _served(
    name: str, leaf: Leaf, dim: int | None, least: int, most: int | None, named: Sequence[int] | None, exact: str | None
) -> tuple[int, ...]:
    where = leaf.name if dim is None else f"dimension {dim} of {leaf.name}"
    if named is not None:
        inside = sorted({min(n, most) if most is not None and exact is None else n for n in named if n >= least})
        if not inside:
            raise ValueError(f"none of the buckets {list(named)} is a size of {where}, which starts at {least}")
        return tuple(inside)
    if most is None:
        raise ValueError(
            f"{where} has no upper bound, and a bundle is compiled ahead for all its sizes. Export with "
            f"Dim(..., max=n), or name the sizes: buckets={{{leaf.name!r}: {{{dim}: [128, 512]}}}}."
        )
    if exact is not None:
        if most - least >= MOST_PROGRAMS:
            raise BundleError(
                f"the sizes {least} to {most} of {where} cannot share programs, because of {exact}. Name the few that "
                f"are needed: buckets={{{leaf.name!r}: {{{dim}: [...]}}}}."
            )
        return tuple(range(least, most + 1))
    served, n = [], max(least, 1)
    while True:
        bound = min(ladder(n, ()), most)
        served.append(bound)
        if bound >= most:
            return tuple(served)
        n = bound + 1


def combinations(symbols: Sequence[Symbol]) -> Iterator[dict[str, int]]:
    """The sizes of every program. Raises ValueError when they are too many."""
    count = math.prod(len(s.served) for s in symbols)
    if count > MOST_PROGRAMS:
        listed = ", ".join(f"{len(s.served)} of {s.name} in [{s.least}, {s.most}]" for s in symbols)
        raise ValueError(
            f"{count} programs would be needed ({listed}), more than {MOST_PROGRAMS}. Name fewer sizes: "
            "buckets=[...] or buckets={argument: {dimension: [...]}}."
        )
    for chosen in itertools.product(*(s.served for s in symbols)):
        yield {s.name: n for s, n in zip(symbols, chosen, strict=True)}


def ranges_of(exported: torch.export.ExportedProgram) -> dict[str, tuple[int, int | None]]:
    """Least and most of every symbol; None: no upper bound."""
    found = {}
    for symbol, r in exported.range_constraints.items():
        if symbol.is_symbol:
            most = int(r.upper) if r.upper.is_Integer and int(r.upper) < 1 << 40 else None
            found[str(symbol)] = (max(int(r.lower), 0), most)
    return found


def size(value: Any) -> Any:
    """A traced size as JSON. Raises BundleError."""
    try:
        return from_size(value)
    except NotExpressible as reason:
        raise BundleError(f"{reason} has no form in a bundle") from reason
