"""torch dtype <-> MLIR element type <-> numpy dtype."""

from __future__ import annotations

from functools import cache
from typing import Final

import ml_dtypes
import numpy as np
import torch
from jaxlib.mlir import ir

from torch_neuronx.lowering.errors import Unsupported

_MLIR: Final[dict[torch.dtype, str]] = {
    torch.bool: "i1",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "ui8",
    torch.uint16: "ui16",
    torch.uint32: "ui32",
    torch.uint64: "ui64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex32: "complex<f32>",  # StableHLO has no complex<f16>: both parts are kept rounded to float16
    torch.complex64: "complex<f32>",
    torch.complex128: "complex<f64>",
    torch.float8_e4m3fn: "f8E4M3FN",
    torch.float8_e5m2: "f8E5M2",
    torch.float8_e4m3fnuz: "f8E4M3FNUZ",
    torch.float8_e5m2fnuz: "f8E5M2FNUZ",
    torch.float8_e8m0fnu: "f8E8M0FNU",
}

_NUMPY: Final[dict[torch.dtype, np.dtype]] = {
    torch.bool: np.dtype(np.bool_),
    torch.int8: np.dtype(np.int8),
    torch.int16: np.dtype(np.int16),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
    torch.uint8: np.dtype(np.uint8),
    torch.uint16: np.dtype(np.uint16),
    torch.uint32: np.dtype(np.uint32),
    torch.uint64: np.dtype(np.uint64),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.complex32: np.dtype(np.complex64),
    torch.complex64: np.dtype(np.complex64),
    torch.complex128: np.dtype(np.complex128),
    torch.float8_e4m3fn: np.dtype(ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: np.dtype(ml_dtypes.float8_e5m2),
    torch.float8_e4m3fnuz: np.dtype(ml_dtypes.float8_e4m3fnuz),
    torch.float8_e5m2fnuz: np.dtype(ml_dtypes.float8_e5m2fnuz),
    torch.float8_e8m0fnu: np.dtype(ml_dtypes.float8_e8m0fnu),
}

FLOAT8: Final = frozenset(
    {
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2fnuz,
        torch.float8_e8m0fnu,
    }
)
HALVES: Final = frozenset({torch.float16, torch.bfloat16})
REDUCED: Final = frozenset({torch.float16, torch.bfloat16}) | FLOAT8
UNSIGNED: Final = frozenset({torch.uint8, torch.uint16, torch.uint32, torch.uint64})
INTEGER: Final = UNSIGNED | {torch.int8, torch.int16, torch.int32, torch.int64}
_REAL_OF: Final = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
_COMPLEX_OF: Final = {real: number for number, real in _REAL_OF.items()}


def element_type(dtype: torch.dtype) -> ir.Type:
    """The MLIR element type of a torch dtype, in the ambient MLIR context."""
    name = _MLIR.get(dtype)
    if name is None:
        raise Unsupported(f"dtype {dtype} has no StableHLO element type")
    return ir.Type.parse(name)


def storage_dtype(dtype: torch.dtype) -> torch.dtype:
    """What a storage's array holds: the dtype itself, or both halves of a complex32 in one uint32."""
    return torch.uint32 if dtype is torch.complex32 else dtype


def tensor_type(shape: tuple[int, ...] | list[int], dtype: torch.dtype) -> ir.RankedTensorType:
    return ir.RankedTensorType.get(list(shape), element_type(dtype))


def numpy_dtype(dtype: torch.dtype) -> np.dtype:
    try:
        return _NUMPY[dtype]
    except KeyError:
        raise Unsupported(f"dtype {dtype} has no array form on the device") from None


@cache
def supported() -> frozenset[torch.dtype]:
    return frozenset(_MLIR)


def is_complex(dtype: torch.dtype) -> bool:
    return dtype.is_complex


def is_integral(dtype: torch.dtype, include_bool: bool = True) -> bool:
    return dtype in INTEGER or (include_bool and dtype is torch.bool)


def real_of(dtype: torch.dtype) -> torch.dtype:
    """complex32 -> float16, complex64 -> float32, complex128 -> float64, everything else unchanged."""
    return _REAL_OF.get(dtype, dtype)


def complex_of(dtype: torch.dtype) -> torch.dtype:
    """float16 -> complex32, float32 -> complex64, float64 -> complex128; complex dtypes unchanged."""
    return dtype if dtype.is_complex else _COMPLEX_OF[dtype]


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype torch's CPU kernels accumulate in (at::opmath_type): float32 below 32 bits."""
    if dtype is torch.complex32:
        return torch.complex64
    return torch.float32 if dtype in REDUCED else dtype


def min_value(dtype: torch.dtype) -> int | float | bool:
    """Identity of max: -inf, the smallest integer, or False."""
    if dtype is torch.bool:
        return False
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def max_value(dtype: torch.dtype) -> int | float | bool:
    """Identity of min: +inf, the largest integer, or True."""
    if dtype is torch.bool:
        return True
    return float("inf") if dtype.is_floating_point else torch.iinfo(dtype).max
