"""One call of an operator on sparse tensors: to its kernel here, or to the CPU, counted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from torch_neuronx.eager import host
from torch_neuronx.eager.resolve import decode_enum
from torch_neuronx.lowering.forms import Form
from torch_neuronx.lowering.forms import resolve as form_of
from torch_neuronx.lowering.table import overload
from torch_neuronx.sparse import table
from torch_neuronx.sparse.parts import COMPRESSED
from torch_neuronx.sparse.write import write


@dataclass(frozen=True, slots=True)
class Operation:
    """An overload for one family of layouts: its kernel, and whether that is the functional one's."""

    name: str
    form: Form
    kernel: table.Kernel | None
    derived: bool
    enums: tuple[tuple[int, str], ...]
    returns: int


def run(base: str, variant: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The returns of a call, as a tuple. Called by the core."""
    op = _operation(f"{base}.{variant}" if variant else base, _is_compressed(args))
    _check_devices(op.name, args)
    if op.kernel is None:
        return _on_host(op.name, args)
    decoded = list(args)
    for position, kind in op.enums:
        if decoded[position] is not None:
            decoded[position] = decode_enum(decoded[position], kind)
    if not op.derived:
        return _as_tuple(op.kernel(*decoded), op.returns)
    results = _as_tuple(op.kernel(*[decoded[i] for i in op.form.arguments]), len(op.form.written))
    for position, result in zip(op.form.written, results, strict=True):
        write(args[position], result)
    return tuple(args[p] for p in op.form.written)[: op.returns]


@cache
def _operation(name: str, compressed: bool) -> Operation:
    table.load()
    kernels = table.compressed if compressed else table.coo
    form, schema = form_of(name), overload(name)._schema
    derived = name not in kernels and form.derived
    kernel = kernels.get(form.functional if derived else name)
    kinds = ((i, str(a.real_type)) for i, a in enumerate(schema.arguments))
    enums = tuple((i, k) for i, k in kinds if any(e in k for e in ("ScalarType", "Layout", "MemoryFormat")))
    return Operation(name, form, kernel, derived, enums, len(schema.returns))


def _is_compressed(args: tuple[Any, ...]) -> bool:
    return any(isinstance(x, torch.Tensor) and x.layout in COMPRESSED for x in args)


def _check_devices(name: str, args: tuple[Any, ...]) -> None:
    """A CPU tensor may only be a number."""
    for x in torch.utils._pytree.tree_leaves(args):
        if isinstance(x, torch.Tensor) and x.device.type != "neuron" and x.dim() > 0:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, neuron and "
                f"{x.device}! ({name}, shape {list(x.shape)}). Move it with .to('neuron')."
            )


def _on_host(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    layouts = [x.layout for x in torch.utils._pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]
    key = "SparseCsrCPU" if any(x in COMPRESSED for x in layouts) else "SparseCPU"
    if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, key):
        shown = ", ".join(str(x).removeprefix("torch.") for x in layouts)
        raise NotImplementedError(
            f"{name}: called with tensors of layout {shown} on neuron, and PyTorch has no kernel of it for sparse "
            "tensors on the CPU either. Convert with .to_dense() first."
        )
    return host.run(name, args, "no native kernel for this sparse layout")


def _as_tuple(out: Any, count: int) -> tuple[Any, ...]:
    if count == 0:
        return ()
    return (out,) if count == 1 else tuple(out)
