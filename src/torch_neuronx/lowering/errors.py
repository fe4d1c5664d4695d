"""What a lowering may raise."""

from __future__ import annotations


class Unsupported(Exception):
    """This call has no native lowering; the reason is counted and the op runs on the CPU.

    Not a TypeError or NotImplementedError: Python swallows those inside binary operators.
    """


class Refused(RuntimeError):
    """The call itself is wrong: the caller gets this error, as torch raises it."""


# The reason of an out= call whose result's size only the data shows: the op runs natively, then its result is copied.
SIZE_FROM_DATA = "the size of the result, and so of out=, depends on data"
