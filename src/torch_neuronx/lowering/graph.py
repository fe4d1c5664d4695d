"""Lowering a graph that AOTAutograd hands over: every node through the table, all of it one program."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from torch_neuronx.lowering import graph_control, hlo, views
from torch_neuronx.lowering.call import Lowered, Storages, build
from torch_neuronx.lowering.decompose import EmitMode, EmitTensor, dispatch
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.meta import is_mistaken
from torch_neuronx.lowering.module import Program
from torch_neuronx.lowering.spec import Call, Result, ScalarSpec, TensorSpec
from torch_neuronx.lowering.table import overload_name
from torch_neuronx.lowering.value import Value
from torch_neuronx.lowering.views import Layout, contiguous_strides

aten = torch.ops.aten

# Results of these view ops are not the bits of what they look at, or are so in another dtype.
NOT_STRIDED = {
    op
    for packet in (aten.view_as_real, aten.view_as_complex, aten._conj, aten._neg_view, aten.view)
    for name in packet.overloads()
    if (op := getattr(packet, name)) is not aten.view.default
}


class NodeFailed(RuntimeError):
    """A node of a graph has no lowering; the message names it, its shapes and the user's line."""

    def __init__(self, node: fx.Node, error: Exception) -> None:
        self.node, self.unsupported = node, isinstance(error, Unsupported)
        shapes = ", ".join(_shape(x) for x in tree_leaves((node.args, node.kwargs)) if isinstance(x, fx.Node))
        reason = str(error) or type(error).__name__
        if not self.unsupported:
            reason = f"{type(error).__name__}: {reason}"
        where = _user_line(node)
        super().__init__(f"node {node.name} = {node.target}({shapes}) cannot be lowered: {reason}{where}")


def _shape(node: fx.Node) -> str:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return str(value)


def _user_line(node: fx.Node) -> str:
    trace = node.meta.get("stack_trace") or node.stack_trace
    return f"\nThe line it comes from:\n{trace.rstrip()}" if trace else ""


def sizes_of(symbols: dict[Any, int], value: Any) -> int | None:
    """A size of a traced tensor as a number; None when it depends on what no argument tells."""
    if isinstance(value, int):
        return value
    known = value.node.expr.subs(symbols)
    return int(known) if known.is_number else None


def symbols_of(placeholders: Sequence[fx.Node], args: Sequence[Any]) -> dict[Any, int]:
    """What the traced size symbols are in this call."""
    found: dict[Any, int] = {}

    def bind(traced: Any, real: int) -> None:
        if isinstance(traced, torch.SymInt) and traced.node.expr.is_symbol:
            found[traced.node.expr] = real

    for node, arg in zip(placeholders, args, strict=True):
        traced = node.meta.get("val")
        if isinstance(traced, torch.Tensor) and isinstance(arg, TensorSpec):
            for t, r in zip((*traced.shape, *traced.stride()), (*arg.layout.sizes, *arg.layout.strides), strict=True):
                bind(t, r)
        elif isinstance(arg, int):
            bind(traced, arg)
    return found


class Emitter:
    """Runs a graph on tensors that emit StableHLO."""

    def __init__(self, module: fx.GraphModule, symbols: dict[Any, int]) -> None:
        self.module, self.symbols = module, symbols
        self.home: dict[int, fx.Node] = {}  # the node that made a tensor

    def run(self, inputs: Sequence[Any]) -> Any:
        """The graph's outputs: EmitTensors, integers and None."""
        given = iter(inputs)
        environment: dict[fx.Node, Any] = {}
        for node in self.module.graph.nodes:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), environment.__getitem__)
            if node.op == "output":
                return args[0]
            environment[node] = made = next(given) if node.op == "placeholder" else self._node(node, args, kwargs)
            if isinstance(made, EmitTensor):
                self.home.setdefault(id(made), node)
        raise RuntimeError("a graph without an output node")

    def _node(self, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if node.op == "get_attr":
            return operator.attrgetter(str(node.target))(self.module)
        assert node.op == "call_function", f"{node.op} in a graph from AOTAutograd"
        try:
            return self._call(node, args, kwargs)
        except NodeFailed:
            raise
        except Exception as error:
            raise NodeFailed(node, error) from error

    def _call(self, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        target: Any = node.target
        if isinstance(target, torch._ops.HigherOrderOperator):
            return graph_control.emit(self, target, args, kwargs)
        if not isinstance(target, torch._ops.OpOverload):
            return target(*args, **kwargs)  # operator.getitem and arithmetic on sizes
        if target in _SPECIAL:
            return _SPECIAL[target](self, node, *args, **kwargs)
        with EmitMode():
            return dispatch(target, args, kwargs)

    def layout(self, node: fx.Node) -> Layout | None:
        """What tracing says of a node's tensor; None when its sizes are not known."""
        traced = node.meta.get("val")
        if not isinstance(traced, torch.Tensor):
            return None
        sizes = [sizes_of(self.symbols, n) for n in traced.shape]
        strides = [sizes_of(self.symbols, n) for n in traced.stride()]
        known = all(n is not None for n in (*sizes, *strides))
        return Layout(tuple(sizes), tuple(strides)) if known else None  # type: ignore[arg-type]

    def offset(self, node: fx.Node) -> int | None:
        return sizes_of(self.symbols, node.meta["val"].storage_offset())


def _as_strided(
    emitter: Emitter, node: fx.Node, x: EmitTensor, size: Any, stride: Any, storage_offset: int | None = None
) -> EmitTensor:
    """A window on the memory that the traced strides describe."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    layout, start = emitter.layout(source), emitter.offset(source)
    if layout is None or start is None:
        raise Unsupported("as_strided of a tensor whose strides depend on data")
    flat = views.to_storage(x.value, layout)
    offset = (start if storage_offset is None else storage_offset) - start
    if offset < 0:
        raise Unsupported("as_strided that reaches before the tensor it is called on")
    window = Layout(tuple(size), tuple(stride))
    if offset + window.extent > flat.numel:
        raise Unsupported(
            f"as_strided to sizes {list(size)}, strides {list(stride)} reaches {offset + window.extent} elements "
            f"where the tensor it is called on has {flat.numel}"
        )
    return EmitTensor(views.read(flat, window, hlo.constant(offset, torch.int64), False))


def _size(emitter: Emitter, node: fx.Node, x: EmitTensor, dim: int) -> int:
    return int(x.shape[dim])


def _stride(emitter: Emitter, node: fx.Node, x: EmitTensor, dim: int) -> int:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    layout = emitter.layout(source)
    if layout is None:
        raise Unsupported("the stride of a tensor whose strides depend on data")
    return layout.strides[dim]


def _assert_scalar(emitter: Emitter, node: fx.Node, condition: Any, message: str) -> None:
    if not condition:
        raise RuntimeError(message)


_SPECIAL: dict[Any, Callable[..., Any]] = {
    aten.as_strided.default: _as_strided,
    aten.sym_size.int: _size,
    aten.sym_stride.int: _stride,
    aten.sym_numel.default: lambda emitter, node, x: x.numel(),
    aten._assert_scalar.default: _assert_scalar,
}


@dataclass(frozen=True)
class Outputs:
    """What a graph returns, node by node."""

    nodes: tuple[fx.Node | None, ...]
    values: tuple[Any, ...]


class Returns:
    """Decides for every output whether it is computed, given back, or a view of what is."""

    def __init__(self, emitter: Emitter, call: Call, inputs: Sequence[Any], written: Sequence[int]) -> None:
        self.emitter, self.call = emitter, call
        self.positions = {id(x): i for i, x in enumerate(inputs) if isinstance(x, EmitTensor)}
        self.written = set(written)
        self.results: list[Result] = []
        self.values: list[Value] = []
        self.made: dict[int, int] = {}  # tensor -> result

    def of(self, outputs: Outputs) -> list[Any]:
        shared = self._shared(outputs)
        return [self._one(x, node, shared) for x, node in zip(outputs.values, outputs.nodes, strict=True)]

    def _one(self, x: Any, node: fx.Node | None, shared: set[int]) -> Any:
        if x is None:
            return None
        if isinstance(x, int):
            return ("integer", int(x))
        if not isinstance(x, EmitTensor) or node is None:
            raise Unsupported(f"a graph that returns a {type(x).__name__}")
        position = self.positions.get(id(x))
        if position is not None and isinstance(self.call.args[position], TensorSpec):
            return ("argument", position)
        return self._view(x, node, shared) or ("result", self._result(x, self.emitter.layout(node)))

    def _result(self, x: EmitTensor, layout: Layout | None) -> int:
        if id(x) not in self.made:
            value = x.value
            layout = layout or Layout(value.shape, contiguous_strides(value.shape))
            if value.shape != layout.sizes and _is_mistraced(self.emitter.home.get(id(x))):
                layout = Layout(value.shape, contiguous_strides(value.shape))
            if value.shape != layout.sizes:
                raise RuntimeError(f"emitted shape {value.shape}, traced {layout.sizes}")
            self.made[id(x)] = len(self.results)
            self.results.append(Result("fresh", value.dtype, layout))
            self.values.append(views.to_storage(hlo.to_storage(value), layout))
        return self.made[id(x)]

    def _shared(self, outputs: Outputs) -> set[int]:
        """Roots that are worth computing whole: they are outputs, or what looks at them has holes or is all of them."""
        roots = {id(x) for x in outputs.values if isinstance(x, EmitTensor) and x.view_of is None}
        looked: dict[int, int] = {}
        for x, node in zip(outputs.values, outputs.nodes, strict=True):
            if not isinstance(x, EmitTensor) or node is None or x.view_of is None:
                continue
            root, layout = _root(x), self.emitter.layout(node)
            looked[id(root)] = looked.get(id(root), 0) + x.numel()
            if looked[id(root)] > x.numel() and looked[id(root)] >= root.numel():
                roots.add(id(root))
            if layout is not None and not layout.dense:
                roots.add(id(root))
        return roots

    def _view(self, x: EmitTensor, node: fx.Node, shared: set[int]) -> Any:
        """("view", ...) of an argument or a result, or None."""
        root = _root(x)
        home = self.emitter.home.get(id(root))
        if x.view_of is None or home is None or not _is_strided(x) or x.dtype != root.dtype:
            return None
        layout, base = self.emitter.layout(node), self.emitter.layout(home)
        if layout is None or base is None or not layout.numel:
            return None
        start, end = self.emitter.offset(home), self.emitter.offset(node)
        if start is None or end is None or end < start:
            return None
        view = (layout.sizes, layout.strides, end - start)
        if end - start + layout.extent > base.extent:
            return None
        position = self.positions.get(id(root))
        if position is not None:
            spec = self.call.args[position]
            same = isinstance(spec, TensorSpec) and spec.layout == base and not (spec.conj or spec.neg)
            return ("view", "argument", position, *view) if same and position not in self.written else None
        if id(root) not in shared or not base.dense:
            return None
        return ("view", "result", self._result(root, base), *view)


def _is_mistraced(node: fx.Node | None) -> bool:
    """Whether tracing, which asks meta kernels, knows this result to be something it is not."""
    if node is None:
        return False
    position = 0
    if node.target is operator.getitem:
        source, position = node.args  # type: ignore[assignment]
        node = source if isinstance(source, fx.Node) else node
    return isinstance(node.target, torch._ops.OpOverload) and is_mistaken(overload_name(node.target), position)


def _root(x: EmitTensor) -> EmitTensor:
    while x.view_of is not None:
        x = x.view_of.base
    return x


def _is_strided(x: EmitTensor) -> bool:
    while x.view_of is not None:
        if x.view_of.op in NOT_STRIDED:
            return False
        x = x.view_of.base
    return True


def written_positions(graph: fx.Graph) -> tuple[int, ...]:
    """The placeholders whose memory the graph writes."""
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    targets = {x for node in graph.nodes for x in _written_by(node)}
    return tuple(i for i, p in enumerate(placeholders) if p in targets)


def _written_by(node: fx.Node) -> Iterator[fx.Node]:
    if not isinstance(node.target, torch._ops.OpOverload):
        return
    arguments = node.target._schema.arguments
    for i, a in enumerate(arguments):
        if a.alias_info is not None and a.alias_info.is_write:
            x = node.kwargs.get(a.name) if a.kwarg_only or i >= len(node.args) else node.args[i]
            yield from (v for v in tree_leaves(x) if isinstance(v, fx.Node))


def _input(x: Any, storages: Storages) -> Any:
    if isinstance(x, TensorSpec):
        return EmitTensor(storages.read(x))
    if isinstance(x, ScalarSpec):
        return EmitTensor(storages.scalar(x).strong())
    return x


def lower_graph(module: fx.GraphModule, call: Call) -> Lowered:
    """The program of one call of the graph; `call.args` describes its placeholders.

    Raises NodeFailed when a node has no lowering.
    """
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    written = written_positions(module.graph)
    results: list[Result] = []
    returns: list[Any] = []

    def body(program: Program, arguments: list[Value]) -> list[Value]:
        storages = Storages.of(call, program, arguments)
        inputs = [_input(x, storages) for x in call.args]
        emitter = Emitter(module, symbols_of(placeholders, call.args))
        outputs = emitter.run(inputs)
        listed = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        nodes = tuple(n if isinstance(n, fx.Node) else None for n in output_nodes(module.graph))
        made = Returns(emitter, call, inputs, written)
        returns.extend(made.of(Outputs(nodes, tuple(listed))))
        results.extend(made.results)
        for position in written:
            spec = call.args[position]
            if not isinstance(spec, TensorSpec):
                raise Unsupported("a graph that writes a number")
            storages.write(spec, inputs[position].value)
        return list(itertools.chain(made.values, storages.new_values(results)))

    return build(call, body, results, returns)


def output_nodes(graph: fx.Graph) -> list[Any]:
    """What the graph returns: nodes, numbers and None."""
    (output,) = (n for n in graph.nodes if n.op == "output")
    listed = output.args[0]
    return list(listed) if isinstance(listed, (list, tuple)) else [listed]
