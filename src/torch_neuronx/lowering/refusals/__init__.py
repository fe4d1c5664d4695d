"""Calls that the CPU refuses and torch's meta kernels let pass."""

from __future__ import annotations

from typing import Final

from torch_neuronx.lowering.forms import resolve
from torch_neuronx.lowering.refusals import elementwise, index, network, reduce
from torch_neuronx.lowering.refusals.operands import Refusal
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


_CHECKS: Final[dict[str, Refusal]] = {
    **elementwise.CHECKS,
    **reduce.CHECKS,
    **index.CHECKS,
    **network.CHECKS,
    **dict.fromkeys(("randint.low", "randint.low_generator"), _range(0)),
    "random.from": _range(1),
}
