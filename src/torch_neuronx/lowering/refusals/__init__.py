"""Calls that the CPU refuses and torch's meta kernels let pass."""

from __future__ import annotations

from typing import Final

import torch

from torch_neuronx.lowering.dtypes import INTEGER
from torch_neuronx.lowering.forms import resolve
from torch_neuronx.lowering.refusals import elementwise, index, network, reduce
from torch_neuronx.lowering.refusals.operands import Refusal, argument, left_to_the_cpu
from torch_neuronx.lowering.refusals.reduce import in_range
from torch_neuronx.lowering.spec import Call, TensorSpec


def refuse(call: Call) -> None:
    """Raises torch's kind of error for a call whose arguments cannot go together."""
    functional = resolve(call.name).functional.removeprefix("aten::")
    check = _CHECKS.get(functional) or _CHECKS.get(functional.partition(".")[0])
    if check is not None:
        check(f"aten::{functional}", call)


def _drawn(low: int | None, high: int) -> Refusal:
    """A range that is not empty, whose integers the dtype holds; its bounds are the arguments at `low` and `high`."""

    def check(name: str, call: Call) -> None:
        first, end = 0 if low is None else call.args[low], call.args[high]
        if not isinstance(first, int) or not isinstance(end, int):
            return
        given = call.args[0].dtype if isinstance(call.args[0], TensorSpec) else torch.int64
        dtype = argument(call, "dtype") or given
        if first >= end:
            raise RuntimeError(f"{name}: expects 'from' to be less than 'to', but got from={first} >= to={end}")
        if dtype.is_complex:
            left_to_the_cpu(f"random integers as {dtype}")
        if dtype is torch.bool:
            least, most = 0, 1
        else:
            limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
            least, most = int(limits.min), int(limits.max)
        if first < least or end - 1 > most:
            raise RuntimeError(f"{name}: from={first} and to - 1={end - 1} must be in [{least}, {most}] of {dtype}")

    return check


def _permuted(name: str, call: Call) -> None:
    """The dtype tells the numbers apart."""
    out = argument(call, "out")
    dtype = out.dtype if isinstance(out, TensorSpec) else argument(call, "dtype") or torch.int64
    if dtype.is_floating_point:
        most = int(2 / torch.finfo(dtype).eps)
    else:
        most = torch.iinfo(dtype).max if dtype in INTEGER else -1
    if call.args[0] > most + 1:
        left_to_the_cpu(f"a permutation of {call.args[0]} numbers as {dtype}")


def _joined(name: str, call: Call) -> None:
    """There are no numbers among the tensors, and the dimension is there; what shape they have is looked at later."""
    shapes = [x.layout.sizes for x in call.args[0]]
    if () in shapes:
        raise RuntimeError(f"{name}: zero-dimensional tensor (at position {shapes.index(())}) cannot be concatenated")
    in_range(name, call.args[1], len(next((s for s in shapes if s != (0,)), (0,))))


def _stacked(name: str, call: Call) -> None:
    shapes = [list(x.layout.sizes) for x in call.args[0]]
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise RuntimeError(
                f"{name}: stack expects each tensor to be equal size, but got {shapes[0]} at entry 0 and {shape} at "
                f"entry {i}"
            )


_CHECKS: Final[dict[str, Refusal]] = {
    **elementwise.CHECKS,
    **reduce.CHECKS,
    **index.CHECKS,
    **network.CHECKS,
    "randint": _drawn(None, 0),
    **dict.fromkeys(("randint.low", "randint.low_generator"), _drawn(0, 1)),
    "randint_like": _drawn(None, 1),
    **dict.fromkeys(("randint_like.low_dtype", "randint_like.low_generator_dtype"), _drawn(1, 2)),
    "randperm": _permuted,
    "cat": _joined,
    "stack": _stacked,
    "random.from": _drawn(1, 2),
    "random.to": _drawn(None, 1),
}
