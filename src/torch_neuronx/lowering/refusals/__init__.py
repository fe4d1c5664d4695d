"""Calls that the CPU refuses and torch's meta kernels let pass."""

from __future__ import annotations

from typing import Final

from torch_neuronx.lowering.forms import resolve
from torch_neuronx.lowering.refusals import elementwise, index, network, reduce
from torch_neuronx.lowering.refusals.operands import Refusal
from torch_neuronx.lowering.refusals.reduce import in_range
from torch_neuronx.lowering.spec import Call


def refuse(call: Call) -> None:
    """Raises torch's kind of error for a call whose arguments cannot go together."""
    functional = resolve(call.name).functional.removeprefix("aten::")
    check = _CHECKS.get(functional) or _CHECKS.get(functional.partition(".")[0])
    if check is not None:
        check(f"aten::{functional}", call)


def _range(low: int) -> Refusal:
    def check(name: str, call: Call) -> None:
        first, end = call.args[low], call.args[low + 1]
        if isinstance(first, int) and isinstance(end, int) and first >= end:
            raise RuntimeError(f"{name}: expects 'from' to be less than 'to', but got from={first} >= to={end}")

    return check


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
    **dict.fromkeys(("randint.low", "randint.low_generator"), _range(0)),
    "cat": _joined,
    "stack": _stacked,
    "random.from": _range(1),
}
