"""In-place and out= forms are derived: the functional row plus what it is written to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from torch_neuronx.lowering.table import overload, overload_name, rows


@dataclass(frozen=True, slots=True)
class Form:
    """How an overload maps to the functional one that is lowered.

    functional   its name; equal to `name` for a functional overload.
    arguments    for each functional argument, the position in this overload's schema.
    written      positions of the arguments this overload writes; for a derived form, in the order
                 of the functional returns they take.
    derived      False when the row itself says what it writes (table.Writes).
    returns_fresh  whether the schema's returns are new tensors rather than the written arguments.
    """

    name: str
    functional: str
    arguments: tuple[int, ...]
    written: tuple[int, ...]
    derived: bool
    returns_fresh: bool


def _writes(argument: torch.Argument) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _signature(schema: torch.FunctionSchema) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]


def _functional_twin(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    schema = op._schema
    namespace, _, base = schema.name.partition("::")
    outs = any(a.is_out for a in schema.arguments)
    if outs:
        bases = [base]
    elif base.endswith("_") and not base.endswith("__"):
        bases = [base[:-1], f"{base[:-1]}_functional"]  # normal_ -> normal_functional
    elif base.startswith("__i") and base.endswith("__"):  # __iand__ -> __and__
        bases = [f"__{base[3:]}"]
    else:
        return None
    wanted = _signature(schema)
    for candidate in bases:
        packet = getattr(getattr(torch.ops, namespace), candidate, None)
        if packet is None:
            continue
        for name in packet.overloads():
            twin = getattr(packet, name)
            if not any(_writes(a) for a in twin._schema.arguments) and _signature(twin._schema) == wanted:
                return twin
    return None


@cache
def resolve(name: str) -> Form:
    """The form of an overload."""
    schema = overload(name)._schema
    written = tuple(i for i, a in enumerate(schema.arguments) if _writes(a))
    everything = tuple(range(len(schema.arguments)))
    returns_fresh = any(r.alias_info is None for r in schema.returns)
    if not written:
        return Form(name, name, everything, (), False, True)
    twin = None if name in rows else _functional_twin(overload(name))
    if twin is None:
        return Form(name, name, everything, written, False, returns_fresh)
    kept = tuple(i for i in everything if not schema.arguments[i].is_out)
    return Form(name, overload_name(twin), kept, written, True, False)
