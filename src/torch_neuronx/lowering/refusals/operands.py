"""What a check sees of a call's arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.spec import Call, ScalarSpec, TensorSpec
from torch_neuronx.lowering.table import overload
from torch_neuronx.lowering.value import NUMBER, number_dtype

Refusal = Callable[[str, Call], None]


def short(name: str) -> str:
    """aten::amax.out -> amax"""
    return name.removeprefix("aten::").partition(".")[0]


def dtype_of(x: Any) -> torch.dtype | None:
    """Of a tensor or a number; None for anything else."""
    if isinstance(x, (TensorSpec, ScalarSpec)):
        return x.dtype
    return number_dtype(x) if isinstance(x, NUMBER) else None


def argument(call: Call, name: str) -> Any:
    """The argument of that name, or None."""
    for x, a in zip(call.args, overload(call.name)._schema.arguments, strict=True):
        if a.name == name:
            return x
    return None


def tensors(call: Call) -> Iterator[TensorSpec]:
    for x in call.args:
        yield from (v for v in (x if isinstance(x, tuple) else (x,)) if isinstance(v, TensorSpec))


def in_place(call: Call) -> bool:
    return short(call.name).endswith("_")


def left_to_the_cpu(why: str) -> None:
    """The op runs there and refuses in torch's own words."""
    raise Unsupported(f"{why}, which torch refuses")
