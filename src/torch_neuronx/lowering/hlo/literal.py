"""Constants and iota."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from torch.utils._python_dispatch import _disable_current_modes

from torch_neuronx.lowering.dtypes import element_type, numpy_dtype, tensor_type
from torch_neuronx.lowering.value import NUMBER, Scalar, Value, number_dtype, static_dims


def _splat(x: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> ir.Attribute:
    kind = tensor_type(shape, dtype)
    if dtype.is_complex:
        array = np.broadcast_to(_complex_array(np.asarray(x), dtype), shape)
        return ir.DenseElementsAttr.get(np.ascontiguousarray(array), type=element_type(dtype), shape=list(shape))
    if dtype.is_floating_point:
        value = float(np.asarray(x).astype(np.float64))
        return ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(element_type(dtype), value))
    bits = int(x) if isinstance(x, (bool, int)) else _as_integer(x, dtype)
    if dtype is torch.bool:
        return ir.DenseElementsAttr.get_splat(kind, ir.BoolAttr.get(bool(x)))
    width = torch.iinfo(dtype).bits
    wrapped = bits & ((1 << width) - 1)
    if dtype.is_signed and wrapped >> (width - 1):
        wrapped -= 1 << width
    return ir.DenseElementsAttr.get_splat(kind, ir.Attribute.parse(f"{wrapped} : {element_type(dtype)}"))


def _as_integer(x: Any, dtype: torch.dtype) -> int:
    """As torch converts it; a graph that is being emitted does not see how."""
    with _disable_current_modes():
        return int(torch.tensor(x).to(dtype))


def _complex_array(array: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """In the form the program has it: complex32 as complex64 with both parts rounded to float16."""
    cast = np.array(array, numpy_dtype(dtype))
    if dtype is torch.complex32:
        cast.real, cast.imag = cast.real.astype(np.float16), cast.imag.astype(np.float16)
    return cast


def full(shape: tuple[int, ...] | list[int], x: Scalar, dtype: torch.dtype | None = None) -> Value:
    """A tensor of `shape` filled with a number, or with a rank-0 Value (cast to `dtype`)."""
    from torch_neuronx.lowering.hlo.convert import convert
    from torch_neuronx.lowering.hlo.shape import broadcast_to

    if isinstance(x, Value):
        return broadcast_to(convert(x.strong(), dtype or x.dtype), tuple(shape))
    kind = dtype or number_dtype(x)
    dims = static_dims(tuple(shape))
    return Value(stablehlo.constant(_splat(x, kind, tuple(shape))), kind, dims)


def constant(x: bool | int | float | complex, dtype: torch.dtype, *, weak: bool = False) -> Value:
    """A rank-0 constant."""
    value = full((), x, dtype)
    return Value(value.ssa, dtype, (), weak)


def as_value(x: Scalar) -> Value:
    """A Python number as a weak rank-0 Value of its own dtype; a Value unchanged."""
    return constant(x, number_dtype(x), weak=True) if isinstance(x, NUMBER) else x


def full_like(x: Value, fill: Scalar) -> Value:
    return full(x.shape, fill, x.dtype)


def zeros_like(x: Value) -> Value:
    return full(x.shape, 0, x.dtype)


def ones_like(x: Value) -> Value:
    return full(x.shape, 1, x.dtype)


def table(array: np.ndarray, dtype: torch.dtype) -> Value:
    """A constant tensor with the contents of a numpy array (keep it small: it lives in the program)."""
    data = np.ascontiguousarray(_complex_array(array, dtype) if dtype.is_complex else array.astype(numpy_dtype(dtype)))
    raw = data.view(np.uint8) if dtype is torch.bool else data  # this MLIR stores i1 as bytes
    attr = ir.DenseElementsAttr.get(raw, type=element_type(dtype), shape=list(data.shape))
    return Value(stablehlo.constant(attr), dtype, static_dims(data.shape))


def iota(shape: tuple[int, ...] | list[int], dim: int, dtype: torch.dtype = torch.int64) -> Value:
    """Index along `dim`, broadcast to `shape`."""
    return Value(stablehlo.iota(tensor_type(tuple(shape), dtype), dim), dtype, static_dims(tuple(shape)))
