"""Running an op on the CPU, counted with its reason, when it has no native form."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from torch_neuronx import _C
from torch_neuronx.debug import tracking
from torch_neuronx.eager.resolve import decode_enum
from torch_neuronx.lowering.decompose import bind_arguments
from torch_neuronx.lowering.errors import SIZE_FROM_DATA
from torch_neuronx.lowering.forms import Form
from torch_neuronx.lowering.forms import resolve as form_of
from torch_neuronx.lowering.table import overload, steps

_thread = threading.local()


def _stepping() -> list[str]:
    """The overloads this thread runs in steps: one that has no native form as a step either runs on the CPU."""
    if not hasattr(_thread, "stepping"):
        _thread.stepping = []
    return _thread.stepping


def run(name: str, args: tuple[Any, ...], reason: str) -> tuple[Any, ...]:
    """The op's returns as a tuple. Written arguments get their new values; fresh ones come back on the device."""
    op, form = overload(name), form_of(name)
    if (form.functional in steps or reason == SIZE_FROM_DATA) and name not in _stepping():
        return _as_tuple(_run_in_steps(form, args), len(op._schema.returns))
    tracking.refuse_or_count(name, reason, args)
    return on_cpu(name, args, torch.Tensor.cpu, _host_generator)


def on_cpu(
    name: str,
    args: tuple[Any, ...],
    copied: Callable[[torch.Tensor], torch.Tensor],
    generator: Callable[[torch.Generator], torch.Generator | None],
) -> tuple[Any, ...]:
    """Runs the op on what `copied` and `generator` make of its arguments; results and writes go to the device."""
    op, form = overload(name), form_of(name)
    device = _device(args)
    arguments = op._schema.arguments
    host = [_to_host(x, str(a.real_type), copied, generator) for x, a in zip(args, arguments, strict=True)]
    positional = [x for x, a in zip(host, arguments, strict=True) if not a.kwarg_only]
    named = {a.name: x for x, a in zip(host, arguments, strict=True) if a.kwarg_only}
    out = op(*positional, **named)
    for position in form.written:
        _write_back(args[position], host[position])
    returns = _as_tuple(out, len(op._schema.returns))
    if form.written and not form.returns_fresh:
        return tuple(args[p] for p in form.written)[: len(op._schema.returns)]
    return tuple(_to_device(r, device) for r in returns)


def _run_in_steps(form: Form, args: tuple[Any, ...]) -> Any:
    """On the device after all, as several calls; a derived form writes the functional one's result."""
    positional, named = bind_arguments(overload(form.functional), [args[i] for i in form.arguments], {})
    run = overload(form.functional) if form.derived else steps[form.functional]
    _stepping().append(form.name)
    try:
        result = run(*positional, **named)
    finally:
        _stepping().pop()
    if not form.written:
        return result
    targets = [args[p] for p in form.written]
    for target, value in zip(targets, _as_tuple(result, len(targets)), strict=True):
        if target.dtype != value.dtype:
            raise RuntimeError(f"{form.name}: self and result must have the same scalar type")
        _write_back(target, value)
    return targets[0] if len(targets) == 1 else tuple(targets)


def _device(args: tuple[Any, ...]) -> torch.device:
    for x in torch.utils._pytree.tree_leaves(args):
        if isinstance(x, torch.Tensor) and x.device.type == "neuron":
            return x.device
    for x in args:
        if isinstance(x, torch.device) and x.type == "neuron":
            return x
    return torch.device("neuron", torch.neuron.current_device())  # type: ignore[attr-defined]


def _to_host(
    x: Any,
    kind: str,
    copied: Callable[[torch.Tensor], torch.Tensor],
    generator: Callable[[torch.Generator], torch.Generator | None],
) -> Any:
    def one(v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            return copied(v) if v.device.type == "neuron" else v
        if isinstance(v, torch.device):
            return torch.device("cpu") if v.type == "neuron" else v
        if isinstance(v, torch.Generator):
            return generator(v)
        return v

    if isinstance(x, int) and not isinstance(x, bool):
        return decode_enum(x, kind)
    return tree_map(one, x)


def _host_generator(generator: torch.Generator) -> torch.Generator:
    """A CPU generator seeded from the device's state, which moves on."""
    seed = torch.randint(0, 2**62, (), generator=generator, device=generator.device).item()
    return torch.Generator().manual_seed(int(seed))


def _write_back(target: Any, value: Any) -> None:
    if isinstance(target, (list, tuple)):
        for t, v in zip(target, value, strict=True):
            _write_back(t, v)
    elif isinstance(target, torch.Tensor) and target.device.type == "neuron":
        if target.layout != torch.strided:
            _C.assign_sparse(target, value.to(target.device))
            return
        if target.shape != value.shape:
            torch.ops.aten._resize_output_.default(target, value.shape, target.device)  # with torch's warning
            target.as_strided_(value.shape, value.stride())
        target.copy_(value)


def _to_device(x: Any, device: torch.device) -> Any:
    def one(v: Any) -> Any:
        if not isinstance(v, torch.Tensor) or v.device.type != "cpu":
            return v
        if v.layout != torch.strided:
            return v.to(device)
        out = torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=device)
        return out.copy_(v)

    return tree_map(one, x)


def _as_tuple(out: Any, count: int) -> tuple[Any, ...]:
    if count == 0:
        return ()
    return (out,) if count == 1 else tuple(out)
