"""On a terminal, a compilation that takes long says so: one line on stderr that counts seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

AFTER: Final = 2.0  # seconds without a word
EVERY: Final = 1.0


@contextmanager
def shown(what: str) -> Iterator[None]:
    """Tells on stderr, when that is a terminal, how long the block has been at making `what`."""
    out = sys.stderr
    if out is None or out.closed or not out.isatty():
        yield
        return
    over = threading.Event()
    teller = threading.Thread(target=_tell, args=(what, out, over), name="neuron-progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def _tell(what: str, out: TextIO, over: threading.Event) -> None:
    began = time.monotonic()
    if over.wait(AFTER):
        return
    try:
        while not over.wait(EVERY):
            out.write(f"\rneuron: compiling {what}, {time.monotonic() - began:.0f} s")
            out.flush()
        out.write(f"\rneuron: compiled {what} in {time.monotonic() - began:.1f} s\n")
        out.flush()
    except (OSError, ValueError):
        return  # the terminal is gone: nobody to tell
