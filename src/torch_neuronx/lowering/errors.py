"""What a lowering may raise."""

from __future__ import annotations


class Unsupported(Exception):
    """This call has no native lowering; the reason is counted and the op runs on the CPU.

    Not a TypeError or NotImplementedError: Python swallows those inside binary operators.
    """


class Refused(RuntimeError):
    """The call itself is wrong: the caller gets this error, as torch raises it."""
