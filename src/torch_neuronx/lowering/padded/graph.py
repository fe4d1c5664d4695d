"""Lowering a graph for bounds instead of sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from torch_neuronx.lowering import hlo, views
from torch_neuronx.lowering.call import Lowered, Storages, build
from torch_neuronx.lowering.decompose import EmitTensor
from torch_neuronx.lowering.graph import Emitter, NodeFailed, output_nodes, written_positions
from torch_neuronx.lowering.module import Program
from torch_neuronx.lowering.padded import data_sizes, layout, rules, sizes
from torch_neuronx.lowering.padded.decomposed import decomposed
from torch_neuronx.lowering.padded.sizes import NeedsExact, Symbols, bound_of, expression, size_of
from torch_neuronx.lowering.spec import Call, Result, ScalarSpec, TensorSpec
from torch_neuronx.lowering.table import overload_name
from torch_neuronx.lowering.value import Dim, Factor, Value
from torch_neuronx.lowering.views import Layout


@dataclass(frozen=True)
class Entering:
    """An input whose sizes are not fixed.

    strides   positions of its strides among the arguments, or None: its memory is padded as it lies there, from the
              start of its storage
    order     its dimensions from outermost to innermost in such memory; None: as they are numbered
    """

    strides: tuple[int, ...] | None
    order: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Request:
    """What one program serves.

    bounds    symbol's name -> what it is padded to
    symbols   symbol's name -> position of its size among the arguments
    entering  position of an input -> how it is read
    orders    of each output that is a tensor of varying size: its dimensions from outermost to innermost in memory
    aliases   outputs that the caller makes, as views of inputs or of other outputs
    writes    inputs of varying size that are written, with the order of their dimensions: their values are further
              results, which the caller copies
    kept      outputs whose memory stays padded: what forward saves for backward
    """

    bounds: tuple[tuple[str, int], ...]
    symbols: tuple[tuple[str, int], ...]
    entering: tuple[tuple[int, Entering], ...]
    orders: tuple[tuple[int, tuple[int, ...]], ...]
    aliases: tuple[int, ...]
    writes: tuple[tuple[int, tuple[int, ...]], ...]
    kept: tuple[int, ...] = ()


class PaddedEmitter(Emitter):
    """Runs a graph on tensors some of whose dimensions are padded."""

    def _node(self, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        try:
            return self._emitted(node, args, kwargs)
        except NeedsExact as reason:
            reason.node = node
            raise

    def _emitted(self, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        traced = node.meta.get("val")
        if isinstance(traced, (torch.SymInt, torch.SymFloat, int)) and not isinstance(traced, bool):
            if node.target is torch.ops.aten._local_scalar_dense.default:
                data_sizes.read(traced, hlo.reshape(layout.physical(args[0].value), ()))
            return expression(traced)
        if isinstance(traced, torch.SymBool):
            return traced.node.expr
        if node.target in _ON_SIZES:
            return _ON_SIZES[node.target](*args, **kwargs)
        if data_sizes.counts(node, args):
            return self._of_data(node, args, kwargs)
        if not any(_varies(x) for x in rules.leaves([args, kwargs])):
            return super()._node(node, args, kwargs)
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise NeedsExact(f"the higher-order operator {node.target} over varying sizes")
        if not isinstance(node.target, torch._ops.OpOverload):
            return node.target(*args, **kwargs)  # type: ignore[operator]  # operator.getitem
        return self._by_rule(node, args, kwargs)

    def _of_data(self, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """An op whose result's size depends on data."""
        assert isinstance(node.target, torch._ops.OpOverload)
        if any(_varies(x) for x in rules.leaves([args, kwargs])):
            return self._by_rule(node, args, kwargs)
        given, named = rules.map_leaves(lambda x: x.value if isinstance(x, EmitTensor) else x, [list(args), kwargs])
        call = rules.node_of(node.target, given, named, _traced_sizes(node.meta.get("val")))
        try:
            out = data_sizes.placed(call.emit(), call.sizes)
        except NeedsExact:
            raise
        except Exception as error:
            raise NodeFailed(node, error) from error
        return rules.map_leaves(lambda x: EmitTensor(x) if isinstance(x, Value) else x, out)

    def _by_rule(self, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        assert isinstance(node.target, torch._ops.OpOverload)
        if node.target is torch.ops.aten.copy_.default:
            return _written(*args[:2])
        if node.target._schema.is_mutable:
            raise NeedsExact(f"{overload_name(node.target)} writes to what varies")
        found = rules.find(node.target)
        if found is None:
            return self._decomposed(node, args, kwargs)
        given, named = rules.map_leaves(lambda x: x.value if isinstance(x, EmitTensor) else x, [list(args), kwargs])
        try:
            out = found(rules.node_of(node.target, given, named, _traced_sizes(node.meta.get("val"))))
        except NeedsExact as reason:
            try:
                return self._decomposed(node, args, kwargs)
            except NeedsExact:
                raise reason from None
        except Exception as error:
            raise NodeFailed(node, error) from error
        return rules.map_leaves(lambda x: EmitTensor(x) if isinstance(x, Value) else x, out)

    def _decomposed(self, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The op made of other ops, each by its rule."""
        graph, inputs = decomposed(node)
        of = dict(zip(tree_leaves((node.args, node.kwargs)), rules.leaves((args, kwargs)), strict=True))
        try:
            return PaddedEmitter(graph, {}).run([of[x] for x in inputs])
        except NeedsExact as error:
            raise NeedsExact(f"{error}, of which {node.target} is made") from error


def _written(target: EmitTensor, source: EmitTensor) -> EmitTensor:
    """A write to an input: its value from here on, which goes to its memory when all is computed."""
    new, dims = hlo.convert(source.value, target.value.dtype), target.value.dims
    for d in range(new.ndim):
        if new.dims[d].padded or new.shape[d] != 1:
            new = layout.along(new, d, dims[len(dims) - new.ndim + d])
    shape = [d.bound for d in dims]
    target.value = layout.with_dims(hlo.broadcast_to(layout.physical(new), shape), dims)
    return target


def _no_check(*args: Any, **kwargs: Any) -> None:
    """A size lies between bounds: none of ours is larger than its tensor has room for."""


_ON_SIZES: dict[Any, Callable[..., None]] = {
    torch.ops.aten._assert_scalar.default: data_sizes.check,
    torch.ops.aten.sym_constrain_range_for_size.default: _no_check,
    torch.ops.aten.sym_constrain_range.default: _no_check,
}


def _varies(x: Any) -> bool:
    return isinstance(x, sympy.Basic) or (isinstance(x, EmitTensor) and layout.is_padded(x.value))


def _traced_sizes(traced: Any) -> list[Any]:
    listed = list(traced) if isinstance(traced, (list, tuple)) else [traced]
    return [
        [expression(n) for n in v.shape]
        if isinstance(v, torch.Tensor)
        else (expression(v) if isinstance(v, (int, torch.SymInt)) else v)
        for v in listed
    ]


def lower_padded(module: fx.GraphModule, call: Call, request: Request) -> Lowered:
    """The program for all sizes up to `request.bounds`. Raises NeedsExact when there is none.

    Results of varying size are dense, in arrays of their largest size; the layouts in `Lowered.results` are those of
    the bounds.
    """
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    results: list[Result] = []
    returns: list[Any] = []

    def body(program: Program, arguments: list[Value]) -> list[Value]:
        storages = Storages.of(call, program, arguments)
        names = {str(s): s for n in placeholders for s in data_sizes.symbols_in(n.meta.get("val"))}
        values = {names[name]: _scalar(call.args[at], storages) for name, at in request.symbols}
        told = set(values)
        with sizes.using(Symbols({names[name]: b for name, b in request.bounds}, values)):
            entering = dict(request.entering)
            inputs = [_input(i, n, call, storages, entering.get(i)) for i, n in enumerate(placeholders)]
            outputs = PaddedEmitter(module, {}).run(inputs)
            listed = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
            orders = dict(request.orders)
            made: list[Value] = []
            for i, (x, node) in enumerate(zip(listed, output_nodes(module.graph), strict=True)):
                given = None if i in request.aliases else x
                stored = stays if i in request.kept else dense
                returns.append(_leave(given, node, inputs, call, orders.get(i), stored, told, results, made))
            for position, order in request.writes:
                returns.append(_fresh(dense(hlo.permute(inputs[position].value, list(order))), results, made))
            for position in set(written_positions(module.graph)) - set(entering):
                spec = call.args[position]
                if not isinstance(spec, TensorSpec) or layout.is_padded(inputs[position].value):
                    raise NeedsExact("a write of something of varying size to an input that has not got it")
                storages.write(spec, inputs[position].value)
            return [*made, *storages.new_values(results)]

    return build(call, body, results, returns)


def _scalar(spec: Any, storages: Storages) -> Value:
    assert isinstance(spec, ScalarSpec)
    return hlo.convert(storages.scalar(spec).strong(), torch.int64)


def _input(i: int, node: fx.Node, call: Call, storages: Storages, entering: Entering | None) -> Any:
    spec, traced = call.args[i], node.meta.get("val")
    if isinstance(traced, (int, torch.SymInt)) and not isinstance(traced, bool):
        return expression(traced)
    if entering is None:
        if isinstance(spec, ScalarSpec):
            return EmitTensor(storages.scalar(spec).strong())
        return EmitTensor(storages.read(spec)) if isinstance(spec, TensorSpec) else spec
    assert isinstance(spec, TensorSpec) and isinstance(traced, torch.Tensor)
    dims = [sizes.dim_of(expression(n)) for n in traced.shape]
    flat = views.reinterpret(storages.flat(spec.slot), spec.dtype)
    shape = tuple(d.bound for d in dims)
    if 0 in shape:
        return EmitTensor(layout.with_dims(hlo.full(shape, 0, spec.dtype), dims))
    if entering.strides is None:
        order = entering.order or tuple(range(len(shape)))
        block = hlo.reshape(hlo.slice_dim(flat, 0, 0, math.prod(shape)), [shape[d] for d in order])
        return EmitTensor(layout.with_dims(hlo.permute(block, [order.index(d) for d in range(len(order))]), dims))
    place = hlo.full(shape, 0 if spec.offset is None else storages.param(spec.offset), torch.int64)
    for d, at in enumerate(entering.strides):
        stride = _scalar(call.args[at], storages)
        place = place + hlo.iota(shape, d, torch.int64) * hlo.broadcast_to(stride, shape)
    taken = hlo.take_rows(flat, hlo.flatten(place))
    return EmitTensor(layout.with_dims(hlo.reshape(taken, shape), dims))


def _leave(
    x: Any,
    node: Any,
    inputs: Sequence[Any],
    call: Call,
    order: tuple[int, ...] | None,
    stored: Callable[[Value], Value],
    told: set[Any],
    results: list[Result],
    made: list[Value],
) -> Any:
    if x is None:
        return None
    if isinstance(x, (int, sympy.Expr)):
        if isinstance(node, fx.Node) and isinstance(node.meta["val"], torch.SymFloat):
            raise NeedsExact("a graph that returns a number made of varying sizes")
        if isinstance(x, sympy.Expr) and not x.free_symbols <= told:
            results.append(Result("fresh", torch.int64, Layout((), ())))
            made.append(hlo.flatten(sizes.value_of(x)))
            return ("result", len(made) - 1)  # whoever asked reads it
        return ("integer", 0)  # whoever asked knows the sizes of the call
    position = next((i for i, given in enumerate(inputs) if given is x), None)
    if position is not None and isinstance(call.args[position], TensorSpec):
        return ("argument", position)
    value = x.value
    if order is None:
        traced = node.meta["val"]
        fixed = Layout(value.shape, tuple(int(s) for s in traced.stride()))
        results.append(Result("fresh", value.dtype, fixed))
        made.append(views.to_storage(hlo.to_storage(layout.physical(value)), fixed))
    else:
        if not data_sizes.symbols_in(node.meta["val"]) <= told:
            return _counted(value, results, made)
        return _fresh(stored(hlo.permute(value, list(order))), results, made)
    return ("result", len(made) - 1)


def _counted(x: Value, results: list[Result], made: list[Value]) -> Any:
    """A result that the core cuts to the number of its rows, which follows it."""
    x = layout.along(x, 0, sizes.dim_of(size_of(x.dims[0]))) if x.dims[0].padded else x
    if any(d.padded for d in x.dims[1:]):
        x = layout.relayout(x, [x.dims[0], *(sizes.dim_of(size_of(d)) for d in x.dims[1:])])
    returned = _fresh(dense(x), results, made)
    results.append(Result("count", torch.int64, Layout((), ()), len(made) - 1))
    made.append(sizes.value_of(size_of(x.dims[0])))
    return returned


def _fresh(x: Value, results: list[Result], made: list[Value]) -> Any:
    """A flat array that is a result."""
    stored = hlo.to_storage(x)
    results.append(Result("fresh", x.dtype, Layout(stored.shape, (1,))))
    made.append(stored)
    return ("result", len(made) - 1)


def stays(x: Value) -> Value:
    """The elements where they are, every dimension padded behind its valid part."""
    for d, dim in enumerate(x.dims):
        if dim.padded:
            x = layout.along(x, d, sizes.dim_of(size_of(dim)))
    return hlo.flatten(layout.physical(x))


def dense(x: Value) -> Value:
    """The valid elements one after the other, in an array with room for the largest size."""
    moving = [d for d in x.dims if d.padded or d.bound != 1]
    if not moving or (layout.is_prefix(moving[0]) and not any(d.padded for d in moving[1:])):
        return hlo.flatten(layout.physical(x))
    total: Any = math.prod([sympy.sympify(size_of(d)) for d in x.dims])
    room = math.prod(x.shape)
    flat = layout.relayout(x, [Dim((Factor(expression(total), max(room, bound_of(expression(total)))),))])
    return hlo.flatten(layout.physical(flat))
