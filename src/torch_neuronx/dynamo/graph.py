"""One compiled graph: a callable that AOTAutograd's wrappers call with a list of arguments."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import fx

from torch_neuronx import _C
from torch_neuronx.compiler import executables
from torch_neuronx.compiler.made_up import MadeUp
from torch_neuronx.compiler.tuning import Tuner
from torch_neuronx.debug import tracking
from torch_neuronx.dynamo import artifacts, metrics
from torch_neuronx.dynamo.aliases import Aliases
from torch_neuronx.dynamo.buckets import Varying, is_varying
from torch_neuronx.dynamo.early import Early, Pair, backward_call
from torch_neuronx.dynamo.identity import graph_identity, known_of_sizes
from torch_neuronx.dynamo.passes import host_positions, lift_constants
from torch_neuronx.dynamo.resolver import weakly
from torch_neuronx.dynamo.settings import Settings, copies_cpu_inputs
from torch_neuronx.dynamo.tiers import NotMade, Tiers
from torch_neuronx.eager.interrupts import held_back
from torch_neuronx.eager.resolve import argument_of, run_entry, slot_of
from torch_neuronx.lowering.call import Lowered
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.graph import NodeFailed, lower_graph, written_positions
from torch_neuronx.lowering.ops.conv_products import products
from torch_neuronx.lowering.padded.data_sizes import makes_sizes
from torch_neuronx.lowering.padded.decomposed import without_tracing
from torch_neuronx.lowering.padded.graph import Request, lower_padded
from torch_neuronx.lowering.padded.sizes import NeedsExact
from torch_neuronx.lowering.spec import Call
from torch_neuronx.lowering.torch_mlir import frontend

_numbers = itertools.count()


class CompilationError(RuntimeError):
    """A graph could not be compiled."""


class CompiledGraph:
    """Compiled for each set of layouts and sizes it is called with; called with a list, which it empties."""

    def __init__(
        self, module: fx.GraphModule, kind: str, settings: Settings, pair: Pair, saved: frozenset[int]
    ) -> None:
        """`saved` are the outputs that forward saves for backward."""
        # For AOTAutograd: arguments come in a list. On the instance, whose attributes Dynamo's wrappers copy.
        self._boxed_call = True
        self.settings, self.kind, self._saved = settings, kind, saved
        self.module, self.constants = lift_constants(module)
        self.name = f"{settings.model_name}_{next(_numbers)}_{kind}"
        graph = self.module.graph
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        self.metrics = metrics.record(metrics.GraphMetrics(self.name, kind, len(graph.nodes)))
        self.identity = f"graph {graph_identity(self.module)}"
        self._lower = lower_graph
        if settings.frontend == "torch-mlir":
            self.identity += f" torch-mlir {frontend.version()}"
            self._lower = frontend.lower_graph_by_torch_mlir
        self._foreign = has_foreign_ops(self.module)
        self.written = written_positions(graph)
        self.host_inputs, self.host_outputs = host_positions(self.module)
        floats = tuple(i for i, p in enumerate(placeholders) if isinstance(p.meta.get("val"), (float, torch.SymFloat)))
        random = any(torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()) for n in graph.nodes)
        (output,) = (n for n in graph.nodes if n.op == "output")
        listed = output.args[0]
        self._single = not isinstance(listed, (list, tuple))
        returns = 1 if self._single else len(listed)
        random = random or _has_subgraphs(graph)
        self._random = random
        self._handle = _C.make_graph(
            self.name, len(placeholders), returns, self.written, floats, random, weakly(self._resolve)
        )
        self._aliases = Aliases(self.module)
        self._varying: Varying | None = None
        self._padded: Any = None
        self._exact: Any = None
        self._of_data = makes_sizes(self.module)
        self._tiers = Tiers(None if self._of_data else settings.exact_after)
        self._tuner = Tuner() if settings.mode == "max-autotune" else None
        self._convolves = any(n.target in _CONVOLUTIONS for n in graph.nodes)
        self._buckets: dict[str, executables.Obtained] = {}
        self._ahead: set[str] = set()  # those that no call has needed yet
        self.metrics.varying = is_varying(self.module) or self._of_data
        padded = settings.buckets is not None and self.metrics.varying
        if settings.frontend == "table" and (padded or self._of_data):
            self._prepare_padded(len(placeholders), returns, floats, random)
        self._pair, self._early = pair, Early()
        if kind == "backward" and settings.mode != "max-autotune" and settings.frontend == "table":
            pair.begin = self._begin
        if artifacts.preserved():
            artifacts.save_graph(self.module, self.name)

    def _prepare_padded(self, inputs: int, returns: int, floats: tuple[int, ...], random: bool) -> None:
        varying = Varying(self.module, self.settings.buckets or (), self._aliases, self._saved, self.kind == "backward")
        self.metrics.exact_because = varying.obstacle()
        if self.metrics.exact_because is None:
            numbers = tuple(range(inputs, inputs + varying.extra - 1))
            count = inputs + varying.extra
            self._varying = varying
            written = tuple(i for i in self.written if i not in varying.writes)
            self._padded = _C.make_graph(
                self.name,
                count,
                returns + len(varying.writes),
                written,
                (*floats, *numbers),
                random,
                weakly(self._resolve_padded),
            )
            self._exact = _C.make_graph(
                self.name, inputs, returns, self.written, floats, random, weakly(self._resolve_recurring)
            )

    def entry_point(self) -> Callable[[list[Any]], Any]:
        """What AOTAutograd calls: the core itself, unless something of Python's has to happen on the way."""
        if self.host_inputs or self.host_outputs or self._aliases.windows or self.settings.fallback_execution:
            return self
        if self._varying is not None:
            return self
        call = _C.graph_call(self._handle, self.constants, self._single, self)
        call._boxed_call = True
        return call

    def __call__(self, args: list[Any]) -> Any:
        if self.metrics.fallback is not None:
            return self._op_by_op(args)
        args.extend(self.constants)
        copied = self._copy_host_inputs(args) if self.host_inputs else None
        kept = list(args) if self.settings.fallback_execution else None
        try:
            out = self._run(args)
        except CompilationError as error:
            if kept is None:
                raise
            self.metrics.fallback = str(error)
            tracking.count(f"graph {self.name}", str(error), kept)
            out = self._interpret(kept)
        if copied:
            for host, device in copied:
                host.copy_(device)
        for i in self.host_outputs:
            out[i] = out[i].cpu()
        return out[0] if self._single else out

    def _run(self, args: list[Any]) -> list[Any]:
        if self._varying is not None and self.metrics.exact_because is None:
            try:
                if self._tiers.wants_exact(tuple(self._varying.sizes(args).values())):
                    with suppress(NotMade):
                        views = self._aliases.look(args, self._aliases.windows)
                        return _with(views, _C.run_graph(self._exact, list(args)))
                views = self._aliases.look(args, self._aliases.of_inputs)
                out = _C.run_graph(self._padded, self._varying.arguments(args))
                for k in self._varying.numbers_of_data:
                    out[k] = int(out[k].item())
                return _with(views, self._varying.written_back(args, out))
            except NeedsExact as reason:
                if self._of_data:
                    raise self._failure(_located(reason)) from reason
                self.metrics.exact_because = str(reason)
        views = self._aliases.look(args, self._aliases.windows)
        return _with(views, _C.run_graph(self._handle, args))

    def _copy_host_inputs(self, args: list[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Moves CPU tensors to the device; the written ones come back, with where they are written to."""
        device = next((x.device for x in args if isinstance(x, torch.Tensor) and x.device.type == "neuron"), "neuron")
        back = []
        for i in self.host_inputs:
            host = args[i]
            if not isinstance(host, torch.Tensor) or host.device.type != "cpu":
                continue
            if not copies_cpu_inputs():
                raise RuntimeError(
                    f"input {i} of {self.name} is a CPU tensor of shape {tuple(host.shape)}, and "
                    "TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY=1 forbids copying it. Move it with .to('neuron')."
                )
            args[i] = host.to(device)
            if i in self.written:
                back.append((host, args[i]))
        return back

    def _op_by_op(self, args: list[Any]) -> Any:
        assert self.metrics.fallback is not None
        given = [*args, *self.constants]
        args.clear()
        tracking.count(f"graph {self.name}", self.metrics.fallback, given)
        out = self._interpret(given)
        return out[0] if self._single else out

    def _interpret(self, given: Sequence[Any]) -> list[Any]:
        with torch.no_grad():
            out = fx.Interpreter(self.module).run(*given)
        return [out] if self._single else list(out)

    def _resolve(
        self, name: str, args: tuple[Any, ...], slots: tuple[Any, ...], params: int, rng: int, device: int
    ) -> tuple[Any, ...]:
        """The core's question for the executable of a call with layouts not seen before."""
        state = rng if rng >= 0 else None
        described = tuple(argument_of(x, "") for x in args)
        call = Call(f"graph::{self.kind}", described, tuple(slot_of(s) for s in slots), params, state)
        try:
            with held_back():
                return run_entry(self._early_one(call) or self._exactly(call, described, device))
        except (NodeFailed, Unsupported, executables.LoweringFailed, RuntimeError) as error:
            raise self._failure(error) from error

    def _exactly(self, call: Call, described: tuple[Any, ...], device: int) -> executables.Obtained:
        made_up = MadeUp(call, described, {}) if self._tuner else None

        def lower() -> Lowered:
            lowered = self._lower(self.module, call)
            if self.kind == "forward":
                self._tell(call, executables.interface_of(lowered), device)
            return lowered

        with metrics.measured(self.metrics):
            found = self._obtain(f"{self.identity} {call!r}", lower, device, made_up)
        if self.kind == "forward":
            self._tell(call, found.interface, device)
        return found

    def _tell(self, call: Call, face: executables.Interface, device: int) -> None:
        """What the forward returns is known: the backward can begin, if its inputs are these and no other views."""
        if not self._aliases.windows and not self.host_outputs:
            self._pair.forward_known(self.module, call, face, device)

    def _begin(self, forward: fx.GraphModule, call: Call, face: executables.Interface, device: int) -> None:
        """Obtains, in the background, the executable of the call that will follow a call of the forward graph."""
        expected = None if self.constants else backward_call(forward, call, face, self.module)
        if expected is None:
            return
        if self._random:
            expected = replace(expected, params=expected.params + 2, rng=expected.params)
        identity, lower = f"{self.identity} {expected!r}", partial(self._lower, self.module, expected)

        def make() -> executables.Obtained:
            with metrics.measured(self.metrics, early=True):
                return self._obtain(identity, lower, device)

        self._early.ask(identity, make)

    def _early_one(self, call: Call) -> executables.Obtained | None:
        found = self._early.take(f"{self.identity} {call!r}")
        if found is not None:
            metrics.used(self.metrics)
        return found

    def _resolve_padded(
        self, name: str, args: tuple[Any, ...], slots: tuple[Any, ...], params: int, rng: int, device: int
    ) -> tuple[Any, ...]:
        """The same for a call whose sizes are padded: sizes of one bucket have one executable."""
        varying = self._varying
        assert varying is not None
        state = rng if rng >= 0 else None
        described = tuple(argument_of(x, "") for x in args)
        request, exact = varying.request(described)
        call = Call(f"graph::{self.kind}", described, tuple(slot_of(s) for s in slots), params, state)
        call = varying.canonical(call)
        identity = f"{self._padded_identity} {request!r} {call!r}"
        known = self._buckets.get(identity)
        if known is None:
            made_up = MadeUp(call, described, varying.numbers(described)) if self._tuner else None
            try:
                with held_back():
                    known = self._bucket(identity, call, request, device, made_up)
            except NeedsExact:
                raise
            except Exception as error:
                raise self._failure(error) from error
        if identity in self._ahead:
            self._ahead.discard(identity)
            metrics.called(self.metrics)
        self._look_ahead(call, request, varying.sizes_of(described), device)
        return run_entry(varying.at_sizes(known, exact))

    @cached_property
    def _padded_identity(self) -> str:
        """Equal graphs are taken apart in different ways where different things are known of their sizes."""
        return f"{self.identity} {known_of_sizes(self.module)}"

    def _bucket(
        self,
        identity: str,
        call: Call,
        request: Request,
        device: int,
        made_up: MadeUp | None = None,
        *,
        ahead: bool = False,
    ) -> executables.Obtained:
        with metrics.measured(self.metrics, ahead=ahead), without_tracing() if ahead else nullcontext():
            found = self._obtain(identity, partial(lower_padded, self.module, call, request), device, made_up)
        if ahead:
            self._ahead.add(identity)
        return self._buckets.setdefault(identity, found)

    def _look_ahead(self, call: Call, request: Request, sizes: dict[str, int], device: int) -> None:
        """Asks for the next bucket of a size that is about to outgrow its own."""
        assert self._varying is not None
        for name, bound in request.bounds:
            near = self._tiers.near_the_end(sizes[name], bound)
            following = self._varying.next_bucket(call, request, name) if near else None
            if following is None:
                continue
            larger, wanted = following
            identity = f"{self._padded_identity} {wanted!r} {larger!r}"
            if identity not in self._buckets:
                self._tiers.ahead(identity, partial(self._bucket, identity, larger, wanted, device, ahead=True))

    def _resolve_recurring(
        self, name: str, args: tuple[Any, ...], slots: tuple[Any, ...], params: int, rng: int, device: int
    ) -> tuple[Any, ...]:
        """The same for sizes that recur: their own executable when it is made, else NotMade."""
        assert self._varying is not None
        state = rng if rng >= 0 else None
        described = tuple(argument_of(x, "") for x in args)
        call = Call(f"graph::{self.kind}", described, tuple(slot_of(s) for s in slots), params, state)
        identity = f"{self.identity} {call!r}"

        def make() -> executables.Obtained:
            with metrics.measured(self.metrics, recurring=True):
                return self._obtain(identity, partial(self._lower, self.module, call), device)

        sizes = tuple(self._varying.sizes_of(described).values())
        return run_entry(self._tiers.made(identity, sizes, make))

    def _obtain(
        self, identity: str, lower: Callable[[], Lowered], device: int, made_up: MadeUp | None = None
    ) -> executables.Obtained:
        """The executable of a call; with `made_up` arguments the one that is fastest with them.

        Deterministic mode takes the usual one: another may round otherwise.
        """
        source = self._source(identity, lower)
        if self._tuner is None or made_up is None or torch.are_deterministic_algorithms_enabled():
            return executables.obtain(source, device)
        others = {name: partial(_with_products, wanted, lower) for name, wanted in _PRODUCTS.items()}
        found = self._tuner.obtain(source, others if self._convolves else {}, made_up, device)
        if found.tuning is not None:
            self.metrics.tuned.append(found.tuning)
        return found

    def _source(self, identity: str, lower: Callable[[], Lowered]) -> executables.Source:
        """The program of a call; one with operators of others is known by what it is, not by their names."""

        def kept() -> Lowered:
            lowered = lower()
            if artifacts.preserved():
                artifacts.save_program(lowered.built.text, self.name)
            return lowered

        if not self._foreign:
            return executables.Source(self.name, identity, self.kind, kept)
        made = kept()
        content = hashlib.sha256(made.built.bytecode).hexdigest()
        return executables.Source(self.name, f"{identity} {content}", self.kind, lambda: made)

    def _failure(self, error: Exception) -> CompilationError:
        try:
            kept = f"The graph is in {artifacts.save_graph(self.module, self.name)}."
        except OSError as problem:
            kept = f"The graph could not be kept: {problem}."
        return CompilationError(
            f"{self.name}, a graph of {self.metrics.node_count} nodes ({self.kind}), could not be compiled: {error}\n"
            f"{kept} "
            "To run such graphs op by op, pass options={'fallback_execution': True} to torch.compile or set "
            "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION=0."
        )


def _located(reason: NeedsExact) -> Exception:
    """The reason with its node and the user's line."""
    return reason if reason.node is None else NodeFailed(reason.node, Unsupported(str(reason)))


def _with(views: dict[int, torch.Tensor], out: list[Any]) -> list[Any]:
    for k, view in views.items():
        out[k] = view
    return out


_CONVOLUTIONS = (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default)
_PRODUCTS = {"convolutions as products": True, "no convolution as products": False}


def _with_products(wanted: bool, lower: Callable[[], Lowered]) -> Lowered:
    with products(wanted):
        return lower()


_BUILT_IN = frozenset({"aten", "prims", "prim"})


def has_foreign_ops(module: fx.GraphModule) -> bool:
    """Whether there are operators whose meaning is in somebody's Python, which may change under the same name."""
    graphs = [m.graph for m in module.modules() if isinstance(m, fx.GraphModule)]
    return any(_namespace(n.target) not in _BUILT_IN for g in graphs for n in g.nodes)


def _namespace(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace
    if isinstance(target, torch._ops.OpOverloadPacket):
        return str(target._qualified_op_name).split("::")[0]
    return "aten"


def _has_subgraphs(graph: fx.Graph) -> bool:
    return any(isinstance(n.target, torch._ops.HigherOrderOperator) for n in graph.nodes)
