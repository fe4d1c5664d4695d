"""A backward graph's executable is made in the background while the forward's is compiled and runs.

Its inputs are what the forward returns and the gradients of that, so how they will lie in memory is known as soon as
the forward is lowered. A guess that is wrong costs time only: the call that comes asks for what it needs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch
from torch import fx

from torch_neuronx.compiler.executables import Interface, Obtained
from torch_neuronx.dynamo import background
from torch_neuronx.lowering.graph import output_nodes
from torch_neuronx.lowering.spec import Call, Slot, TensorSpec
from torch_neuronx.lowering.views import Layout, block_fits


class Early:
    """Executables of one graph that are asked for before it is called."""

    def __init__(self) -> None:
        self._asked: dict[str, Future[Obtained]] = {}
        self._ever: set[str] = set()
        self._lock = threading.Lock()

    def ask(self, identity: str, make: Callable[[], Obtained]) -> None:
        """Asks for an executable once."""
        with self._lock:
            if identity not in self._ever:
                self._ever.add(identity)
                self._asked[identity] = background.submit(make)

    def take(self, identity: str) -> Obtained | None:
        """The executable, after its end if it is being made. None: not asked for, not begun yet, or it failed.

        What failed is met again, and raised, where the call itself compiles.
        """
        with self._lock:
            job = self._asked.pop(identity, None)
        if job is None or job.cancel():
            return None
        try:
            return job.result()
        except Exception:  # noqa: BLE001  # of any kind: the call meets it again and raises it
            return None


class _Unknown(Exception):
    """How an input will lie in memory does not follow from the forward graph."""


class _Memory:
    """The arguments of a call, described as csrc/dispatch/key.cpp does."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.params = 0
        self._numbers: dict[Any, int] = {}

    def tensor(self, memory: Any, slot: Slot, layout: Layout, offset: int) -> TensorSpec:
        number = self._numbers.setdefault(memory, len(self.slots))
        if number == len(self.slots):
            self.slots.append(Slot(slot.dtype, slot.numel))
        if offset == 0 and layout.numel == slot.numel and layout.dense:
            return TensorSpec(slot.dtype, layout, number)
        self.params += 1
        return TensorSpec(slot.dtype, layout, number, self.params - 1, block_fits(layout, slot.numel, offset))


def backward_call(forward: fx.GraphModule, call: Call, face: Interface, backward: fx.GraphModule) -> Call | None:
    """The call of `backward` that follows `call` of `forward`, whose interface is `face`; None if that cannot be known.

    Without the random state of a backward that draws numbers.
    """
    returned = {n.name: face.returns[k] for k, n in enumerate(output_nodes(forward.graph)) if isinstance(n, fx.Node)}
    memory, args = _Memory(), []
    try:
        for node in backward.graph.nodes:
            if node.op == "placeholder":
                args.append(_argument(memory, node, returned, call, face))
    except (_Unknown, LookupError):
        return None
    return Call("graph::backward", tuple(args), tuple(memory.slots), memory.params)


def _argument(memory: _Memory, node: fx.Node, returned: dict[str, Any], call: Call, face: Interface) -> TensorSpec:
    traced = node.meta.get("val")
    if not isinstance(traced, torch.Tensor) or traced.device.type != "neuron":
        raise _Unknown
    name = str(node.target)
    if name not in returned:
        if not name.startswith("tangents"):
            raise _Unknown
        layout = _fixed(traced)
        return memory.tensor(name, Slot(traced.dtype, layout.numel), layout, 0)
    match returned[name]:
        case ("result", index) if not _cut(face, index):
            made = face.results[index]
            return memory.tensor(index, Slot(made.dtype, made.storage_numel), made.layout, 0)
        case ("view", "result", index, sizes, strides, offset) if not _cut(face, index):
            made = face.results[index]
            return memory.tensor(index, Slot(made.dtype, made.storage_numel), Layout(sizes, strides), offset)
        case ("argument", position):
            number, slot = _whole(call, position)
            return memory.tensor(("slot", number), slot, call.args[position].layout, 0)
        case ("view", "argument", position, sizes, strides, offset):
            number, slot = _whole(call, position)
            return memory.tensor(("slot", number), slot, Layout(sizes, strides), offset)
    raise _Unknown


def _fixed(traced: torch.Tensor) -> Layout:
    layout = Layout(tuple(traced.shape), tuple(traced.stride()))
    if any(isinstance(n, torch.SymInt) for n in (*layout.sizes, *layout.strides)) or not layout.dense:
        raise _Unknown
    return layout


def _cut(face: Interface, index: int) -> bool:
    """Whether a result's size is known after the run only."""
    return any(r.kind in ("count", "columns") and r.slot == index for r in face.results)


def _whole(call: Call, position: int) -> tuple[int, Slot]:
    """The memory of an input that starts where its memory does."""
    spec = call.args[position]
    if not isinstance(spec, TensorSpec) or spec.offset is not None or spec.conj or spec.neg:
        raise _Unknown
    slot = call.slots[spec.slot]
    if slot.dtype != spec.dtype:
        raise _Unknown
    return spec.slot, slot


class Pair:
    """The forward and the backward graph of one joint graph, as AOTAutograd hands them over."""

    def __init__(self) -> None:
        self.begin: Callable[[fx.GraphModule, Call, Interface, int], None] | None = None  # of the backward graph

    def __reduce__(self) -> tuple[type[Pair], tuple[()]]:
        return Pair, ()  # both graphs are pickled together and meet in the same new pair

    def forward_known(self, forward: fx.GraphModule, call: Call, face: Interface, device: int) -> None:
        """The forward's program is there: what it returns is known."""
        if self.begin is not None:
            self.begin(forward, call, face, device)
