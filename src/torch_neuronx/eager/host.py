"""Running an op on the CPU, counted with its reason, when it has no native form."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map

from torch_neuronx.debug import tracking
from torch_neuronx.eager.resolve import decode_enum
from torch_neuronx.lowering.decompose import bind_arguments
from torch_neuronx.lowering.forms import Form
from torch_neuronx.lowering.forms import resolve as form_of
from torch_neuronx.lowering.table import overload, steps


def run(name: str, args: tuple[Any, ...], reason: str) -> tuple[Any, ...]:
    """The op's returns as a tuple. Written arguments get their new values; fresh ones come back on the device."""
    op, form = overload(name), form_of(name)
    if form.functional in steps:
        return _as_tuple(_run_in_steps(form, args), len(op._schema.returns))
    tracking.refuse_or_count(name, reason, args)
    device = _device(args)
    arguments = op._schema.arguments
    host = [_to_host(x, str(a.real_type)) for x, a in zip(args, arguments, strict=True)]
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
    result = steps[form.functional](*positional, **named)
    for position in form.written:
        if args[position].dtype != result.dtype:
            raise RuntimeError(f"{form.name}: self and result must have the same scalar type")
        _write_back(args[position], result)
    return args[form.written[0]] if form.written else result


def _device(args: tuple[Any, ...]) -> torch.device:
    for x in torch.utils._pytree.tree_leaves(args):
        if isinstance(x, torch.Tensor) and x.device.type == "neuron":
            return x.device
    for x in args:
        if isinstance(x, torch.device) and x.type == "neuron":
            return x
    return torch.device("neuron", torch.neuron.current_device())  # type: ignore[attr-defined]


def _to_host(x: Any, kind: str) -> Any:
    def one(v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            return v.cpu() if v.device.type == "neuron" else v
        if isinstance(v, torch.device):
            return torch.device("cpu") if v.type == "neuron" else v
        if isinstance(v, torch.Generator):
            return _host_generator(v)
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
        if target.shape != value.shape:
            torch.ops.aten._resize_output_.default(target, value.shape, target.device)  # with torch's warning
        target.copy_(value)


def _to_device(x: Any, device: torch.device) -> Any:
    def one(v: Any) -> Any:
        if not isinstance(v, torch.Tensor) or v.device.type != "cpu":
            return v
        out = torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=device)
        return out.copy_(v)

    return tree_map(one, x)


def _as_tuple(out: Any, count: int) -> tuple[Any, ...]:
    if count == 0:
        return ()
    return (out,) if count == 1 else tuple(out)
