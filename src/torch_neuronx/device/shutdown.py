"""The end of the process: no deleter may touch Python objects once the interpreter is going away."""

from __future__ import annotations

import atexit

from torch_neuronx.device import availability


def at_exit() -> None:
    """Registers the last word; call once, after the core is loaded."""
    atexit.register(availability.core().shutdown)
