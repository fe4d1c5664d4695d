"""Dtypes, shapes and values that programs start from, and what decides whether a result is specified at all."""

from __future__ import annotations

from typing import Final

import torch

FLOATS: Final = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SIGNED: Final = (torch.int64, torch.int32, torch.int16, torch.int8)
COMPLEX: Final = (torch.complex64, torch.complex128)
UNSIGNED: Final = (torch.uint16, torch.uint32, torch.uint64)
INTEGERS: Final = (*SIGNED, torch.uint8, *UNSIGNED)
# How often each is drawn: small pools of what recurs keep the number of compiled programs low.
DTYPES: Final = (*FLOATS, torch.float32, torch.bool, torch.uint8, *SIGNED, torch.int64, torch.complex64)
RARE: Final = (*UNSIGNED, torch.complex128)

SHAPES: Final[tuple[tuple[int, ...], ...]] = (
    (3,), (2, 3), (), (3, 3), (3, 1), (1, 3), (4,), (2, 3, 2), (1,), (4, 6), (0,), (2, 0), (2, 1, 3), (1, 2, 3, 2),
    (12,),
)  # fmt: skip

_FLOAT_VALUES: Final = (
    "1.0", "0.0", "-1.0", "0.5", "2.0", "-2.5", "3.0", "-0.0", "0.1", "-0.75", "1.5", "7.0", "nan", "inf", "-inf",
    "1.0078125", "100.0", "-3000.0", "1e-3", "65504.0",
)  # fmt: skip
TAME: Final = ("1.0", "0.5", "-1.0", "2.0", "0.25", "-0.75", "1.5", "0.1")


def values_of(dtype: torch.dtype) -> tuple[str, ...]:
    """Literals of a dtype, from the simplest."""
    if dtype is torch.bool:
        return ("True", "False")
    if dtype.is_complex:
        return ("1.0", "0.0", "1j", "(1+2j)", "(-0.5+1j)", "(3-4j)", "-2.0", "complex(nan, 1.0)", "complex(inf, 0.0)")
    if dtype.is_floating_point:
        return _FLOAT_VALUES
    info = torch.iinfo(dtype)
    small = ("1", "0", "2", "3", "5", "7", "100", str(info.max), str(info.min), str(info.max - 1))
    return small if info.min == 0 else (*small, "-1", "-2", "-3", "-7", "-100")


def overlaps(t: torch.Tensor) -> bool:
    """Whether two elements are the same memory."""
    if t.numel() < 2:
        return False
    places = torch.zeros(1, dtype=torch.int64)
    for size, stride in zip(t.shape, t.stride(), strict=True):
        places = (places.unsqueeze(-1) + torch.arange(size) * stride).flatten()
    return len(set(places.tolist())) < t.numel()


def refused_in_place(t: torch.Tensor) -> bool:
    """torch refuses to write where a stride is 0; other overlaps it lets pass, in an order nobody promises."""
    return any(size > 1 and stride == 0 for size, stride in zip(t.shape, t.stride(), strict=True))


def subnormal(t: torch.Tensor) -> bool:
    """XLA flushes these to zero."""
    if t.is_complex():
        return subnormal(torch.view_as_real(t.resolve_conj()))
    if not t.is_floating_point() or t.dtype is torch.float16:  # float16 is computed as float32
        return False
    return bool(((t != 0) & (t.abs() < torch.finfo(t.dtype).tiny)).any())


def fits(t: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether conversion is specified: C++ leaves floats out of an integer's range, and NaN, to the compiler."""
    if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool or t.dtype is torch.bool:
        return True
    if t.is_complex():
        return fits(torch.view_as_real(t.resolve_conj())[..., 0], dtype)
    if not t.is_floating_point():
        return True
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    return all(v == v and abs(v) != float("inf") and low <= int(v) <= high for v in t.double().flatten().tolist())
