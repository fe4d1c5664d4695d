"""Which operators on sparse tensors have a kernel here."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

Kernel = Callable[..., Any]
F = TypeVar("F", bound=Kernel)

coo: dict[str, Kernel] = {}
compressed: dict[str, Kernel] = {}


def kernel(*names: str, tables: tuple[dict[str, Kernel], ...] = (coo,)) -> Callable[[F], F]:
    """Registers a kernel for overloads such as "aten::mul.Tensor", which also serves their in-place and out= forms.

    It takes the schema's arguments by position, with enums decoded, and returns what the schema returns.
    """

    def register(run: F) -> F:
        for table in tables:
            for name in names:
                if name in table:
                    raise ValueError(f"{name} has two sparse kernels; keep one")
                table[name] = run
        return run

    return register


@cache
def load() -> None:
    """Imports every family of kernels."""
    package = importlib.import_module("torch_neuronx.sparse")
    for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(info.name)
