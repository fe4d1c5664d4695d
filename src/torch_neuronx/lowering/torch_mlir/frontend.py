"""Torch-MLIR as a second frontend: it turns a graph into StableHLO, and this package reads inputs and lays out results.

Optional, and slower: what it is for is to check the table, whose programs have to give the same results.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import torch
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo
from torch import fx

from torch_neuronx.lowering.call import Lowered, Storages, build
from torch_neuronx.lowering.decompose import EmitTensor
from torch_neuronx.lowering.dtypes import tensor_type
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.graph import Emitter, Outputs, Returns, output_nodes
from torch_neuronx.lowering.module import Program
from torch_neuronx.lowering.spec import Call, Result, TensorSpec
from torch_neuronx.lowering.value import Value, static_dims

aten = torch.ops.aten
_ENTRY = "torch_mlir"
_DIALECTS = frozenset({"stablehlo", "chlo", "func"})


class NotInstalled(RuntimeError):
    """options={"frontend": "torch-mlir"} without the package."""


def version() -> str:
    """Torch-MLIR's version. Raises NotInstalled."""
    try:
        return metadata.version("torch-mlir")
    except metadata.PackageNotFoundError:
        raise NotInstalled(
            "options={'frontend': 'torch-mlir'} needs Torch-MLIR: pip install torch-mlir (for torch 2.13)."
        ) from None


def lower_graph_by_torch_mlir(module: fx.GraphModule, call: Call) -> Lowered:
    """As lower_graph. Raises Unsupported for what Torch-MLIR does not turn into StableHLO."""
    pure = _Pure(module)
    text = _stablehlo(pure)
    results: list[Result] = []
    returns: list[Any] = []

    def body(program: Program, arguments: list[Value]) -> list[Value]:
        storages = Storages.of(call, program, arguments)
        inputs = [EmitTensor(storages.read(x)) for x in call.args if isinstance(x, TensorSpec)]
        if len(inputs) != len(call.args):
            raise Unsupported("Torch-MLIR takes graphs whose inputs are tensors")
        made = [EmitTensor(v) for v in _called(program, text, [x.value for x in inputs], pure.outputs)]
        emitter = Emitter(module, {})
        values = dict(zip(pure.outputs, made, strict=True)) | dict(zip(pure.placeholders, inputs, strict=True))
        emitter.home = {id(v): n for n, v in values.items()}
        nodes = tuple(n if isinstance(n, fx.Node) else None for n in output_nodes(module.graph))
        listed = tuple(
            n if d is None else values[pure.origin(d)] for n, d in zip(output_nodes(module.graph), nodes, strict=True)
        )
        returned = Returns(emitter, call, inputs, list(pure.written))
        returns.extend(returned.of(Outputs(nodes, listed)))
        results.extend(returned.results)
        for position, node in pure.written.items():
            storages.write(call.args[position], values[node].value)
        return list(itertools.chain(returned.values, storages.new_values(results)))

    return build(call, body, results, returns)


class _Pure:
    """A graph without its writes to inputs.

    placeholders  of the original graph
    outputs       nodes of the original graph that have to be computed
    written       position of an input -> the node with its new value
    """

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        positions = {n: i for i, n in enumerate(self.placeholders)}
        self._copies: dict[fx.Node, fx.Node] = {}
        self.written: dict[int, fx.Node] = {}
        for node in module.graph.nodes:
            if node.target is aten.copy_.default and node.args[0] in positions:
                self._copies[node] = node.args[1]
                self.written[positions[node.args[0]]] = self.origin(node.args[1])
            elif torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and _draws(node):
                raise Unsupported(f"Torch-MLIR does not draw from the device's generator, which {node.target} needs")
            elif isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
                raise Unsupported(f"Torch-MLIR is given functional graphs, and this one has {node.target}")
        wanted = [n for n in output_nodes(module.graph) if isinstance(n, fx.Node)]
        computed = dict.fromkeys(self.origin(n) for n in (*wanted, *self.written.values()))
        self.outputs = [n for n in computed if n not in positions]

    def origin(self, node: fx.Node) -> fx.Node:
        """The node whose value a write returns, or the node itself."""
        while node in self._copies:
            node = self._copies[node]
        return node

    def traced(self) -> fx.GraphModule:
        """The functional graph in the operators that Torch-MLIR knows."""
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.proxy_tensor import make_fx

        from torch_neuronx.lowering.torch_mlir.decompositions import table

        graph = fx.Graph()
        copied: dict[fx.Node, fx.Node] = {}
        for node in self.module.graph.nodes:
            if node.op == "output" or node in self._copies:
                if node in self._copies:
                    copied[node] = copied[self.origin(node)]
                continue
            copied[node] = graph.node_copy(node, copied.__getitem__)
        graph.output([copied[n] for n in self.outputs])
        with FakeTensorMode() as mode:
            inputs = [_placed(n, mode) for n in self.placeholders]
            plain = fx.GraphModule(self.module, graph)
            return make_fx(_Reshaping(plain).run, decomposition_table=table())(*inputs)


class _Reshaping(fx.Interpreter):
    """Decompositions give other strides than the operators: what was a view there may be none here."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(aten.reshape.default if target is aten.view.default else target, args, kwargs)


def _draws(node: fx.Node) -> bool:
    """Whether a node that may be random is: attention is only with dropout."""
    at = {a.name: i for i, a in enumerate(node.target._schema.arguments)}.get("dropout_p")  # type: ignore[union-attr]
    return at is None or bool(node.args[at] if at < len(node.args) else node.kwargs.get("dropout_p", 0.0))


def _placed(node: fx.Node, mode: Any) -> torch.Tensor:
    traced = node.meta.get("val")
    if not isinstance(traced, torch.Tensor) or any(isinstance(n, torch.SymInt) for n in traced.shape):
        raise Unsupported("Torch-MLIR is given graphs of fixed sizes: pass dynamic=False to torch.compile")
    with mode:
        return torch.empty_strided(traced.shape, traced.stride(), dtype=traced.dtype, device=traced.device)


def _stablehlo(pure: _Pure) -> str:
    version()
    from torch_mlir.compiler_utils import OutputType
    from torch_mlir.fx import stateless_fx_import

    try:
        made = stateless_fx_import(pure.traced(), output_type=OutputType.STABLEHLO, model_name=_ENTRY)
    except Unsupported:
        raise
    except Exception as error:
        raise Unsupported(f"Torch-MLIR does not lower it: {type(error).__name__}: {error}") from error
    return str(made.operation.get_asm(large_elements_limit=None))


def _called(program: Program, text: str, given: Sequence[Value], outputs: Sequence[fx.Node]) -> list[Value]:
    """Puts Torch-MLIR's function into the program under construction and calls it."""
    parsed = ir.Module.parse(text)
    _without_arith(parsed)
    (theirs,) = (op for op in parsed.body.operations if isinstance(op, func.FuncOp))
    with ir.InsertionPoint(program.module.body):
        placed = theirs.operation.clone()
    placed.attributes["sym_visibility"] = ir.StringAttr.get("private")
    types = list(theirs.type.results)
    operands = [_as(v.ssa, t) for v, t in zip(given, theirs.type.inputs, strict=True)]
    ssas = func.CallOp(types, ir.FlatSymbolRefAttr.get(_ENTRY), operands).results
    return [_value(ssa, node.meta["val"]) for ssa, node in zip(ssas, outputs, strict=True)]


def _without_arith(module: ir.Module) -> None:
    """Constants of arith become StableHLO's; other dialects are refused."""
    found: list[Any] = []

    def visit(op: Any) -> ir.WalkResult:
        found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in found:
        name = op.name if isinstance(op.name, str) else op.operation.name
        if name == "arith.constant":
            with ir.InsertionPoint(op):
                value = op.attributes["value"]
                if not isinstance(value, ir.DenseElementsAttr):
                    raise Unsupported(f"Torch-MLIR leaves {op} in its StableHLO")
                op.results[0].replace_all_uses_with(stablehlo.ConstantOp(value).result)
            op.erase()
        elif name.split(".")[0] not in _DIALECTS and name != "builtin.module":
            raise Unsupported(f"Torch-MLIR leaves {name} in its StableHLO")


def _as(ssa: ir.Value, wanted: ir.Type) -> ir.Value:
    return ssa if ssa.type == wanted else stablehlo.BitcastConvertOp(wanted, ssa).result


def _value(ssa: ir.Value, traced: torch.Tensor) -> Value:
    shape = tuple(int(n) for n in traced.shape)
    wanted = tensor_type(shape, traced.dtype)
    value = Value(ssa, traced.dtype, static_dims(shape))
    if ssa.type == wanted:
        return value
    if ir.RankedTensorType(ssa.type).shape != list(shape):
        raise Unsupported(f"Torch-MLIR gives {ssa.type} where torch traced {wanted}")
    return Value(_as(ssa, wanted), traced.dtype, static_dims(shape))
