"""What the C++ core calls: host memory in, host memory out, and errors in words."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import torch

from torch_neuronx.lowering.dtypes import numpy_dtype, storage_dtype
from torch_neuronx.runtime.targets import runtime
from torch_neuronx.scalar_types import dtype_of

_runtime: Final = runtime()
host_visible: Final = _runtime.capabilities.host_visible


@cache
def _array_dtype(dtype: torch.dtype) -> np.dtype:
    return numpy_dtype(storage_dtype(dtype))


def from_host(data: memoryview, number: int, numel: int, device: int) -> Any:
    """A device array with a copy of `numel` elements; `number` is torch's ScalarType."""
    dtype = dtype_of(number)
    kind = _array_dtype(dtype)
    array = np.frombuffer(data, kind, numel) if numel else np.empty(0, kind)
    return _runtime.put(array, dtype, device)


def zeros(number: int, numel: int, device: int) -> Any:
    dtype = dtype_of(number)
    return _runtime.put(np.zeros(numel, _array_dtype(dtype)), dtype, device)


def host_copy(array: Any) -> int:
    """The address of a host copy that lives as long as the array (targets without visible memory)."""
    return _runtime.host_copy(array)


def execution_error(op: str, error: BaseException | None) -> BaseException:
    """The exception a failed launch raises: the op's name in front, out of memory as torch's class."""
    text = str(error)
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return error
    if "RESOURCE_EXHAUSTED" in text or isinstance(error, MemoryError):
        return torch.OutOfMemoryError(
            f"{op}: the neuron device ran out of memory ({text}). Free tensors you no longer need, use smaller "
            "batches, or raise TORCH_NEURONX_HOST_MEMORY_LIMIT."
        )
    return RuntimeError(f"{op}: the neuron device could not run it ({text})")
