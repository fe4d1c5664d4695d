"""Whether the CPU takes an elementwise call's dtypes, asked of the CPU's own kernel.

Meta kernels do not say: they let `int_tensor.mul_(0.5)` and a complex relu pass. The kernel is run on tensors of one
element, once for each combination of op, dtypes and ranks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import torch

from torch_neuronx.lowering.dtypes import FLOAT8
from torch_neuronx.lowering.forms import resolve
from torch_neuronx.lowering.meta import number_like
from torch_neuronx.lowering.spec import Call, ScalarSpec, TensorSpec
from torch_neuronx.lowering.table import overload, rows

# Dtypes for which the CPU only lacks the kernel: here they are computed like their wider relation.
_WIDER: Final = {
    **dict.fromkeys((torch.float16, torch.bfloat16, *FLOAT8), torch.float32),
    **dict.fromkeys((torch.uint16, torch.uint32, torch.uint64), torch.uint8),
    torch.complex32: torch.complex64,
}
_ABOUT_SHAPES: Final = "output with shape"  # the stand-ins' shapes: the meta kernel names the call's own


def check_dtypes(call: Call) -> None:
    """Raises the CPU kernel's error when it refuses the dtypes of an elementwise call."""
    row = rows.get(resolve(call.name).functional)
    if row is not None and not row.random and (row.pointwise or row.name.startswith("aten::_foreach_")):
        error = _refusal(call.name, tuple(_described(x) for x in call.args))
        if error is not None:
            raise type(error)(f"{call.name}: {error}")


def _described(x: Any) -> Any:
    """All that decides about dtypes: sizes, strides and values do not."""
    if isinstance(x, TensorSpec):
        return ("tensor", x.dtype, len(x.layout.sizes))
    if isinstance(x, ScalarSpec):
        return ("scalar", x.dtype, x.weak)
    if isinstance(x, tuple):
        return ("list", tuple(_described(v) for v in x))
    return ("constant", type(x), None if isinstance(x, torch.Generator) else x)


@lru_cache(maxsize=4096)
def _refusal(name: str, described: tuple[Any, ...]) -> Exception | None:
    error = _run(name, described, {})
    if error is None or "Promotion for uint16" in str(error):
        return error
    return None if _run(name, described, _WIDER) is None else error


def _run(name: str, described: tuple[Any, ...], replaced: dict[torch.dtype, torch.dtype]) -> Exception | None:
    op = overload(name)
    arguments = op._schema.arguments
    try:
        values = [
            torch.tensor(v) if isinstance(v, (bool, int, float, complex)) and str(a.type) == "Tensor" else v
            for v, a in zip((_stand_in(x, replaced) for x in described), arguments, strict=True)
        ]
        positional = [v for v, a in zip(values, arguments, strict=True) if not a.kwarg_only]
        named = {a.name: v for v, a in zip(values, arguments, strict=True) if a.kwarg_only}
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            op(*positional, **named)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        return None if str(error).startswith(_ABOUT_SHAPES) else error
    return None


def _stand_in(described: Any, replaced: dict[torch.dtype, torch.dtype]) -> Any:
    kind, what, detail = described if len(described) == 3 else (*described, None)
    if kind == "tensor":
        return torch.ones((1,) * detail, dtype=replaced.get(what, what), device="cpu")
    if kind == "scalar":
        return number_like(what) if detail else torch.ones((), dtype=replaced.get(what, what), device="cpu")
    if kind == "list":
        return [_stand_in(x, replaced) for x in what]
    if what is torch.device:
        return torch.device("cpu")
    return replaced.get(detail, detail) if what is torch.dtype else detail
