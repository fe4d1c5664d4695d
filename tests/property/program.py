"""A program: lines of Python that make and change tensors named t0, t1, ... on the device D."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any, Final

import torch

_TENSOR: Final = re.compile(r"\bt\d+\b")
_HEADER: Final = "import torch, torch_neuronx\nfrom math import inf, nan\n\nD = 'neuron'  # and 'cpu'\n"


@dataclass(frozen=True)
class Step:
    """One line.

    op         what it is about, for the count of ops covered.
    precision  how near the values must be: "exact", "equal" (but for zero's sign), "near" (the function's own error)
               or "sum" (rounding on the way).
    final      nothing is promised after it: the CPU found out half-way that it had to refuse.
    """

    code: str
    op: str
    precision: str = "exact"
    final: bool = False

    @property
    def tensors(self) -> list[str]:
        return sorted(set(_TENSOR.findall(self.code)))


@dataclass(frozen=True)
class Program:
    steps: tuple[Step, ...] = field(default=())

    def __str__(self) -> str:
        return _HEADER + "\n".join(step.code for step in self.steps) + "\n"

    @property
    def ops(self) -> set[str]:
        return {step.op for step in self.steps}


def namespace(device: str) -> dict[str, Any]:
    return {"torch": torch, "D": device, "inf": inf, "nan": nan}


def tensors_of(names: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {n: x for n, x in names.items() if isinstance(x, torch.Tensor) and _TENSOR.fullmatch(n)}


def run(code: str, names: dict[str, Any]) -> Exception | None:
    """The error the line raised."""
    try:
        exec(code, names)
    except Exception as error:  # noqa: BLE001  # whatever it is: its class is compared
        return error
    return None
