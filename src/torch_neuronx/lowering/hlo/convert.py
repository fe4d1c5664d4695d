"""Casts with torch's meaning, and bit casts."""

from __future__ import annotations

import torch
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx.lowering.dtypes import FLOAT8, INTEGER, complex_of, is_complex, real_of, tensor_type
from torch_neuronx.lowering.hlo.literal import full
from torch_neuronx.lowering.value import Value, static_dims


def _raw(x: Value, dtype: torch.dtype) -> Value:
    return Value(stablehlo.convert(tensor_type(x.shape, dtype), x.ssa), dtype, x.dims)


def real(x: Value) -> Value:
    return Value(stablehlo.real(x.ssa), real_of(x.dtype), x.dims) if is_complex(x.dtype) else x


def imag(x: Value) -> Value:
    return Value(stablehlo.imag(x.ssa), real_of(x.dtype), x.dims)


def complex_(re: Value, im: Value) -> Value:
    return Value(stablehlo.complex(re.ssa, im.ssa), complex_of(re.dtype), re.dims)


def convert(x: Value, dtype: torch.dtype) -> Value:
    """x.to(dtype) as CPU torch computes it; drops the weak mark.

    float -> narrow integer goes through int32/int64 and wraps, as the x86 kernels do; complex ->
    real takes the real part; anything -> bool tests against zero (NaN is True).
    """
    x = x.strong()
    if x.dtype == dtype:
        return x
    if dtype is torch.bool:
        return _nonzero(x)
    if is_complex(dtype):
        if is_complex(x.dtype):
            return _raw(x, dtype)
        part = convert(x, real_of(dtype))
        return complex_(part, full(part.shape, 0, part.dtype))
    if is_complex(x.dtype):
        return convert(real(x), dtype)
    if dtype in INTEGER and x.dtype.is_floating_point:
        return _float_to_integer(x, dtype)
    if dtype is torch.float8_e4m3fn and x.dtype is torch.float32:
        return _finite_float8(x)
    if FLOAT8 & {x.dtype, dtype} and torch.float32 not in (x.dtype, dtype):
        return convert(_raw(x, torch.float32), dtype)
    return _raw(x, dtype)


def _finite_float8(x: Value) -> Value:
    """torch saturates to float8_e4m3fn, infinities too; the engine makes NaN of what does not fit."""
    from torch_neuronx.lowering.hlo.elementwise import ge, le, select

    limit = torch.finfo(torch.float8_e4m3fn).max
    below = select(ge(x, limit), full(x.shape, limit, x.dtype), x)
    return _raw(select(le(below, -limit), full(x.shape, -limit, x.dtype), below), torch.float8_e4m3fn)


def _nonzero(x: Value) -> Value:
    from torch_neuronx.lowering.hlo.elementwise import ne

    return ne(x, full(x.shape, 0, x.dtype))


def _float_to_integer(x: Value, dtype: torch.dtype) -> Value:
    if x.dtype in FLOAT8 or x.dtype.itemsize < 4:
        x = _raw(x, torch.float32)
    if dtype in (torch.int64, torch.uint64):
        wide = _saturating(x, torch.int64)
        return wide if dtype is torch.int64 else _raw(wide, dtype)
    if dtype is torch.uint32:
        return _raw(_saturating(x, torch.int64), dtype)
    wide = _saturating(x, torch.int32)
    return wide if dtype is torch.int32 else _raw(wide, dtype)


def _saturating(x: Value, dtype: torch.dtype) -> Value:
    """cvttss2si's answer: the most negative integer for NaN and whatever does not fit."""
    from torch_neuronx.lowering.hlo.elementwise import and_, ge, lt, select

    limit = float(2 ** (torch.iinfo(dtype).bits - 1))
    fits = and_(ge(x, -limit), lt(x, limit))
    return select(fits, _raw(x, dtype), full(x.shape, torch.iinfo(dtype).min, dtype))


def bitcast(x: Value, dtype: torch.dtype) -> Value:
    """Reinterprets bits. A wider result consumes the last dimension, a narrower one appends it."""
    old, new = x.dtype.itemsize, dtype.itemsize
    shape = x.shape
    if old > new:
        shape = (*shape, old // new)
    elif old < new:
        shape = shape[:-1]
    return Value(stablehlo.bitcast_convert(tensor_type(shape, dtype), x.ssa), dtype, static_dims(shape))
