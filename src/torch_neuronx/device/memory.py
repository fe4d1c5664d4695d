"""How much device memory is in use. Counts are of what tensors hold; memory comes with the first value written."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from torch_neuronx.device import availability
from torch_neuronx.device.selection import Device, device_count, index_of

_fractions: dict[int, float] = {}


def memory_stats(device: Device = None) -> OrderedDict[str, int]:
    """Every counter, under the names torch.cuda.memory_stats() uses."""
    return OrderedDict(sorted(availability.core().memory_stats(index_of(device)).items()))


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """The same as dicts of dicts: stats["allocated_bytes"]["all"]["peak"]."""
    nested: dict[str, Any] = {}
    for path, value in memory_stats(device).items():
        *parents, leaf = path.split(".")
        level = nested
        for name in parents:
            level = level.setdefault(name, {})
        level[leaf] = value
    return nested


def _counter(name: str, device: Device) -> int:
    value: int = availability.core().memory_stats(index_of(device))[name]
    return value


def memory_allocated(device: Device = None) -> int:
    """Bytes tensors hold now."""
    return _counter("allocated_bytes.all.current", device)


def max_memory_allocated(device: Device = None) -> int:
    """The most bytes tensors held since the last `reset_peak_memory_stats`."""
    return _counter("allocated_bytes.all.peak", device)


def memory_reserved(device: Device = None) -> int:
    """Bytes taken from the device: what tensors hold, since freed memory goes back at once."""
    return _counter("reserved_bytes.all.current", device)


def max_memory_reserved(device: Device = None) -> int:
    """The most bytes reserved since the last `reset_peak_memory_stats`."""
    return _counter("reserved_bytes.all.peak", device)


def reset_peak_memory_stats(device: Device = None) -> None:
    """Makes the current figures the peak."""
    availability.core().reset_peak_memory_stats(index_of(device))


def reset_max_memory_allocated(device: Device = None) -> None:
    """The older name of `reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Sets the running totals (allocated, freed, out-of-memory errors) to zero."""
    availability.core().reset_accumulated_memory_stats(index_of(device))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """(free, total) bytes. The total is TORCH_NEURONX_HOST_MEMORY_LIMIT for each device, or the machine's memory."""
    free, total = availability.core().memory_info(index_of(device))
    return free, total


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Lets this process use only a share of a device's memory; beyond it torch.OutOfMemoryError is raised."""
    if not isinstance(fraction, float):
        raise TypeError(f"set_per_process_memory_fraction: expected a float, got {fraction!r}. Use a share like 0.5.")
    index = index_of(device)
    availability.core().set_memory_fraction(fraction, index)
    _fractions[index] = fraction


def get_per_process_memory_fraction(device: Device = None) -> float:
    """What `set_per_process_memory_fraction` set, 1.0 before."""
    return _fractions.get(index_of(device), 1.0)


def empty_cache() -> None:
    """Gives back what is kept for reuse: records of finished work. Tensors' memory is never kept."""
    if availability.reason() is None:
        import torch

        torch._C._accelerator_emptyCache()


def memory_snapshot() -> list[dict[str, Any]]:
    """One segment for each live buffer, in the form of torch.cuda.memory_snapshot()."""
    return [
        {
            "device": device,
            "address": address,
            "total_size": nbytes,
            "allocated_size": nbytes,
            "active_size": nbytes,
            "requested_size": nbytes,
            "stream": 0,
            "segment_type": "large" if nbytes >= 1 << 20 else "small",
            "blocks": [
                {
                    "address": address,
                    "size": nbytes,
                    "requested_size": nbytes,
                    "state": "active_allocated",
                    "written": written,
                }
            ],
        }
        for device, address, nbytes, written in availability.core().live_buffers()
    ]


_ROWS = (
    ("Allocated memory", "allocated_bytes", True),
    ("Active memory", "active_bytes", True),
    ("Requested memory", "requested_bytes", True),
    ("Reserved memory", "reserved_bytes", True),
    ("Allocations", "allocation", False),
)
_COLUMNS = ("current", "peak", "allocated", "freed")


def _readable(number: int, *, is_bytes: bool) -> str:
    if not is_bytes:
        return str(number)
    size = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.0f} TiB"


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """A table of `memory_stats` to read; `abbreviated` leaves the two pools out."""
    index = index_of(device)
    stats = memory_stats(index)
    pools = ("all",) if abbreviated else ("all", "small_pool", "large_pool")
    lines = [
        f"neuron:{index} memory, {stats['num_ooms']} out-of-memory errors, {device_count()} device(s) in the process",
        f"{'':28}" + "".join(f"{title:>14}" for title in ("current", "peak", "total allocated", "total freed")),
    ]
    for title, name, is_bytes in _ROWS:
        for pool in pools:
            cells = (_readable(stats[f"{name}.{pool}.{column}"], is_bytes=is_bytes) for column in _COLUMNS)
            label = title if pool == "all" else f"  {pool.replace('_', ' ')}"
            lines.append(f"{label:28}" + "".join(f"{cell:>17}" for cell in cells))
    return "\n".join(lines)
