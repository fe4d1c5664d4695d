"""Casts, copies and fills.

In eager mode a cast reaches the device as a copy (the core's `_copy_from` calls `aten::copy`), so
`_to_copy` itself is only used inside programs.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value


@lower("aten::copy", pointwise=True, reads_self=False)
def copy(self: Value, src: Scalar, non_blocking: bool = False) -> Value:
    """src cast and broadcast to self's dtype and shape."""
    return hlo.broadcast_to(hlo.convert(hlo.as_value(src), self.dtype), self.shape)


@lower("aten::_to_copy", bind=False)
def to_copy(self: Scalar, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    self = hlo.as_value(self)
    return hlo.convert(self, dtype or self.dtype)


@lower("prims::convert_element_type")
def convert_element_type(a: Value, dtype: torch.dtype) -> Value:
    return hlo.convert(a, dtype)


@lower("aten::clone", "prims::clone")  # not pointwise: memory_format changes the layout
def clone(self: Value, *, memory_format: Any = None) -> Value:
    return self.strong()


@lower("aten::fill.Scalar", "aten::fill.Tensor", "prims::fill", pointwise=True, reads_self=False)
def fill(self: Value, value: Scalar) -> Value:
    return hlo.full(self.shape, hlo.as_value(value), self.dtype)


@lower("aten::zero", pointwise=True, reads_self=False)
def zero(self: Value) -> Value:
    return hlo.zeros_like(self)
