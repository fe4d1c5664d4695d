"""Lowering one call of an overload for all sizes up to a bound, and for all strides of its inputs."""

from __future__ import annotations

import math
from typing import Any, Final

import sympy
import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.call import Lowered, Storages, build
from torch_neuronx.lowering.decompose import bind_arguments, emit_overload
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.module import Program
from torch_neuronx.lowering.padded import layout, rules, sizes
from torch_neuronx.lowering.padded.graph import dense
from torch_neuronx.lowering.padded.serves import Linear, Output, Serves
from torch_neuronx.lowering.padded.sizes import NeedsExact, Symbols
from torch_neuronx.lowering.spec import Call, Result, ScalarSpec, Slot, TensorSpec
from torch_neuronx.lowering.table import overload
from torch_neuronx.lowering.value import Size, Value
from torch_neuronx.lowering.views import Layout

_SIZE: Final = sympy.Symbol("n", integer=True, positive=True)


def lower_single(call: Call, serves: Serves) -> Lowered:
    """The program of every call that differs from `call` in one size and in the strides of its inputs.

    Results are dense, in arrays of their largest size. Raises Unsupported when there is no such program.
    """
    try:
        return _lower(call, serves)
    except NeedsExact as reason:
        raise Unsupported(str(reason)) from reason


def _lower(call: Call, serves: Serves) -> Lowered:
    slots = tuple(
        call.slots[x.slot] if x.tensor is None else Slot(call.slots[x.slot].dtype, x.capacity) for x in serves.inputs
    )
    padded = Call(call.name, call.args, slots, serves.params, call.rng)
    results: list[Result] = []
    returns: list[Any] = []

    def body(program: Program, arguments: list[Value]) -> list[Value]:
        storages = Storages.of(padded, program, arguments)
        varying = {} if serves.bound is None else {_SIZE: serves.bound}
        known = {} if serves.bound is None else {_SIZE: storages.param(serves.size)}
        with sizes.using(Symbols(varying, known)):
            given = _Reader(storages, serves).arguments(call)
            made: list[Value] = []
            expected = iter(serves.outputs)

            def one(x: Any) -> Any:
                return [one(v) for v in x] if isinstance(x, list) else _leave(x, next(expected), results, made)

            out = _emit(call, given, serves)
            listed = [out] if len(overload(call.name)._schema.returns) == 1 else list(out)
            returns.extend(one(list(x) if isinstance(x, tuple) else x) for x in listed)
        return made

    return build(padded, body, results, returns)


class _Reader:
    """The call's arguments as values of the program."""

    def __init__(self, storages: Storages, serves: Serves) -> None:
        self.storages, self.serves = storages, serves
        self.entering = {x.tensor: i for i, x in enumerate(serves.inputs) if x.tensor is not None}
        self.plain = {x.slot: i for i, x in enumerate(serves.inputs) if x.tensor is None}
        self.tensors = 0

    def arguments(self, call: Call) -> list[Any]:
        return [self._one(x) for x in call.args]

    def _one(self, x: Any) -> Any:
        if isinstance(x, TensorSpec):
            position = self.tensors
            self.tensors += 1
            if position in self.entering:
                return self._entering(self.entering[position])
            return self.storages.read(TensorSpec(x.dtype, x.layout, self.plain[x.slot]))
        if isinstance(x, ScalarSpec):
            return self.storages.scalar(x)
        return [self._one(v) for v in x] if _holds_tensors(x) else x

    def _entering(self, slot: int) -> Value:
        asked, flat = self.serves.inputs[slot], self.storages.flat(slot)
        flat = hlo.from_storage(flat, self.storages.dtypes[slot])
        dims = [sizes.dim_of(_expression(n)) for n in asked.sizes]
        shape = tuple(d.bound for d in dims)
        if asked.strides is None:
            return layout.with_dims(hlo.reshape(hlo.slice_dim(flat, 0, 0, math.prod(shape)), shape), dims)
        place = hlo.full(shape, 0, torch.int64)
        for d, at in enumerate(asked.strides):
            place = place + hlo.iota(shape, d, torch.int64) * hlo.broadcast_to(self.storages.param(at), shape)
        taken = hlo.take_rows(flat, hlo.clamp(0, hlo.flatten(place), asked.capacity - 1))
        return layout.with_dims(hlo.reshape(taken, shape), dims)


def _expression(n: Linear) -> Size:
    return n.slope * _SIZE + n.start if n.slope else n.start


def _holds_tensors(x: Any) -> bool:
    return isinstance(x, tuple) and any(isinstance(v, (TensorSpec, ScalarSpec)) for v in x)


def _emit(call: Call, given: list[Any], serves: Serves) -> Any:
    op = overload(call.name)
    arguments = op._schema.arguments
    positional = [
        list(x) if isinstance(x, tuple) else x for x, a in zip(given, arguments, strict=True) if not a.kwarg_only
    ]
    named = {a.name: x for x, a in zip(given, arguments, strict=True) if a.kwarg_only}
    if serves.bound is None:
        positional, named = bind_arguments(op, positional, named)
        return emit_overload(call.name, op, positional, named)
    rule = rules.find(op)
    if rule is None:
        raise NeedsExact(f"{call.name} has no rule for padded sizes")
    return rule(rules.node_of(op, positional, named, [_traced(x) for x in serves.outputs]))


def _traced(x: Output | Linear | None) -> Any:
    if isinstance(x, Output):
        return [_expression(n) for n in x.sizes]
    return _expression(x) if isinstance(x, Linear) else x


def _leave(x: Any, expected: Any, results: list[Result], made: list[Value]) -> Any:
    if x is None or expected is None:
        if x is not expected:
            raise NeedsExact("a result is there for some sizes only")
        return None
    if not isinstance(expected, Output):
        return ("integer", 0)  # whoever asked knows the sizes of the call
    if not isinstance(x, Value) or len(x.dims) != len(expected.sizes):
        raise NeedsExact("a result is not what other sizes give")
    wanted = [_expression(n) for n in expected.sizes]
    if not all(sizes.same(n, m) for n, m in zip(layout.sizes_of(x), wanted, strict=True)):
        raise NeedsExact(f"a result of sizes {layout.sizes_of(x)} where other sizes give {wanted}")
    stored = hlo.to_storage(dense(hlo.permute(x, list(expected.order))))
    results.append(Result("fresh", x.dtype, Layout(stored.shape, (1,))))
    made.append(stored)
    return ("result", len(made) - 1)
