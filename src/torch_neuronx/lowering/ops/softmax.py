"""Softmax and its relatives."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.axes import at_least_1d, axis
from torch_neuronx.lowering.dtypes import compute_dtype, is_integral
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value


def softmax_of(x: Value, dim: int) -> Value:
    """exp(x - max) over its sum; x in the compute dtype, dim not negative."""
    e = hlo.exponential(x - hlo.reduce_max(x, dim, True))
    return e / hlo.sum_(e, dim, True)


def log_softmax_of(x: Value, dim: int) -> Value:
    shifted = x - hlo.reduce_max(x, dim, True)
    return shifted - hlo.log(hlo.sum_(hlo.exponential(shifted), dim, True))


def _along(build: Callable[[Value, int], Value], self: Value, dim: int, result: torch.dtype) -> Value:
    x = at_least_1d(hlo.convert(self, compute_dtype(self.dtype)))
    return hlo.reshape(hlo.convert(build(x, axis(dim, self.ndim)), result), self.shape)


@lower("aten::_softmax")
def softmax(self: Value, dim: int, half_to_float: bool) -> Value:
    return _along(softmax_of, self, dim, torch.float32 if half_to_float else self.dtype)


@lower("aten::_log_softmax")
def log_softmax(self: Value, dim: int, half_to_float: bool) -> Value:
    return _along(log_softmax_of, self, dim, torch.float32 if half_to_float else self.dtype)


def _pair(grad_output: Value, output: Value) -> tuple[Value, Value]:
    inner = compute_dtype(grad_output.dtype)
    return at_least_1d(hlo.convert(grad_output, inner)), at_least_1d(hlo.convert(output, inner))


@lower("aten::_softmax_backward_data")
def softmax_backward(grad_output: Value, output: Value, dim: int, input_dtype: torch.dtype) -> Value:
    g, y = _pair(grad_output, output)
    weighted = g * y
    out = weighted - y * hlo.sum_(weighted, axis(dim, output.ndim), True)
    return hlo.reshape(hlo.convert(out, input_dtype), output.shape)


@lower("aten::_log_softmax_backward_data")
def log_softmax_backward(grad_output: Value, output: Value, dim: int, input_dtype: torch.dtype) -> Value:
    g, y = _pair(grad_output, output)
    out = g - hlo.exponential(y) * hlo.sum_(g, axis(dim, output.ndim), True)
    return hlo.reshape(hlo.convert(out, input_dtype), output.shape)


@lower("aten::_safe_softmax")
def safe_softmax(self: Value, dim: int, dtype: torch.dtype | None = None) -> Value:
    """Softmax with zeros where a whole row is -inf."""
    result = dtype or (torch.get_default_dtype() if is_integral(self.dtype) else self.dtype)
    x = hlo.convert(self, result)

    def build(v: Value, d: int) -> Value:
        masked = hlo.all_(hlo.eq(v, -math.inf), d, True)
        return hlo.select(masked, 0.0, softmax_of(v, d))

    return _along(build, x, dim, result)
