"""Looking inside: what fell back and why, what was compiled, what is alive."""

from torch_neuronx.debug.tracking import FallbackForbidden, FallbackRecord, fallback_report

__all__ = ["FallbackForbidden", "FallbackRecord", "counters", "fallback_report"]


def counters() -> dict[str, int]:
    """Compiles, executables loaded from disk, and live device buffers of this process."""
    from torch_neuronx import _C
    from torch_neuronx.compiler.executables import compile_counters

    return {**compile_counters(), "live_buffers": len(_C.live_buffers())}
