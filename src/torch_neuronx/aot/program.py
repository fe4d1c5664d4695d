"""From an exported program to the graph that is compiled: functional, weights first, writes at its end."""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    SymIntArgument,
    TensorArgument,
)
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from torch_neuronx.aot.errors import BundleError
from torch_neuronx.dynamo.passes import lift_constants

aten = torch.ops.aten
_MUTATIONS = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)
_NOT_SHIPPED = (InputKind.CUSTOM_OBJ, InputKind.TOKEN)
# About sizes and metadata; a bundle checks its inputs against the guards instead.
_ASSERTIONS = frozenset(
    {
        aten._assert_tensor_metadata.default,
        aten._assert_scalar.default,
        aten.sym_constrain_range.default,
        aten.sym_constrain_range_for_size.default,
    }
)


@dataclass
class Graph:
    """What is compiled.

    module      placeholders in the order of `sources`; returns tensors only
    sources     of each placeholder: ("weight", its name) or ("leaf", its number)
    weights     by name, on the device, or on the CPU when they are numbers the program was traced with there
    leaves      of each leaf of the arguments what tracing knew: a fake tensor, a SymInt or a constant
    outputs     of each leaf returned: ("result", i), ("input", leaf), ("size", SymInt) or ("constant", value)
    assertions  conditions on sizes that were nodes of the graph
    """

    module: fx.GraphModule
    sources: list[tuple[str, Any]]
    weights: dict[str, torch.Tensor]
    leaves: list[Any]
    outputs: list[tuple[str, Any]]
    assertions: list[Any] = field(default_factory=list)


def on_device(exported: ExportedProgram) -> ExportedProgram:
    """The program; one that is on the CPU as a whole is moved, as a copy."""
    placeholders = [n.meta.get("val") for n in exported.graph.nodes if n.op == "placeholder"]
    devices = {v.device.type for v in placeholders if isinstance(v, torch.Tensor)}
    if foreign := devices - {"cpu", "neuron"}:
        raise BundleError(
            f"the exported program has tensors on {', '.join(sorted(foreign))}. Move it with "
            "move_to_device_pass(program, 'neuron:0') from torch.export.passes."
        )
    if devices != {"cpu"}:
        return exported
    from torch.export.passes import move_to_device_pass

    with _without_deprecations():
        copied = copy.deepcopy(exported)
    _named_alike(copied, exported)
    return move_to_device_pass(copied, "neuron:0")


def _named_alike(copied: ExportedProgram, exported: ExportedProgram) -> None:
    """Copying a graph renames what is named like a builtin, such as `input`, and the signature keeps the old names."""
    for new, old in zip(copied.graph.nodes, exported.graph.nodes, strict=True):
        new.name = old.name
        if new.op == "placeholder":
            new.target = old.target
    copied.graph_module.recompile()


def graph_of(exported: ExportedProgram) -> Graph:
    """Raises BundleError for what cannot be shipped: custom objects, effects, gradients."""
    for spec in exported.graph_signature.input_specs:
        if spec.kind in _NOT_SHIPPED:
            raise BundleError(f"the exported program has an input of kind {spec.kind.name}, which has no form on disk")
    assertions = list(_assertions(exported.graph_module))
    functional = _functional(exported)
    signature = functional.graph_signature
    module = copy.copy(functional.graph_module)
    module.graph = copy.deepcopy(module.graph)
    assertions += _assertions(module)
    _without_assertions(module.graph)
    sources, weights, leaves = _inputs(functional, module.graph)
    outputs = _outputs(signature.output_specs, module.graph, sources, signature.input_specs)
    module.recompile()
    before = sum(n.op == "placeholder" for n in module.graph.nodes)
    module, constants = lift_constants(module)
    for i, tensor in enumerate(constants):
        sources.append(("weight", f"constant {before + i}"))
        weights[f"constant {before + i}"] = tensor
    return Graph(module, sources, weights, leaves, outputs, assertions)


def _functional(exported: ExportedProgram) -> ExportedProgram:
    """Without in-place operators; composite ones decomposed as AOTAutograd does."""
    from torch._export.utils import _collect_all_valid_cia_ops_for_aten_namespace, _get_decomp_for_cia

    exported = copy.copy(exported)
    module = copy.copy(exported.graph_module)
    module.graph = copy.deepcopy(module.graph)
    # After a move "neuron" and "neuron:0" meet in these, which tracing takes for two devices.
    for node in [n for n in module.graph.nodes if n.target is aten._assert_tensor_metadata.default]:
        module.graph.erase_node(node)
    module.recompile()
    exported._graph_module = module
    table: dict[Any, Any] = {op: _get_decomp_for_cia(op) for op in _collect_all_valid_cia_ops_for_aten_namespace()}
    with _without_deprecations():
        return exported.run_decompositions(table)


@contextmanager
def _without_deprecations() -> Iterator[None]:
    """torch copies its own trees with what it has deprecated."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
        yield


def _assertions(module: fx.GraphModule) -> Iterator[Any]:
    for node in module.graph.nodes:
        if node.target is aten._assert_scalar.default and not _is_of_data(node):
            condition = node.args[0]
            yield condition.meta.get("val") if isinstance(condition, fx.Node) else condition


def _is_of_data(node: fx.Node) -> bool:
    """Whether an assertion is about a number that only the data shows."""
    condition = node.args[0] if node.args else None
    value = condition.meta.get("val") if isinstance(condition, fx.Node) else condition
    return bool(free_unbacked_symbols(value)) if isinstance(value, (torch.SymBool, torch.SymInt)) else False


def _without_assertions(graph: fx.Graph) -> None:
    """Removes those that inputs are checked against, and what only they used."""
    for node in reversed(list(graph.nodes)):
        conditions = isinstance(node.meta.get("val"), (torch.SymBool, torch.SymInt, torch.SymFloat))
        unused = node.op == "call_function" and conditions and not node.users
        if unused or (node.target in _ASSERTIONS and not _is_of_data(node)):
            graph.erase_node(node)


def _inputs(
    exported: ExportedProgram, graph: fx.Graph
) -> tuple[list[tuple[str, Any]], dict[str, torch.Tensor], list[Any]]:
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    sources: list[tuple[str, Any]] = []
    weights: dict[str, torch.Tensor] = {}
    leaves: list[Any] = []
    changed = {str(s.target) for s in exported.graph_signature.output_specs if s.kind in _MUTATIONS}
    for node, spec in zip(placeholders, exported.graph_signature.input_specs, strict=True):
        if spec.kind == InputKind.USER_INPUT:
            if isinstance(spec.arg, ConstantArgument):
                leaves.append(spec.arg.value)
                node.replace_all_uses_with(spec.arg.value)
                graph.erase_node(node)
            else:
                leaves.append(node.meta["val"])
                sources.append(("leaf", len(leaves) - 1))
        elif not node.users and str(spec.target) not in changed:
            graph.erase_node(node)
        else:
            name = str(spec.target)
            sources.append(("weight", name))
            weights[name] = _weight(exported, spec)
    return sources, weights, leaves


def _weight(exported: ExportedProgram, spec: InputSpec) -> torch.Tensor:
    name = str(spec.target)
    found = exported.state_dict.get(name) if spec.persistent is not False else None
    found = exported.constants.get(name) if found is None else found
    if not isinstance(found, torch.Tensor):
        raise BundleError(f"the exported program does not hold its weight {name}")
    if found.layout != torch.strided:
        raise BundleError(f"the weight {name} has layout {found.layout}; a bundle holds strided tensors")
    return found.detach()


def _outputs(specs: list[Any], graph: fx.Graph, sources: list[tuple[str, Any]], inputs: list[InputSpec]) -> list[Any]:
    """Writes what the program changes into the placeholders, and leaves tensors alone to be returned."""
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    position = dict(zip(placeholders, sources, strict=True))
    (last,) = (n for n in graph.nodes if n.op == "output")
    returned: list[fx.Node] = []
    outputs: list[tuple[str, Any]] = []
    written: dict[fx.Node, fx.Node] = {}
    targets = {str(s.target): s.arg.name for s in inputs if s.target is not None}
    for node, spec in zip(last.args[0], specs, strict=True):
        if spec.kind in _MUTATIONS:
            name = targets.get(str(spec.target), str(spec.target))
            written[next(n for n in placeholders if n.name == name)] = node
        elif spec.kind not in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT):
            raise BundleError(f"the exported program returns a {spec.kind.name}; a bundle holds inference programs")
        elif isinstance(spec.arg, ConstantArgument) or not isinstance(node, fx.Node):
            outputs.append(("constant", spec.arg.value if isinstance(spec.arg, ConstantArgument) else node))
        elif isinstance(spec.arg, SymIntArgument):
            outputs.append(("size", node.meta["val"]))
        elif not isinstance(spec.arg, TensorArgument):
            raise BundleError(f"the exported program returns {type(spec.arg).__name__}, which has no form on disk")
        elif node in position and position[node][0] == "leaf":
            outputs.append(("input", position[node][1]))
        else:
            outputs.append(("result", len(returned)))
            returned.append(node)
    _write(graph, last, written, returned)
    return outputs


def _write(graph: fx.Graph, last: fx.Node, written: dict[fx.Node, fx.Node], returned: list[fx.Node]) -> None:
    with graph.inserting_before(last):
        old = dict.fromkeys(n for n in (*returned, *written.values()) if n in written)
        for node in old:  # its value from before the write
            kept = graph.call_function(aten.clone.default, (node,))
            kept.meta = dict(node.meta)
            returned[:] = [kept if n is node else n for n in returned]
            written = {k: kept if v is node and k is not node else v for k, v in written.items()}
        for target, value in written.items():
            if value is not target:
                done = graph.call_function(aten.copy_.default, (target, value))
                done.meta = dict(target.meta)
    last.args = (tuple(returned),)


def is_random(module: fx.GraphModule) -> bool:
    """Whether a call may draw random numbers."""
    graphs = [m.graph for m in module.modules() if isinstance(m, fx.GraphModule)]
    nodes = [n for g in graphs for n in g.nodes]
    return any(
        torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())
        or isinstance(n.target, torch._ops.HigherOrderOperator)
        for n in nodes
        if n.target is not operator.getitem
    )
