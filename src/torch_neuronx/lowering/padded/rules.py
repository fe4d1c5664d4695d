"""What an op does along a padded dimension, a rule each."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import sympy
import torch
from torch.utils._pytree import tree_leaves, tree_map

from torch_neuronx.lowering.decompose import bind_arguments
from torch_neuronx.lowering.meta import is_mistaken
from torch_neuronx.lowering.module import current
from torch_neuronx.lowering.padded import layout
from torch_neuronx.lowering.padded.sizes import NeedsExact, dim_of, size_of, value_of
from torch_neuronx.lowering.table import overload_name, rows
from torch_neuronx.lowering.value import Scalar, Value


@dataclass
class Node:
    """One call with padded operands.

    arguments  by the schema's names, defaults filled in: Values, sizes (ints or expressions), the rest as it is;
               a size where a number is asked for is a Value
    sizes      of each result, in order: a list for a tensor, else what tracing says it is
    """

    name: str
    op: torch._ops.OpOverload
    arguments: dict[str, Any]
    sizes: list[Any]

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def values(self) -> list[Value]:
        return [x for x in leaves(list(self.arguments.values())) if isinstance(x, Value)]

    def emit(self, changed: dict[str, Any] | None = None) -> Any:
        """The row's results, padding taken for data; `changed` are arguments in place of its own."""
        given = {**self.arguments, **(changed or {})}
        varying = [k for k, v in given.items() if any(isinstance(x, sympy.Expr) for x in leaves(v))]
        if varying or rows[self.name].attributes & {k for k, v in given.items() if isinstance(v, Value)}:
            raise NeedsExact(f"{self.name}: its argument {', '.join(varying) or 'that is a number'} varies")
        bound = {k: _physical(v) for k, v in given.items()}
        named = {a.name for a in self.op._schema.arguments if a.kwarg_only}
        positional = [v for k, v in bound.items() if k not in named]
        return rows[self.name].emit(*positional, **{k: v for k, v in bound.items() if k in named})

    def sized(self, results: Any) -> Any:
        """The row's results with the dimensions their sizes ask for."""
        listed = list(results) if isinstance(results, (list, tuple)) else [results]
        sources = self.values()

        def one(position: int, x: Any, s: Any) -> Any:
            if not isinstance(x, Value) or not isinstance(s, list):
                return s
            dims = layout.dims_for(s, sources)
            if is_mistaken(self.name, position) and x.shape != tuple(d.bound for d in dims):
                return x  # of other sizes than it was traced with
            return layout.with_dims(x, dims)

        out = [one(i, x, s) for i, (x, s) in enumerate(zip(listed, self.sizes, strict=True))]
        return type(results)(out) if isinstance(results, (list, tuple)) else out[0]


Rule = Callable[[Node], Any]
_RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for overloads."""

    def register(function: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, function))
        return function

    return register


def leaves(x: Any) -> list[Any]:
    return tree_leaves(x, is_leaf=lambda v: isinstance(v, Value))


def map_leaves(f: Callable[[Any], Any], x: Any) -> Any:
    return tree_map(f, x, is_leaf=lambda v: isinstance(v, Value))


def _physical(x: Any) -> Any:
    return map_leaves(lambda v: layout.physical(v) if isinstance(v, Value) else v, x)


def node_of(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any], sizes: list[Any]) -> Node:
    positional, named = bind_arguments(op, args, kwargs)
    names = [a.name for a in op._schema.arguments if not a.kwarg_only]
    arguments = {**dict(zip(names, positional, strict=True)), **named}
    for a in op._schema.arguments:
        x = arguments[a.name]
        if isinstance(x, sympy.Expr) and str(a.type) in _NUMBERS:
            arguments[a.name] = replace(value_of(x), weak=True)
    return Node(overload_name(op), op, arguments, sizes)


_NUMBERS = ("Tensor", "number", "Optional[number]", "float", "Optional[float]")


@cache
def load() -> None:
    """Imports every file of rules, which fill the table."""
    package = importlib.import_module("torch_neuronx.lowering.padded")
    for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if ".rules_" in info.name:
            importlib.import_module(info.name)


def find(op: torch._ops.OpOverload) -> Rule | None:
    """The rule of an overload."""
    load()
    name = overload_name(op)
    row = rows.get(name)
    found = _RULES.get(name) or _RULES.get(name.replace("_copy", ""))  # copies of views are views here
    return found or (_elementwise if row is not None and row.pointwise else None)


def _elementwise(node: Node) -> Value | tuple[Value, ...]:
    """Operands are brought to one padding; garbage stays where it is, unless the row checks its operands."""
    names = [k for k, v in node.arguments.items() if isinstance(v, Value) and v.ndim]
    given, dims = layout.broadcast([node[k] for k in names])
    checks = current().checks
    before = len(checks)
    results = node.emit(dict(zip(names, given, strict=True)))
    if len(checks) > before and any(d.padded for d in dims):
        del checks[before:]
        given = [layout.mask(x, range(x.ndim), 1) for x in given]  # 1 is neither a bad divisor nor a bad probability
        results = node.emit(dict(zip(names, given, strict=True)))
    if isinstance(results, Value):
        return layout.with_dims(results, dims)
    return tuple(layout.with_dims(r, dims) for r in results)


# (argument, the dimensions along which its values are mixed, what stands for nothing there or None: no padding allowed)
Mix = tuple[str, Sequence[int], Scalar | None]


def mixing(*names: str) -> Callable[[Callable[[Node], Sequence[Mix]]], Rule]:
    """A rule that masks operands and leaves the rest to the row."""

    def register(mixes: Callable[[Node], Sequence[Mix]]) -> Rule:
        def apply(node: Node) -> Any:
            return node.sized(node.emit(masked(node, mixes(node))))

        return rule(*names)(apply)

    return register


def masked(node: Node, mixes: Sequence[Mix]) -> dict[str, Value]:
    """The named arguments with their garbage replaced."""
    out: dict[str, Value] = {}
    for name, dims, fill in mixes:
        x = out.get(name, node[name])
        if not isinstance(x, Value):
            continue
        dims = [d % x.ndim for d in dims] if x.ndim else []
        if fill is None and any(x.dims[d].padded for d in dims):
            raise NeedsExact(f"{node.name} along a dimension of varying size")
        out[name] = x if fill is None else layout.mask(x, dims, fill)
    return out


def least(dtype: torch.dtype) -> Scalar:
    """What every value of a dtype is at least."""
    if dtype is torch.bool:
        return False
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def greatest(dtype: torch.dtype) -> Scalar:
    if dtype is torch.bool:
        return True
    return float("inf") if dtype.is_floating_point else torch.iinfo(dtype).max


def axes_of(x: Value, dim: Any) -> list[int]:
    """Dimensions as a list; None and [] mean all."""
    if dim is None or dim == []:
        return list(range(x.ndim))
    listed = list(dim) if isinstance(dim, (list, tuple)) else [dim]
    return [d % max(x.ndim, 1) for d in listed]


def prefix(x: Value, d: int) -> Value:
    """x with its padding along d behind the valid part."""
    return x if layout.is_prefix(x.dims[d]) else layout.along(x, d, dim_of(size_of(x.dims[d])))


def all_prefix(x: Value) -> Value:
    """x with the padding of every dimension behind its valid part."""
    for d in range(x.ndim):
        x = prefix(x, d)
    return x


def aligned(a: Value, i: int, b: Value, j: int) -> tuple[Value, Value]:
    """a and b with equal padding along a's dimension i and b's j, which have one size."""
    if not (a.dims[i].padded or b.dims[j].padded):
        return a, b
    target = layout.common([a.dims[i], b.dims[j]])
    return layout.along(a, i, target), layout.along(b, j, target)
