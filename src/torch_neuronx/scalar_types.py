"""torch.dtype <-> c10::ScalarType numbers, the form dtypes have at the C++ boundary."""

from __future__ import annotations

from typing import Final

import torch

# c10/core/ScalarType.h; quantised and sub-byte types are left out on purpose.
_NUMBERS: Final[dict[torch.dtype, int]] = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex32: 8,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.float8_e5m2: 23,
    torch.float8_e4m3fn: 24,
    torch.float8_e5m2fnuz: 25,
    torch.float8_e4m3fnuz: 26,
    torch.uint16: 27,
    torch.uint32: 28,
    torch.uint64: 29,
    torch.float8_e8m0fnu: 44,
}
_DTYPES: Final[dict[int, torch.dtype]] = {n: d for d, n in _NUMBERS.items()}


def number_of(dtype: torch.dtype) -> int:
    return _NUMBERS[dtype]


def dtype_of(number: int) -> torch.dtype:
    """The dtype; raises TypeError for one this backend has no use for."""
    try:
        return _DTYPES[number]
    except KeyError:
        raise TypeError(
            f"a tensor of c10::ScalarType {number} cannot be on the neuron device: it has no form for such elements. "
            "Keep it on the CPU, or convert it first, for example to float8_e4m3fn or uint8."
        ) from None
