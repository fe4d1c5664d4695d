"""Casts with torch's meaning, and bit casts."""

from __future__ import annotations

import torch
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx.lowering.dtypes import FLOAT8, INTEGER, complex_of, is_complex, real_of, tensor_type
from torch_neuronx.lowering.errors import Refused
from torch_neuronx.lowering.hlo.literal import full
from torch_neuronx.lowering.value import Value, static_dims


def _raw(x: Value, dtype: torch.dtype) -> Value:
    return Value(stablehlo.convert(tensor_type(x.shape, dtype), x.ssa), dtype, x.dims)


def _part(x: Value, part: ir.Value) -> Value:
    """A complex value's real or imaginary part; complex32's is a float16."""
    if x.dtype is torch.complex32:
        return _raw(Value(part, torch.float32, x.dims), torch.float16)
    return Value(part, real_of(x.dtype), x.dims)


def real(x: Value) -> Value:
    return _part(x, stablehlo.real(x.ssa)) if is_complex(x.dtype) else x


def imag(x: Value) -> Value:
    return _part(x, stablehlo.imag(x.ssa))


def complex_(re: Value, im: Value) -> Value:
    dtype = complex_of(re.dtype)
    if dtype is torch.complex32:
        re, im = _raw(re, torch.float32), _raw(im, torch.float32)
    return Value(stablehlo.complex(re.ssa, im.ssa), dtype, re.dims)


def convert(x: Value, dtype: torch.dtype) -> Value:
    """x.to(dtype) as CPU torch computes it; drops the weak mark.

    float -> narrow integer goes through int32/int64 and wraps, as the x86 kernels do; complex ->
    real takes the real part, except of a number, which has to fit; anything -> bool tests against
    zero (NaN is True).
    """
    if x.weak and is_complex(x.dtype) and not is_complex(dtype) and dtype is not torch.bool:
        raise Refused(
            f"value cannot be converted to type {str(dtype).removeprefix('torch.')} without overflow: it is complex. "
            "Give a real number, or make the tensor complex."
        )
    x = x.strong()
    if x.dtype == dtype:
        return x
    if dtype is torch.bool:
        return _nonzero(x)
    if is_complex(dtype):
        if is_complex(x.dtype):
            return _complex_to_complex(x, dtype)
        part = convert(x, real_of(dtype))
        return complex_(part, full(part.shape, 0, part.dtype))
    if is_complex(x.dtype):
        return convert(real(x), dtype)
    if dtype in INTEGER and x.dtype.is_floating_point:
        return _float_to_integer(x, dtype)
    if dtype is torch.float8_e4m3fn and x.dtype is torch.float32:
        return _finite_float8(x)
    if x.dtype is torch.bool and dtype.is_floating_point:
        return _truth_value(x, dtype)
    if FLOAT8 & {x.dtype, dtype} and torch.float32 not in (x.dtype, dtype):
        return convert(_raw(x, torch.float32), dtype)
    return _raw(x, dtype)


def _complex_to_complex(x: Value, dtype: torch.dtype) -> Value:
    """complex32 is a rounded complex64 here: reading it costs nothing, making it rounds both parts."""
    if x.dtype is torch.complex32:
        return convert(Value(x.ssa, torch.complex64, x.dims), dtype)
    if dtype is torch.complex32:
        single = convert(x, torch.complex64)
        return complex_(*(convert(part, torch.float16) for part in (real(single), imag(single))))
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


def _truth_value(x: Value, dtype: torch.dtype) -> Value:
    """By way of a choice: the engine takes a product with a converted one for a choice, but False * nan is nan."""
    from torch_neuronx.lowering.hlo.elementwise import select

    return select(x, full(x.shape, 1, dtype), full(x.shape, 0, dtype))


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


def to_storage(x: Value) -> Value:
    """The form in which a storage holds x: both halves of a complex32 in one uint32, the real part below."""
    if x.dtype is not torch.complex32:
        return x
    low, high = (_raw(bitcast(part, torch.uint16), torch.uint32) for part in (real(x), imag(x)))
    shift = full(x.shape, 16, torch.uint32)
    ssa = stablehlo.or_(low.ssa, stablehlo.shift_left(high.ssa, shift.ssa))
    return Value(ssa, torch.uint32, x.dims)


def from_storage(x: Value, dtype: torch.dtype) -> Value:
    """The value of `dtype` that a storage holds as x."""
    if dtype is not torch.complex32:
        return x
    high = stablehlo.shift_right_logical(x.ssa, full(x.shape, 16, torch.uint32).ssa)
    words = x, Value(high, torch.uint32, x.dims)
    return complex_(*(bitcast(_raw(w, torch.uint16), torch.float16) for w in words))
