"""Higher-order operators inside a graph: branches and loops; the others run as torch composes them of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._C import DispatchKey

from torch_neuronx.lowering import hlo, philox
from torch_neuronx.lowering.decompose import EmitMode, EmitTensor, dispatch
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.module import Check, current, rng_state
from torch_neuronx.lowering.value import Value

if TYPE_CHECKING:
    from torch_neuronx.lowering.graph import Emitter

_UNROLLED = 4  # steps of a scan up to which no loop is made


def emit(emitter: Emitter, op: torch._ops.HigherOrderOperator, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Lowers one call of a higher-order operator."""
    handler = _HANDLERS.get(op.name())
    if handler is not None:
        return handler(emitter, *args, **kwargs)
    dense = op.py_kernels.get(DispatchKey.CompositeExplicitAutograd)
    if dense is None:
        raise Unsupported(f"the higher-order operator {op.name()} has no lowering")
    with EmitMode():
        return dense(*args, **kwargs)


def _run(emitter: Emitter, module: fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """A subgraph's outputs."""
    from torch_neuronx.lowering.graph import Emitter

    out = Emitter(module, emitter.symbols).run(inputs)
    return list(out) if isinstance(out, (list, tuple)) else [out]


@contextmanager
def _own_checks() -> Iterator[list[Check]]:
    """Collects the checks of a region, whose values are not to be seen outside it."""
    program = current()
    outer, program.checks = program.checks, []
    try:
        yield program.checks
    finally:
        program.checks = outer


def _value(x: Any) -> Value:
    if isinstance(x, EmitTensor):
        return x.value
    raise Unsupported(f"a branch or loop that returns a {type(x).__name__}")


def _cond(emitter: Emitter, pred: Any, on_true: Any, on_false: Any, operands: Sequence[Any] = ()) -> Any:
    if not isinstance(pred, EmitTensor):
        return tuple(_run(emitter, on_true if pred else on_false, operands))
    outer = current()
    made: list[list[Check]] = []

    def branch(module: fx.GraphModule) -> Callable[[], Sequence[Value]]:
        def build() -> Sequence[Value]:
            with _own_checks() as checks:
                values = [_value(x) for x in _run(emitter, module, operands)]
            made.append(list(checks))
            return values

        return build

    def checks_of(which: int) -> Sequence[Value]:
        yes = hlo.constant(True, torch.bool)
        return [c.ok if i == which else yes for i, group in enumerate(made) for c in group]

    flag = hlo.reshape(hlo.convert(pred.value, torch.bool), ())
    results = hlo.branches(flag, [branch(on_true), branch(on_false)], checks_of)
    listed = [c for group in made for c in group]
    count = len(results) - len(listed)
    for check, ok in zip(listed, results[count:], strict=True):
        outer.checks.append(Check(ok, check.error, check.message))
    return tuple(EmitTensor(v) for v in results[:count])


def _loop(
    carry: Sequence[Value],
    condition: Callable[..., Value],
    body: Callable[..., Sequence[Value]],
) -> list[Value]:
    """A while loop whose checks are those of all its iterations together."""
    program = current()
    drawn = program.rng_blocks
    found: list[Check] = []

    def checked(*values: Value) -> Sequence[Value]:
        *inner, held = values
        with _own_checks() as checks:
            out = list(body(*inner))
        found.extend(checks)
        for check in checks:
            held = hlo.and_(held, check.ok)
        return [*out, held]

    def going_on(*values: Value) -> Value:
        with _own_checks():
            return condition(*values[:-1])

    *results, held = hlo.while_loop([*carry, hlo.constant(True, torch.bool)], going_on, checked)
    if program.rng_blocks != drawn:
        raise Unsupported("random numbers inside a loop of a graph: how many there are is not known beforehand")
    if found:
        program.checks.append(Check(held, found[0].error, " or ".join(dict.fromkeys(c.message for c in found))))
    return results


def _while_loop(
    emitter: Emitter, condition: fx.GraphModule, body: fx.GraphModule, carried: Sequence[Any], more: Sequence[Any] = ()
) -> Any:
    if not all(isinstance(x, EmitTensor) for x in carried):
        raise Unsupported("a while_loop that carries a number; carry a 0-d tensor")

    def going_on(*values: Value) -> Value:
        (flag,) = _run(emitter, condition, [*map(EmitTensor, values), *more])
        return hlo.reshape(hlo.convert(_value(flag), torch.bool), ())

    def step(*values: Value) -> Sequence[Value]:
        out = [_value(x) for x in _run(emitter, body, [*map(EmitTensor, values), *more])]
        return [_like(new, old) for new, old in zip(out, values, strict=True)]

    return tuple(EmitTensor(v) for v in _loop([_value(x) for x in carried], going_on, step))


def _like(new: Value, old: Value) -> Value:
    if new.shape != old.shape or new.dtype != old.dtype:
        raise Unsupported(f"a loop that turns {old.dtype}{list(old.shape)} into {new.dtype}{list(new.shape)}")
    return new


def _scan(
    emitter: Emitter, combine: fx.GraphModule, init: Sequence[Any], xs: Sequence[Any], additional_inputs: Any = ()
) -> Any:
    """combine(*carry, *x, *additional) -> (*carry, *y); the y of all steps are stacked."""
    carry, rows = [_value(x) for x in init], [_value(x) for x in xs]
    steps = rows[0].shape[0]

    def step(state: Sequence[Value], row: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        out = _run(emitter, combine, [*map(EmitTensor, state), *map(EmitTensor, row), *additional_inputs])
        values = [_value(x) for x in out]
        state = [_like(n, o) for n, o in zip(values[: len(carry)], state, strict=True)]
        return list(state), values[len(carry) :]

    carry, stacked = _steps(carry, rows, steps, step)
    return [EmitTensor(v) for v in (*carry, *stacked)]


def _map(emitter: Emitter, function: fx.GraphModule, xs: Sequence[Any], more: Sequence[Any] = ()) -> Any:
    rows = [_value(x) for x in xs]

    def step(state: Sequence[Value], row: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        out = _run(emitter, function, [*map(EmitTensor, row), *more])
        return list(state), [_value(x) for x in out]

    return tuple(EmitTensor(v) for v in _steps([], rows, rows[0].shape[0], step)[1])


Step = Callable[[Sequence[Value], Sequence[Value]], tuple[list[Value], list[Value]]]


def _steps(carry: list[Value], rows: list[Value], steps: int, step: Step) -> tuple[list[Value], list[Value]]:
    """Runs `step` over the first dimension of `rows`; what it gives each time is stacked."""
    if not steps:
        raise Unsupported("a scan or map over nothing")
    first = [hlo.squeeze(hlo.slice_dim(r, 0, 0, 1), 0) for r in rows]
    carry, made = step(carry, first)  # tells the shapes of what is stacked
    parts = [[m] for m in made]
    if steps <= _UNROLLED:
        for i in range(1, steps):
            carry, made = step(carry, [hlo.squeeze(hlo.slice_dim(r, 0, i, i + 1), 0) for r in rows])
            for part, m in zip(parts, made, strict=True):
                part.append(m)
        return carry, [hlo.concatenate([hlo.unsqueeze(m, 0) for m in part], 0) for part in parts]
    buffers = [_put(hlo.full((steps, *m.shape), 0, m.dtype), m, hlo.constant(0, torch.int64)) for m in made]
    count = len(carry)

    def body(*values: Value) -> Sequence[Value]:
        i, *state = values
        row = [_row(r, i) for r in rows]
        new, out = step(state[:count], row)
        return [i + 1, *new, *(_put(b, m, i) for b, m in zip(state[count:], out, strict=True))]

    start = [hlo.constant(1, torch.int64), *carry, *buffers]
    _, *rest = _loop(start, lambda i, *_: hlo.lt(i, steps), body)
    return rest[:count], rest[count:]


def _row(x: Value, i: Value) -> Value:
    zeros = [hlo.constant(0, torch.int64)] * (x.ndim - 1)
    return hlo.reshape(hlo.dynamic_slice(x, [i, *zeros], [1, *x.shape[1:]]), x.shape[1:])


def _put(buffer: Value, row: Value, i: Value) -> Value:
    zeros = [hlo.constant(0, torch.int64)] * row.ndim
    return hlo.dynamic_update_slice(buffer, hlo.unsqueeze(row, 0), [i, *zeros])


def _save_random_state(emitter: Emitter, op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """(where the generator stands, op(...)): for an op that the backward graph will run again."""
    now = hlo.concatenate([hlo.reshape(v, (1,)) for v in (rng_state()[0], philox.offset_now())], 0)
    with EmitMode():
        return EmitTensor(now), dispatch(op, args, kwargs)


def _with_random_state(emitter: Emitter, state: Any, op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """op(...) with the numbers it had when _save_random_state ran it."""
    program, value = current(), _value(state)
    kept = program.rng_seed, program.rng_offset, program.rng_blocks
    program.rng_seed, program.rng_offset = (hlo.reshape(hlo.slice_dim(value, 0, i, i + 1), ()) for i in range(2))
    program.rng_blocks = 0
    try:
        with EmitMode():
            return dispatch(op, args, kwargs)
    finally:
        program.rng_seed, program.rng_offset, program.rng_blocks = kept


_HANDLERS: dict[str, Callable[..., Any]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
    "run_and_save_rng_state": _save_random_state,
    "run_with_rng_state": _with_random_state,
}
