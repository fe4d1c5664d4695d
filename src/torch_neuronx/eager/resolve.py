"""From a key the core has not seen to an entry: executable, results, returns."""

from __future__ import annotations

import os
from typing import Any

import torch

from torch_neuronx.compiler import executables
from torch_neuronx.eager import growing
from torch_neuronx.eager.interrupts import held_back
from torch_neuronx.lowering.errors import Refused, ResizeNeeded, Unsupported
from torch_neuronx.lowering.spec import Call, ScalarSpec, Slot, TensorSpec
from torch_neuronx.lowering.table import overload
from torch_neuronx.lowering.views import Layout
from torch_neuronx.scalar_types import dtype_of, number_of

_KINDS = {"fresh": 0, "write": 1, "count": 2, "check": 3, "columns": 4}
_LAYOUTS = {
    0: torch.strided,
    1: torch.sparse_coo,
    2: torch.sparse_csr,
    4: torch.sparse_csc,
    5: torch.sparse_bsr,
    6: torch.sparse_bsc,
}
_FORMATS = {0: torch.contiguous_format, 1: torch.preserve_format, 2: torch.channels_last, 3: torch.channels_last_3d}


def resolve(
    name: str, args: tuple[Any, ...], slots: tuple[Any, ...], params: int, rng: int, device: int
) -> tuple[Any, ...]:
    """The entry of a call, in the form csrc/dispatch/python_call.cpp parses.

    Raises the meta kernel's errors; anything the lowering cannot do becomes a fallback entry.
    """
    try:
        with held_back():
            call = Call(
                name, _arguments(name, args), tuple(slot_of(s) for s in slots), params, rng if rng >= 0 else None
            )
            form = growing.look(call)
            shared = None if form is None else growing.serve(form, device)
            if shared is not None:
                return (*run_entry(shared[0]), shared[1])
            entry = executables.obtain(executables.source_of(call), device)
            if form is not None:
                growing.note(form, entry, device)
    except ResizeNeeded as needed:
        return "resize", tuple((p, lay.sizes, lay.strides) for p, lay in needed.resized.items())
    except Unsupported as reason:
        return "fallback", str(reason)
    except Refused as refused:
        raise RuntimeError(f"{name}: {refused}") from None
    except executables.LoweringFailed as failure:
        if os.environ.get("TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS", "0") not in ("", "0"):
            raise
        return "fallback", str(failure)
    return run_entry(entry)


def run_entry(obtained: executables.Obtained) -> tuple[Any, ...]:
    """The entry that runs an executable."""
    results = tuple(
        (_KINDS[r.kind], number_of(r.dtype), r.layout.sizes, r.layout.strides, r.storage_numel, r.slot)
        for r in obtained.interface.results
    )
    executable, face = obtained.executable, obtained.interface
    return "run", executable.execute, executable.handlers, results, face.returns, face.rng_blocks, face.checks


def slot_of(described: tuple[int, int, int]) -> Slot:
    number, numel, present = described
    return Slot(_dtype(number), numel, bool(present))


def _dtype(number: int) -> torch.dtype:
    try:
        return dtype_of(number)
    except TypeError as error:
        raise Unsupported(str(error)) from None


def _arguments(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    schema = overload(name)._schema
    return tuple(argument_of(x, str(a.real_type)) for x, a in zip(args, schema.arguments, strict=True))


def argument_of(x: Any, kind: str) -> Any:
    """One described argument; `kind` tells which integers are dtypes, layouts or memory formats."""
    if isinstance(x, tuple):
        if x[0] == "T":
            _, number, sizes, strides, slot, offset, *flags = x
            place = None if offset < 0 else offset
            return TensorSpec(_dtype(number), Layout(sizes, strides), slot, place, *(bool(f) for f in flags))
        if x[0] == "S":
            return ScalarSpec(_dtype(x[1]), x[2], bool(x[3]))
        return tuple(argument_of(v, "") for v in x[1])
    if isinstance(x, list):
        return tuple(x)
    if isinstance(x, torch.Generator):
        return None  # its state arrives as run-time parameters
    if isinstance(x, int) and not isinstance(x, bool):
        return decode_enum(x, kind)
    return x


def decode_enum(x: int, kind: str) -> Any:
    """ScalarType, Layout and MemoryFormat travel as integers on the dispatcher's stack."""
    if "ScalarType" in kind:
        return _dtype(x)
    if "Layout" in kind:
        return _LAYOUTS.get(x, torch.strided)
    if "MemoryFormat" in kind:
        return _FORMATS[x]
    return x
