"""Lowering one call: read its views, emit the op, lay out fresh results, write back the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from torch_neuronx.lowering import hlo, views
from torch_neuronx.lowering.decompose import bind_arguments, emit_overload
from torch_neuronx.lowering.dtypes import storage_dtype
from torch_neuronx.lowering.errors import SIZE_FROM_DATA, ResizeNeeded, Unsupported
from torch_neuronx.lowering.forms import Form, resolve
from torch_neuronx.lowering.iteration import closed_up
from torch_neuronx.lowering.module import Argument, Built, Program, build_module
from torch_neuronx.lowering.refusals.written import refuse_written
from torch_neuronx.lowering.spec import Call, Result, ScalarSpec, Slot, TensorSpec
from torch_neuronx.lowering.table import Writes, overload, rows
from torch_neuronx.lowering.value import Sized, Value
from torch_neuronx.lowering.views import Layout, contiguous_strides


@dataclass(frozen=True, slots=True)
class Meta:
    """What the meta kernel says about one returned tensor; dtype None: whatever was emitted."""

    dtype: torch.dtype | None
    layout: Layout


@dataclass(frozen=True, slots=True)
class Later:
    """No meta kernel: whatever was emitted, its contiguous layout put right by `rule`."""

    rule: Callable[[Layout], Layout]


@dataclass(frozen=True)
class Lowered:
    """A program for one call and how its results map to the op's returns.

    returns   one entry per schema return: ("result", i), ("argument", position), ("integer", n),
              ("view", "result" or "argument", i, sizes, strides, offset), None, or a list of them.
    """

    built: Built
    results: tuple[Result, ...]
    returns: tuple[Any, ...]


class Storages:
    """The current value of every slot while the call is emitted, in its dtype's storage form."""

    def __init__(self, slots: Sequence[Slot], arguments: list[Value], params: Value | None) -> None:
        present = iter(arguments)
        self.values = [next(present) if s.present else None for s in slots]
        self.slots = slots
        self.dtypes = [s.dtype for s in slots]  # what the values stand for
        self.params = params
        self.written: set[int] = set()

    @classmethod
    def of(cls, call: Call, program: Program, arguments: list[Value]) -> Storages:
        """Those of a call whose program was given `arguments`; its random state goes to `program`."""
        params = arguments.pop() if call.params else None
        storages = cls(call.slots, arguments, params)
        if call.rng is not None:
            program.rng_seed, program.rng_offset = storages.param(call.rng), storages.param(call.rng + 1)
        return storages

    def new_values(self, results: list[Result]) -> list[Value]:
        """The values of the written slots, which are entered in `results`."""
        for slot in sorted(self.written):
            results.append(Result("write", self.dtypes[slot], Layout((self.flat(slot).numel,), (1,)), slot))
        return [self.flat(slot) for slot in sorted(self.written)]

    def flat(self, slot: int) -> Value:
        value = self.values[slot]
        if value is None:  # reading memory nobody wrote
            value = hlo.full((self.slots[slot].numel,), 0, storage_dtype(self.slots[slot].dtype))
        return value

    def param(self, index: int) -> Value:
        assert self.params is not None
        return hlo.reshape(hlo.slice_dim(self.params, 0, index, index + 1), ())

    def read(self, spec: TensorSpec) -> Value:
        offset = None if spec.offset is None else self.param(spec.offset)
        flat = views.reinterpret(self.flat(spec.slot), storage_dtype(spec.dtype))
        stored = views.read(flat, spec.layout, offset, spec.fits)
        value = _lazy(hlo.from_storage(stored, spec.dtype), spec)
        return value if spec.layout.row_major else replace(value, row_major=False)

    def write(self, spec: TensorSpec, value: Value) -> None:
        shaped = _lazy(hlo.broadcast_to(hlo.convert(value, spec.dtype), spec.layout.sizes), spec)
        stored = hlo.to_storage(shaped)
        if spec.offset is None:
            flat = views.to_dense(stored, spec.layout)
            self.dtypes[spec.slot] = spec.dtype
        else:
            old = views.reinterpret(self.flat(spec.slot), stored.dtype)
            flat = views.write(old, spec.layout, self.param(spec.offset), spec.fits, stored)
            flat = views.reinterpret(flat, storage_dtype(self.dtypes[spec.slot]))
        self.values[spec.slot] = flat
        self.written.add(spec.slot)

    def scalar(self, spec: ScalarSpec) -> Value:
        word = self.param(spec.param)
        if spec.dtype.is_complex:
            re, im = (hlo.bitcast(w, torch.float64) for w in (word, self.param(spec.param + 1)))
            value = hlo.convert(hlo.complex_(re, im), spec.dtype)
        elif spec.dtype.is_floating_point:
            value = hlo.convert(hlo.bitcast(word, torch.float64), spec.dtype)
        else:
            value = hlo.convert(word, spec.dtype)
        return Value(value.ssa, value.dtype, (), spec.weak)


def _lazy(value: Value, spec: TensorSpec) -> Value:
    """What the stored value means through a lazy conjugation or negation, or the other way round."""
    if spec.conj:
        value = hlo.complex_(hlo.real(value), hlo.negate(hlo.imag(value)))
    return hlo.negate(value) if spec.neg else value


def _materialise(x: Any, storages: Storages) -> Any:
    if isinstance(x, TensorSpec):
        return storages.read(x)
    if isinstance(x, ScalarSpec):
        return storages.scalar(x)
    if isinstance(x, tuple):
        return [_materialise(v, storages) for v in x]
    return x


def lower_call(call: Call, metas: Sequence[Meta | Later | None]) -> Lowered:
    """Builds the program of a call. `metas` has one entry per fresh tensor it returns, in order.

    A None entry means torch has no meta kernel for the op: contiguous results of the emitted shape.
    """
    form = resolve(call.name)
    results: list[Result] = []
    returns: list[Any] = []

    def body(program: Program, arguments: list[Value]) -> list[Value]:
        storages = Storages.of(call, program, arguments)
        for part in _parts(call, form):
            fresh, written = _split(form, _emit(part, form, storages))
            values = _lay_out_fresh(fresh, list(metas), results, returns)
            if form.derived:
                _check_written(form, part, written, metas)
            for position, value in written:
                _write_argument(part.args[position], value, storages)
        if form.written and not form.returns_fresh:
            returns.extend(("argument", p) for p in form.written)
        return values + storages.new_values(results)

    return build(call, body, results, returns)


def build(
    call: Call, body: Callable[[Program, list[Value]], list[Value]], results: list[Result], returns: list[Any]
) -> Lowered:
    """The program of `body`, which appends to `results` and `returns` while it is emitted."""

    def donations() -> dict[int, int]:
        position = {s: i for i, s in enumerate(i for i, s in enumerate(call.slots) if s.present)}
        return {
            position[r.slot]: i
            for i, r in enumerate(results)
            if r.kind == "write"
            and r.slot in position
            and call.slots[r.slot].dtype == r.dtype
            and call.slots[r.slot].numel == r.layout.numel
        }

    arguments = [Argument((s.numel,), storage_dtype(s.dtype)) for s in call.slots if s.present]
    if call.params:
        arguments.append(Argument((call.params,), torch.int64))
    built = build_module(call.name.replace("::", "_").replace(".", "_"), arguments, body, donations)
    if built.checks:
        results.append(Result("check", torch.int32, Layout((), ())))
    return Lowered(built, tuple(results), tuple(returns))


def _parts(call: Call, form: Form) -> list[Call]:
    """A call on lists that writes one storage several times goes element by element: each sees the last one's value."""
    row = rows.get(form.functional)
    if row is None or not row.listwise or not form.derived:
        return [call]
    lists = [x for p in form.written if isinstance(x := call.args[p], tuple)]
    slots = [s.slot for x in lists for s in x]
    if len(set(slots)) == len(slots):
        return [call]
    count = len(lists[0])
    alike = [isinstance(x, tuple) and len(x) == count for x in call.args]
    return [
        replace(call, args=tuple(x[i : i + 1] if listed else x for x, listed in zip(call.args, alike, strict=True)))
        for i in range(count)
    ]


def _emit(call: Call, form: Form, storages: Storages) -> Any:
    functional = overload(form.functional)
    reads_self = form.functional not in rows or rows[form.functional].reads_self
    given = []
    for i, position in enumerate(form.arguments):
        x = call.args[position]
        if i == 0 and not reads_self and form.derived and isinstance(x, TensorSpec):
            given.append(hlo.full(x.layout.sizes, 0, x.dtype))
        else:
            given.append(_materialise(x, storages))
    positional, named = bind_arguments(functional, given, {})
    return emit_overload(form.functional, functional, positional, named)


def _split(form: Form, outputs: Any) -> tuple[list[Any], list[tuple[int, Any]]]:
    """(fresh returns, [(argument position, new value)])."""
    if isinstance(outputs, Writes):
        names = [a.name for a in overload(form.name)._schema.arguments]
        writes = [(names.index(n), v) for n, v in outputs.writes.items()]
        if form.derived:  # an out= form of an overload that writes arguments behind its schema's back
            return [], [*zip(form.written, outputs.returns, strict=True), *writes]
        return (list(outputs.returns) if form.returns_fresh else []), writes
    listed = _as_list(form.functional, outputs)
    if form.derived:
        return [], list(zip(form.written, listed, strict=True))
    if form.written:
        raise Unsupported(f"{form.name} writes its arguments but its row does not say which values")
    return listed, []


def _as_list(name: str, outputs: Any) -> list[Any]:
    """One entry per schema return; a Tensor[] return is one entry holding a list."""
    returns = overload(name)._schema.returns
    if len(returns) == 1:
        return [outputs]
    return list(outputs)


def _lay_out_fresh(
    fresh: Sequence[Any], metas: list[Meta | Later | None], results: list[Result], returns: list[Any]
) -> list[Value]:
    values: list[Value] = []

    def one(x: Any) -> Any:
        if x is None:
            return None
        if isinstance(x, (list, tuple)):
            return [one(v) for v in x]
        if isinstance(x, int):
            return ("integer", x)
        count = x.count if isinstance(x, Sized) else None
        value = x.value if isinstance(x, Sized) else x
        meta = metas.pop(0) if metas else None
        if not isinstance(meta, Meta) or count is not None:
            meta = _undescribed(value, meta)
        if value.shape != meta.layout.sizes:
            raise RuntimeError(f"emitted shape {value.shape}, the meta kernel says {meta.layout.sizes}")
        if meta.dtype not in (None, value.dtype):
            raise RuntimeError(f"emitted dtype {value.dtype}, the meta kernel says {meta.dtype}")
        index = len(results)
        results.append(Result("fresh", value.dtype, meta.layout))
        if count is not None and x.columns:
            values.append(_columns(value, count))
        else:
            values.append(views.to_storage(hlo.to_storage(value), meta.layout))
        if count is not None:
            results.append(Result("columns" if x.columns else "count", torch.int64, Layout((), ()), index))
            values.append(hlo.convert(count, torch.int64))
        return ("result", index)

    returns.extend(one(x) for x in fresh)
    return values


def _columns(value: Value, count: Value) -> Value:
    """The first `count` rows of a matrix, column by column. What a column has too much, the next one overwrites."""
    flat = hlo.full((value.numel,), 0, value.dtype)
    for c in range(value.shape[1]):
        column = hlo.reshape(hlo.slice_dim(value, 1, c, c + 1), (value.shape[0],))
        flat = hlo.dynamic_update_slice(flat, column, [count * c])
    return flat


def _undescribed(value: Value, meta: Meta | Later | None) -> Meta:
    """Contiguous, unless a rule says otherwise."""
    layout = Layout(value.shape, contiguous_strides(value.shape))
    if isinstance(meta, Later):
        return Meta(value.dtype, meta.rule(layout))
    return Meta((meta.dtype if meta else None) or value.dtype, layout)


def _check_written(
    form: Form, call: Call, written: Sequence[tuple[int, Any]], metas: Sequence[Meta | Later | None]
) -> None:
    """Raises for what torch refuses to write, and for all out= arguments that have to grow first."""
    grown: dict[int, Layout] = {}
    for i, (position, value) in enumerate(written):
        rule = metas[i] if i < len(metas) else None
        for spec, part in _written_parts(call.args[position], value):
            _check_dtype(form, call, spec, part)
            if part.shape == spec.layout.sizes:
                continue
            if overload(form.name)._schema.arguments[position].is_out:
                layout = Layout(part.shape, contiguous_strides(part.shape))
                ruled = rule.rule(layout) if isinstance(rule, Later) else layout
                grown[position] = ruled if ruled.dense else closed_up(ruled)
            elif hlo.broadcast_shapes(part.shape, spec.layout.sizes) != spec.layout.sizes:
                raise Unsupported(
                    f"a result of shape {part.shape} written in place to {spec.layout.sizes}, which torch refuses"
                )
    if grown:
        raise ResizeNeeded(grown)


def _written_parts(spec: Any, value: Any) -> Iterator[tuple[TensorSpec, Value]]:
    if isinstance(spec, tuple):
        for s, v in zip(spec, value, strict=True):
            yield from _written_parts(s, v)
    elif spec is not None and value is not None:
        yield spec, value


def _check_dtype(form: Form, call: Call, spec: TensorSpec, value: Value | Sized) -> None:
    result = value.value if isinstance(value, Sized) else value
    arguments = overload(form.name)._schema.arguments
    asked = next((x for x, a in zip(call.args, arguments, strict=True) if a.name == "dtype"), None)
    refuse_written(form.functional, result.dtype, spec.dtype, asked)
    if isinstance(value, Sized):
        raise Unsupported(SIZE_FROM_DATA)


def _write_argument(spec: Any, value: Any, storages: Storages) -> None:
    if isinstance(spec, tuple):
        for s, v in zip(spec, value, strict=True):
            _write_argument(s, v, storages)
    elif spec is not None:
        storages.write(spec, value.value if isinstance(value, Sized) else value)
