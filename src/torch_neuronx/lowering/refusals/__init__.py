"""Calls that the CPU refuses and torch's meta kernels let pass."""

from __future__ import annotations

from typing import Final

from torch_neuronx.lowering.forms import resolve
from torch_neuronx.lowering.refusals import elementwise, index, reduce
from torch_neuronx.lowering.refusals.operands import Refusal
from torch_neuronx.lowering.spec import Call, TensorSpec


def refuse(call: Call) -> None:
    """Raises torch's kind of error for a call whose arguments cannot go together."""
    functional = resolve(call.name).functional.removeprefix("aten::")
    check = _CHECKS.get(functional) or _CHECKS.get(functional.partition(".")[0])
    if check is not None:
        check(f"aten::{functional}", call)


def _one_dtype(name: str, call: Call) -> None:
    tensors = [x for x in call.args if isinstance(x, TensorSpec)]
    if len({t.dtype for t in tensors}) > 1:
        shown = ", ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.layout.sizes)}" for t in tensors)
        raise RuntimeError(
            f"{name}: expected all tensors to have the same dtype, but got {shown}. "
            "Convert them to one dtype with .to(dtype), or use torch.autocast."
        )


def _range(low: int) -> Refusal:
    def check(name: str, call: Call) -> None:
        first, end = call.args[low], call.args[low + 1]
        if isinstance(first, int) and isinstance(end, int) and first >= end:
            raise RuntimeError(f"{name}: expects 'from' to be less than 'to', but got from={first} >= to={end}")

    return check


_PRODUCTS: Final = ("mm", "bmm", "mv", "dot", "vdot", "addmm", "baddbmm", "addbmm", "addmv")
_CHECKS: Final[dict[str, Refusal]] = {
    **elementwise.CHECKS,
    **reduce.CHECKS,
    **index.CHECKS,
    **dict.fromkeys((*_PRODUCTS, "convolution", "convolution_overrideable", "linalg_cross"), _one_dtype),
    **dict.fromkeys(("randint.low", "randint.low_generator"), _range(0)),
    "random.from": _range(1),
}
