"""How a graph of the core asks for executables without keeping the one who answers alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

Resolver = Callable[..., tuple[Any, ...]]


def weakly(method: Resolver) -> Resolver:
    """The bound method, unless its object is gone.

    The core owns what it asks, and that the core's graph: a cycle that no garbage collector sees.
    """
    reference = weakref.WeakMethod(method)

    def resolve(*described: Any) -> tuple[Any, ...]:
        answer = reference()
        if answer is None:
            raise RuntimeError("a compiled graph was called after it was let go")
        return answer(*described)

    return resolve
