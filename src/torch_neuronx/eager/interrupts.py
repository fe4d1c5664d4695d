"""Ctrl-C while a program is made waits for the end: half-imported engines and half-left modes break later calls."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_back() -> Iterator[None]:
    """Delivers the first SIGINT of the block at its end; a second one at once, for whoever cannot wait."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[FrameType | None] = []

    def remember(number: int, frame: FrameType | None) -> None:
        if came:
            handler(number, frame)
        came.append(frame)

    try:
        signal.signal(signal.SIGINT, remember)
        yield
    finally:
        _install(handler)
        if came:
            handler(signal.SIGINT, came[0])


def _install(handler: Callable[[int, FrameType | None], object]) -> None:
    """signal.signal delivers what is pending before it changes anything: what that raises comes after the change."""
    try:
        signal.signal(signal.SIGINT, handler)
    except BaseException:
        _install(handler)
        raise
