"""Sizes that data decide: known inside the program, and padded to the most they can be."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch import fx

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.padded import layout, sizes
from torch_neuronx.lowering.padded.rules import Node, all_prefix, rule
from torch_neuronx.lowering.padded.sizes import NeedsExact, value_of
from torch_neuronx.lowering.value import Dim, Factor, Size, Sized, Value


def symbols_in(traced: Any) -> set[Any]:
    """The symbols of everything that tracing knows of a node."""
    return {s for n in sizes.symbolic_in(traced) for s in n.node.expr.free_symbols}


def makes_sizes(module: fx.GraphModule) -> bool:
    """Whether a node of the graph has a size that no input tells."""
    told: set[Any] = set()
    for node in module.graph.nodes:
        found = symbols_in(node.meta.get("val"))
        if node.op == "placeholder":
            told |= found
        elif not found <= told:
            return True
    return False


def counts(node: fx.Node, args: Sequence[Any]) -> bool:
    """Whether an op makes a size out of data; of indexing, masks do."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or torch.Tag.dynamic_output_shape not in op.tags:
        return False
    if op is torch.ops.aten.index.Tensor:
        return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
    return bool(symbols_in(node.meta.get("val")))


def bind(size: Size, count: Value, bound: int | None) -> None:
    """Says what a size is in this call, and at most; a size that was traced as something else is checked."""
    count = hlo.convert(count, torch.int64)
    symbols = sizes.current()
    if isinstance(size, sympy.Symbol) and size not in symbols.values:
        symbols.values[size] = count
        if bound is not None:
            symbols.bounds[size] = bound
        return
    require(hlo.eq(count, value_of(size)), "RuntimeError", f"a size that depends on data was traced as {size}")


def read(traced: torch.SymInt | torch.SymFloat | int, number: Value) -> None:
    """A number that the graph reads: as a size it is padded to what was checked of it, if anything was."""
    size = sizes.expression(traced)
    bound = _most(traced.node.shape_env, size) if isinstance(traced, torch.SymInt) else None
    bind(size, number, bound)
    if bound is not None:
        inside = hlo.and_(hlo.ge(number, 0), hlo.le(number, bound))
        require(
            inside, "RuntimeError", f"a size that was read from data must be from 0 to {bound}, as was checked of it"
        )


def _most(env: Any, symbol: Any) -> int | None:
    """The largest value that torch._check left to a symbol; None for one that may be negative or has no end."""
    if not isinstance(symbol, sympy.Symbol) or not env.var_to_range[symbol].lower >= 0:
        return None
    last = env.var_to_range[symbol].upper
    found = [int(last)] if last.is_number and last.is_finite and last < sys.maxsize - 1 else []
    known = sizes.current().bounds
    for told in env.deferred_runtime_asserts.get(symbol, ()):
        end = told.expr.rhs if isinstance(told.expr, (sympy.Le, sympy.Lt)) and told.expr.lhs == symbol else None
        if end is not None and end.free_symbols <= set(known):
            found.append(sizes.bound_of(sizes.expression(end)))
    return min(found, default=None)


def placed(results: Any, traced: Sequence[Any]) -> Any:
    """A row's results; those whose number of rows depends on data are padded behind it."""
    listed = list(results) if isinstance(results, (list, tuple)) else [results]
    out = [_one(x, s) for x, s in zip(listed, traced, strict=True)]
    return out if isinstance(results, (list, tuple)) else out[0]


def _one(x: Any, traced: Any) -> Any:
    if not isinstance(x, Sized):
        return x
    return counted(x.value, x.count, traced[0], x.value.dims[1:])


def counted(x: Value, count: Value, size: Size, rest: Sequence[Dim]) -> Value:
    """x, of whose rows the first `count` are valid; `rest` are its further dimensions."""
    bind(size, count, x.shape[0])
    first = Dim((Factor(size, x.shape[0]),))
    return layout.with_dims(layout.physical(x), [first, *rest])


@rule("aten::nonzero")
def _nonzero(node: Node) -> Value:
    """Padding is zero; a place's number among padded ones has the coordinates it has among valid ones."""
    x = layout.mask(all_prefix(node["self"]), range(node["self"].ndim), 0)
    found = node.emit({"self": x})
    return counted(found.value, found.count, node.sizes[0][0], found.value.dims[1:])


@rule("aten::masked_select")
def _masked_select(node: Node) -> Value:
    (x, mask), dims = layout.broadcast([node["self"], node["mask"]])
    shape = [d.bound for d in dims]
    x, mask = (all_prefix(layout.with_dims(hlo.broadcast_to(layout.physical(v), shape), dims)) for v in (x, mask))
    mask = layout.mask(hlo.convert(mask, torch.bool), range(mask.ndim), False)
    found = node.emit({"self": layout.physical(x), "mask": layout.physical(mask)})
    return counted(found.value, found.count, node.sizes[0][0], ())


def chosen(node: Node, mask: Value, first: int) -> Value:
    """x[:, ..., mask]: the rows that a mask over neighbouring dimensions chooses, one after the other."""
    x = node["self"]
    if first:
        raise NeedsExact(f"{node.name} by a mask behind other dimensions")
    mask = all_prefix(mask)
    for k in range(mask.ndim):
        x = layout.along(x, k, mask.dims[k])
    kept = layout.mask(hlo.convert(mask, torch.bool), range(mask.ndim), False)
    positions, count = hlo.compact(hlo.flatten(layout.physical(kept)))
    rest = x.dims[mask.ndim :]
    rows = hlo.reshape(layout.physical(x), (mask.numel, *(d.bound for d in rest)))
    taken = hlo.take_rows(rows, positions) if mask.numel else rows
    return counted(taken, count, node.sizes[0][0], rest)


def put_counted(node: Node, mask: Value, first: int) -> Value:
    """x[mask] = values, row after row: a place takes the row whose number is that of the places chosen before it."""
    x, values = node["self"], node["values"]
    rest = x.dims[mask.ndim :]
    if first or values.ndim != len(rest) + 1:
        raise NeedsExact(f"{node.name} by a mask of values of another form than what it chooses")
    mask = all_prefix(mask)
    for k in range(mask.ndim):
        x = layout.along(x, k, mask.dims[k])
    values = layout.along(values, 0, Dim((Factor(layout.sizes_of(values)[0], values.dims[0].bound),)))
    for k in range(1, values.ndim):
        if values.dims[k].padded or values.shape[k] != 1:
            values = layout.along(values, k, rest[k - 1])
    kept = hlo.flatten(layout.physical(layout.mask(hlo.convert(mask, torch.bool), range(mask.ndim), False)))
    (running,) = hlo.cumulative([hlo.convert(kept, torch.int64)], [0], 0, lambda a, b: [a + b])
    rows = [d.bound for d in rest]
    spread = hlo.broadcast_to(layout.physical(values), [values.shape[0], *rows])
    if not mask.numel or not values.shape[0]:
        return x
    taken = hlo.take_rows(hlo.convert(spread, x.dtype), hlo.clamp(0, running - 1, values.shape[0] - 1))
    old = hlo.reshape(layout.physical(x), (mask.numel, *rows))
    new = old + taken if node["accumulate"] else taken
    out = hlo.select(hlo.broadcast_in_dim(kept, old.shape, [0]), new, old)
    return layout.with_dims(hlo.reshape(out, x.shape), x.dims)


_COMPARED = {
    sympy.Ge: hlo.ge,
    sympy.Gt: hlo.gt,
    sympy.Le: hlo.le,
    sympy.Lt: hlo.lt,
    sympy.Eq: hlo.eq,
    sympy.Ne: hlo.ne,
}


def condition(expression: Any) -> Value:
    """What a comparison of sizes gives in this call, bool rank 0."""
    if expression in (sympy.true, sympy.false, True, False):
        return hlo.constant(bool(expression), torch.bool)
    if type(expression) in _COMPARED:
        a, b = (value_of(sizes.expression(x)) for x in expression.args)
        return _COMPARED[type(expression)](a, b)
    parts = (
        [condition(x) for x in expression.args] if isinstance(expression, sympy.logic.boolalg.BooleanFunction) else []
    )
    if isinstance(expression, sympy.Not):
        return hlo.not_(parts[0])
    if isinstance(expression, (sympy.And, sympy.Or)):
        join = hlo.and_ if isinstance(expression, sympy.And) else hlo.or_
        out = parts[0]
        for p in parts[1:]:
            out = join(out, p)
        return out
    raise NeedsExact(f"the condition {expression} has no form in a program")


def check(expression: Any, message: str) -> None:
    """torch._check on sizes: fails the graph at run time."""
    if expression is not True and expression != sympy.true:
        require(condition(expression), "RuntimeError", message)
