"""The lowering table: ATen overload -> how to emit it, and what the core must know to call it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch

Emit = Callable[..., Any]
F = TypeVar("F", bound=Emit)


@dataclass(frozen=True, slots=True)
class Row:
    """One functional overload.

    emit        takes the schema's arguments (Tensor -> Value, Tensor[] -> list, Scalar and float ->
                rank-0 weak Value unless listed in `attributes`, the rest as Python values) and
                returns a Value, a Sized, or a tuple/list of them in schema order.
    attributes  Scalar/float arguments whose value is part of the key and arrives as a Python number.
    pointwise   result i depends on element i of dense, equally laid out operands only: compiled for
                the element count instead of the shape.
    random      the op draws from its generator: `module.rng_state()` is available.
    host_inputs indices and lengths may live on the CPU, as on CUDA, and are moved.
    reads_self  False when an in-place form overwrites self without reading it (fill_, normal_, ...).
    bind        False for views and composites: used inside programs, never registered as a kernel.
    listwise    running consecutive parts of its Tensor[] and Scalar[] arguments one after the other gives
                the same results: the core may cut a long list, whose compile time grows with its length.
    """

    name: str
    emit: Emit
    attributes: frozenset[str] = frozenset()
    pointwise: bool = False
    random: bool = False
    host_inputs: bool = False
    reads_self: bool = True
    bind: bool = True
    listwise: bool = False


@dataclass(frozen=True, slots=True)
class Writes:
    """What a row returns for an overload that mutates arguments itself (fused optimizers, batch norm).

    `returns` are the fresh results in schema order; `writes` maps an argument's name to its new
    value (a list of values for a Tensor[] argument).
    """

    returns: tuple[Any, ...]
    writes: dict[str, Any]


rows: dict[str, Row] = {}
steps: dict[str, Callable[..., Any]] = {}
foreign: dict[str, Emit] = {}


def lower_foreign(*names: str) -> Callable[[F], F]:
    """Registers `emit` for operators of libraries that may be absent, whose Python cannot be traced.

    In graphs only: eager calls run the library's Python. `emit` takes what the schema says, as a Row's.
    """

    def register(emit: F) -> F:
        foreign.update(dict.fromkeys(names, emit))
        return emit

    return register


def in_steps(*names: str) -> Callable[[F], F]:
    """Registers how an overload runs as several calls on real tensors.

    Used when its row raises Unsupported because a size half-way depends on data: x[:, mask] is
    nonzero, a look at the count, then index. Everything still runs on the device.
    """

    def register(run: F) -> F:
        steps.update(dict.fromkeys(names, run))
        return run

    return register


def lower(
    *names: str,
    attributes: Iterable[str] = (),
    pointwise: bool = False,
    random: bool = False,
    host_inputs: bool = False,
    reads_self: bool = True,
    bind: bool = True,
    listwise: bool = False,
) -> Callable[[F], F]:
    """Registers `emit` for overloads such as "aten::add.Tensor" (or "aten::exp" for the default one)."""

    def register(emit: F) -> F:
        for name in names:
            if name in rows:
                raise ValueError(f"{name} has two rows in the lowering table; keep one")
            kernel = bind and not name.startswith("prims::")  # primitives only occur inside decompositions
            flags = (pointwise, random, host_inputs, reads_self, kernel, listwise)
            rows[name] = Row(name, emit, frozenset(attributes), *flags)
        return emit

    return register


@cache
def load() -> dict[str, Row]:
    """Imports every family under lowering/ops and returns the filled table."""
    package = importlib.import_module("torch_neuronx.lowering.ops")
    for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(info.name)
    return rows


def overload(name: str) -> torch._ops.OpOverload:
    """The OpOverload behind "aten::add.Tensor"."""
    namespace, _, rest = name.partition("::")
    base, _, variant = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), variant or "default")


def overload_name(op: torch._ops.OpOverload) -> str:
    schema = op._schema
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
