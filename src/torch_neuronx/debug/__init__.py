"""Looking inside: what fell back and why, what was compiled, what is alive."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch_neuronx.debug.tracking import FallbackForbidden, FallbackRecord, fallback_report

__all__ = ["FallbackForbidden", "FallbackRecord", "counters", "cpu_random", "fallback_report"]


@contextmanager
def cpu_random() -> Iterator[None]:
    """Inside, random ops on neuron give exactly the numbers that CPU torch gives for the same seed.

    Each runs on the CPU with the CPU's default generator and is counted as a fallback. For all threads, because
    backward passes draw in threads of their own. TORCH_NEURONX_RNG=cpu does it for the whole process.
    """
    from torch_neuronx import _C

    _C.hold_random_on_cpu(1)
    try:
        yield
    finally:
        _C.hold_random_on_cpu(-1)


def counters() -> dict[str, int]:
    """Compiles, executables loaded from disk, and live device buffers of this process."""
    from torch_neuronx import _C
    from torch_neuronx.compiler.executables import compile_counters

    return {**compile_counters(), "live_buffers": len(_C.live_buffers())}
