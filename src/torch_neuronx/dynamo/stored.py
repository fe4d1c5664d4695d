"""Graphs in AOTAutograd's own cache: where it has them, a later process does not trace and partition again.

The cache (torch/_functorch/_aot_autograd/autograd_cache.py) takes what a compiler returns when that is an OutputCode.
Its key is Dynamo's graph, the inputs and the settings of torch; ours are added here. Executables are kept elsewhere, by
what they are made from, so an entry holds graphs only.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
from torch._guards import detect_fake_mode
from torch._inductor.output_code import OutputCode
from torch.fx._graph_pickler import GraphPickler, Options

from torch_neuronx import _C
from torch_neuronx.compiler import executables
from torch_neuronx.dynamo.early import Pair
from torch_neuronx.dynamo.graph import CompiledGraph, has_foreign_ops
from torch_neuronx.dynamo.passes import saved_by
from torch_neuronx.dynamo.settings import Settings

# Nodes of a graph for inference from which on reading it is taken to take less time than tracing it. Names of entries
# need modules of Inductor: of GPT-2's 420 nodes these took half a second more than was won. The joint graph of a
# training step takes three times as long to trace; of the same network, reading it took 40 % of that.
WORTH_IT = 1000

# Of a node's notes: what lowering, errors and identities read.
_NOTES = frozenset({"val", "stack_trace"})


class StoredGraph(OutputCode):
    """A graph and what became of it, which goes to disk as the graph."""

    def __init__(
        self, module: fx.GraphModule, kind: str, settings: Settings, pair: Pair, saved: frozenset[int]
    ) -> None:
        super().__init__()
        self._boxed_call = True
        self._module, self._bytes = module, b""
        self._made_of = (kind, settings, pair, saved)
        self._call: Callable[[list[Any]], Any] | None = None

    def compiled(self) -> Callable[[list[Any]], Any]:
        """What AOTAutograd calls; it finds this object behind it."""
        call = self._compile().entry_point()
        call.__wrapped__ = self  # type: ignore[attr-defined]  # what functools.wraps would set
        return call

    def _compile(self) -> CompiledGraph:
        kind, settings, pair, saved = self._made_of
        return CompiledGraph(self._module, kind, settings, pair, saved)

    def __call__(self, inputs: Any) -> Any:
        assert self._call is not None
        return self._call(inputs)

    def prepare_for_serialization(self) -> None:
        """Turns a copy of this into what is pickled. Raises BypassAOTAutogradCache for what cannot be kept."""
        _check(self._module)
        options = Options(ops_filter=None, node_metadata_key_filter=_NOTES.__contains__)
        self._bytes = GraphPickler.dumps(self._module, options)
        del self._module

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """After it was read from disk."""
        mode = detect_fake_mode(example_inputs)
        if mode is None:
            raise BypassAOTAutogradCache("no fake tensors to read a graph with")
        module = GraphPickler.loads(self._bytes, mode)
        assert isinstance(module, fx.GraphModule)
        self._module, self._bytes = module, b""
        graph = self._compile()
        graph.metrics.traced = False
        self._call = graph.entry_point()


def _check(module: fx.GraphModule) -> None:
    for part in module.modules():
        if not isinstance(part, fx.GraphModule):
            raise BypassAOTAutogradCache(f"a graph that holds a {type(part).__name__}")
        for node in part.graph.nodes:
            held = getattr(part, str(node.target), None) if node.op == "get_attr" else None
            if node.op == "get_attr" and not isinstance(held, fx.GraphModule):
                raise BypassAOTAutogradCache("a graph that holds tensors")
            if _varies(node.meta.get("val")):
                raise BypassAOTAutogradCache("a graph of varying sizes")


def _varies(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_varies, value))
    if isinstance(value, torch.Tensor):
        return any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride(), value.storage_offset()))
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def compiler(kind: str, settings: Settings, pair: Pair) -> SerializableAOTDispatchCompiler:
    """What AOTAutograd compiles with when its cache is to keep the graphs."""

    def compile_(module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return StoredGraph(module, kind, settings, pair, saved_by(module, kind)).compiled()

    return SerializableAOTDispatchCompiler(StoredGraph, compile_)


def may_be_stored(module: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether it pays, and Dynamo's graph says all that decides what AOTAutograd makes of it.

    Operators of others do not: what their names mean is in somebody's Python.
    """
    trains = torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)
    if len(module.graph.nodes) * (3 if trains else 1) < WORTH_IT:
        return False
    return not has_foreign_ops(module) and not any(map(_varies, inputs))


@contextmanager
def keyed(settings: Settings) -> Iterator[None]:
    """Within it AOTAutograd's cache keeps whole graphs, under names that hold our part."""
    from torch._functorch import config as functorch
    from torch._inductor import config as inductor

    # The one setting of Inductor that says of functions which version of them is meant; it is part of each name.
    marked = {**inductor.unsafe_marked_cacheable_functions, "torch_neuronx": _ours(settings)}
    with functorch.patch(bundled_autograd_cache=True), inductor.patch(unsafe_marked_cacheable_functions=marked):
        yield


def _ours(settings: Settings) -> str:
    """Everything beside torch's own settings that decides what tracing for the device gives."""
    state = (
        executables.code_version(),
        _core_and_graphs(),
        settings,
        torch.get_default_dtype(),
        torch.is_autocast_enabled("neuron") and torch.get_autocast_dtype("neuron"),
        torch._C._get_overrideable_sdp_enabled(),  # csrc/ops/attention.cpp asks
        _C.hold_random_on_cpu(0),
    )
    return hashlib.sha256(repr(state).encode()).hexdigest()


@functools.cache
def _core_and_graphs() -> str:
    """A hash of what decides, beside the lowering, what tracing gives and how an entry looks: the core, this folder."""
    digest = hashlib.sha256()
    for file in (Path(_C.__file__), *sorted(Path(__file__).parent.glob("*.py"))):
        digest.update(file.read_bytes())
    return digest.hexdigest()
