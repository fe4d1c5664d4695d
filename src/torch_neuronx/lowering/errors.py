"""What a lowering may raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_neuronx.lowering.views import Layout


class Unsupported(Exception):
    """This call has no native lowering; the reason is counted and the op runs on the CPU.

    Not a TypeError or NotImplementedError: Python swallows those inside binary operators.
    """


class Refused(RuntimeError):
    """The call itself is wrong: the caller gets this error, as torch raises it."""


class ResizeNeeded(Exception):
    """out= arguments (by position) must take new layouts before the call can be lowered."""

    def __init__(self, resized: dict[int, Layout]) -> None:
        super().__init__(f"out= arguments {sorted(resized)} change shape")
        self.resized = resized


# The reason of an out= call whose result's size only the data shows: the op runs natively, then its result is copied.
SIZE_FROM_DATA = "the size of the result, and so of out=, depends on data"
