"""Bitwise logic and shifts."""

from __future__ import annotations

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.promotion import binary, unary
from torch_neuronx.lowering.value import Value

for _name, _build in {"and": hlo.and_, "or": hlo.or_, "xor": hlo.xor}.items():
    binary(
        f"aten::bitwise_{_name}.Tensor",
        f"aten::bitwise_{_name}.Scalar",
        f"aten::bitwise_{_name}.Scalar_Tensor",
        f"prims::bitwise_{_name}",
    )(_build)

unary("aten::bitwise_not", "prims::bitwise_not")(hlo.not_)


def _bits(x: Value) -> int:
    return torch.iinfo(x.dtype).bits


def shift_left(a: Value, b: Value) -> Value:
    """A shift by a negative or too large amount leaves no bits."""
    valid = (b >= 0) & (b < _bits(a))
    return hlo.select(valid, hlo.shift_left(a, hlo.select(valid, b, 0)), 0)


def shift_right(a: Value, b: Value) -> Value:
    """Arithmetic for signed integers; out of range gives the sign everywhere."""
    top = _bits(a) - 1
    valid = (b >= 0) & (b <= top)
    if not a.dtype.is_signed:
        return hlo.select(valid, hlo.shift_right_logical(a, hlo.select(valid, b, 0)), 0)
    return hlo.shift_right_arithmetic(a, hlo.select(valid, b, top))


binary(
    "aten::bitwise_left_shift.Tensor",
    "aten::bitwise_left_shift.Tensor_Scalar",
    "aten::bitwise_left_shift.Scalar_Tensor",
    "aten::__lshift__.Tensor",
    "aten::__lshift__.Scalar",
    "prims::shift_left",
)(shift_left)
binary(
    "aten::bitwise_right_shift.Tensor",
    "aten::bitwise_right_shift.Tensor_Scalar",
    "aten::bitwise_right_shift.Scalar_Tensor",
    "aten::__rshift__.Tensor",
    "aten::__rshift__.Scalar",
    "prims::shift_right_arithmetic",
)(shift_right)
