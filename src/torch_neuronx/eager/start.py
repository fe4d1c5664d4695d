"""Starting the device: the runtime, the table, and a kernel for every overload in it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cache

import torch

from torch_neuronx import _C
from torch_neuronx.eager import deterministic
from torch_neuronx.eager.interrupts import held_back
from torch_neuronx.lowering import table
from torch_neuronx.lowering.forms import Form, resolve
from torch_neuronx.lowering.table import Row, overload
from torch_neuronx.runtime.targets import runtime

_POINTWISE, _RANDOM, _HOST_INPUTS, _REGISTER, _OVERLAP, _DRAWN_ON_CPU, _NO_PART, _NOTHING = (1 << i for i in range(8))
_ALERTS = 1 << 10
_NUMBERS = frozenset({"number", "float", "Optional[number]", "Optional[float]", "List[number]"})
# These have kernels of their own in the core.
_OWN_KERNELS = frozenset({"aten::copy_", "aten::_copy_from", "aten::resize_", "aten::set_", "aten::record_stream"})
# These write one value, so they may write tensors whose elements share memory, as on the CPU.
_ONE_VALUE = frozenset({"fill_", "zero_", "masked_fill_", "index_fill_", "index_put_", "_index_put_impl_"})
# The CPU has no such op, so it cannot draw for it; dropout=0 draws nothing.
_NOT_ON_CPU = frozenset({"aten::_scaled_dot_product_fused_attention_overrideable"})
# What these write may share no memory with what they read. Elementwise ones may write the whole of what they read.
_NOTHING_SHARED = frozenset(
    {
        "cat",
        "gather",
        "index",
        "index_add",
        "index_copy",
        "index_fill",
        "index_put",
        "_index_put_impl",
        "index_reduce",
        "index_select",
        "kthvalue",
        "masked_select",
        "put",
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "take",
    }
)
_NO_PART_SHARED = frozenset({"masked_scatter"})
# Those of them that copy self into out= first, which may then be anything.
_COPIES_SELF = ("index_add", "index_copy", "index_fill", "index_reduce", "put", "scatter")
# Where torch refuses a number that does not fit a dtype (Fit in csrc/dispatch/operator.h): 1 self's, 2 the result's,
# 3 that of the arithmetic.
_FIT = {
    **dict.fromkeys(("fill", "masked_fill", "index_fill", "scatter", "constant_pad_nd", "threshold", "hardtanh"), 1),
    **dict.fromkeys(("add", "sub", "rsub", "clamp", "clamp_min", "clamp_max"), 2),
    **dict.fromkeys(("addcmul", "addcdiv", "lerp"), 3),
}
_lock = threading.RLock()


def start() -> None:
    """Brings the device up. Called by the core at the first device op; safe to call again."""
    with _lock, held_back():
        _start()


@cache
def _start() -> None:
    from torch_neuronx.eager import cpu_random  # loads jaxlib, which Ctrl-C must not leave half-loaded

    cpu_random.obey_environment()
    runtime()
    table.load()
    for name in list(table.rows):
        for form in _forms(name):
            _bind(form, table.rows[name])


def _forms(name: str) -> Iterator[Form]:
    """The row's own overload, and every in-place and out= overload derived from it."""
    yield resolve(name)
    namespace, _, rest = name.partition("::")
    base = rest.partition(".")[0]
    mutating = f"{base.removesuffix('_functional')}_"  # normal_functional -> normal_
    for other in (base, mutating, f"__i{base[2:]}" if base.startswith("__") else ""):
        packet = getattr(getattr(torch.ops, namespace), other, None) if other else None
        for variant in packet.overloads() if packet is not None else ():
            full = f"{namespace}::{other}" + ("" if variant == "default" else f".{variant}")
            if full not in table.rows:
                form = resolve(full)
                if form.derived and form.functional == name:
                    yield form


def _bind(form: Form, row: Row) -> None:
    from torch_neuronx.lowering.layout_rules import ELEMENTWISE_CONTIGUOUS  # loads jaxlib, as above

    op = overload(form.name)
    if op.namespace != "aten":
        return
    arguments = op._schema.arguments
    operands = tuple(i for i, a in enumerate(arguments) if str(a.type) in _NUMBERS and a.name not in row.attributes)
    unread = tuple(i for i in form.written if form.derived and (arguments[i].is_out or not row.reads_self))
    flags = (
        _POINTWISE * (row.pointwise and form.name not in ELEMENTWISE_CONTIGUOUS)
        | _RANDOM * row.random
        | _HOST_INPUTS * row.host_inputs
    )
    flags |= _OVERLAP * (op._schema.name.removeprefix("aten::") in _ONE_VALUE)
    flags |= _DRAWN_ON_CPU * (row.random and form.name not in _NOT_ON_CPU)
    base = form.functional.removeprefix("aten::").partition(".")[0]
    copies = base.startswith(_COPIES_SELF) and any(a.is_out for a in arguments)
    flags |= _NOTHING * (base in _NOTHING_SHARED and not copies)
    flags |= _NO_PART * (row.pointwise or base in _NO_PART_SHARED) | _FIT.get(base, 0) << 8
    flags |= _ALERTS * deterministic.may_alert(form.functional)
    if row.bind and form.name not in _OWN_KERNELS and _needs_kernel(op):
        flags |= _REGISTER
    _C.bind_operator(op._schema.name, op._schema.overload_name, flags, operands, unread)


def _needs_kernel(op: torch._ops.OpOverload) -> bool:
    """Composites with implicit autograd must stay composite, or their gradient is lost.

    Not those that are one kernel on the CPU (silu_backward, mish_backward): these have a gradient of their own.
    """
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return not has(op.name(), "CompositeImplicitAutograd") or has(op.name(), "CPU")
