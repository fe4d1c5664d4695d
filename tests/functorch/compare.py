"""One function on CPU torch and on the device, its tensors moved there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.databases.both import equal, on

D = "neuron"


def same(function: Callable[..., Any], *given: Any) -> Any:
    """Asserts that both give the same, and returns what the device gave."""
    want = function(*on(given, "cpu"))
    got = function(*on(given, D))
    equal(got, want, getattr(function, "__name__", "the function"))
    return got
