"""Whether the neuron device can be used, and if not, why."""

from __future__ import annotations

from types import ModuleType

_reason: str | None = None


def refuse(reason: str) -> None:
    """Makes the device unavailable for the rest of the process."""
    global _reason
    _reason = reason


def reason() -> str | None:
    """Why the device cannot be used; None when it can."""
    return _reason


def core() -> ModuleType:
    """The C++ core; raises what keeps it away."""
    if _reason is not None:
        raise RuntimeError(f"the neuron device is not available: {_reason}")
    from torch_neuronx import _C

    return _C
