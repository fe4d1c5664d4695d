"""The _foreach_ operators: an elementwise row applied to each element of the lists.

Lists compile one kernel per element (about 10 ms each), which is why the rows are marked listwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.decompose import emit_overload
from torch_neuronx.lowering.dtypes import compute_dtype, is_complex, is_integral, real_of
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.table import lower, overload
from torch_neuronx.lowering.value import Scalar, Value

UNARY: Final = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma",
    "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt",
    "tan", "tanh", "trunc",
)  # fmt: skip

# (foreach name, row for Tensor operands, row for Scalar operands)
BINARY: Final = (
    ("add", "aten::add.Tensor", "aten::add.Tensor"),
    ("sub", "aten::sub.Tensor", "aten::sub.Tensor"),
    ("mul", "aten::mul.Tensor", "aten::mul.Tensor"),
    ("div", "aten::div.Tensor", "aten::div.Tensor"),
    ("clamp_max", "aten::minimum", "aten::clamp_max"),
    ("clamp_min", "aten::maximum", "aten::clamp_min"),
    ("maximum", "aten::maximum", "aten::clamp_min"),
    ("minimum", "aten::minimum", "aten::clamp_max"),
    ("pow", "aten::pow.Tensor_Tensor", "aten::pow.Tensor_Scalar"),
)

Item = Callable[..., Value]
Lists = Sequence[Value]


def item(name: str, *args: Any, **named: Any) -> Value:
    """One element through the row (or decomposition) of a functional overload."""
    op = overload(name)
    for a in op._schema.arguments:
        if a.kwarg_only and a.name not in named:
            named[a.name] = a.default_value
    value: Value = emit_overload(name, op, list(args), named)
    return value


def _with_number(row: str, tensor_row: str) -> Item:
    """The scalar form; a run-time number goes to the tensor form where the row wants a constant."""

    def run(x: Value, scalar: Scalar) -> Value:
        constant_only = row == "aten::pow.Tensor_Scalar" and isinstance(scalar, Value)
        return item(tensor_row if constant_only else row, x, scalar)

    return run


def _map(run: Item, *lists: Sequence[Any], **named: Any) -> list[Value]:
    return [run(*xs, **named) for xs in zip(*lists, strict=True)]


def _unary(name: str) -> None:
    @lower(f"aten::_foreach_{name}", listwise=True)
    def emit(self: Sequence[Value]) -> list[Value]:
        return [item(f"aten::{name}", x) for x in self]


def _binary(name: str, tensor_row: str, scalar_row: str) -> None:
    prefix = f"aten::_foreach_{name}"
    with_number = _with_number(scalar_row, tensor_row)
    attributes = ["exponent"] if name == "pow" else []

    def with_list(self: Sequence[Value], other: Sequence[Value], **alpha: Scalar) -> list[Value]:
        return [item(tensor_row, a, b, **alpha) for a, b in zip(self, other, strict=True)]

    def with_scalar(self: Sequence[Value], scalar: Scalar) -> list[Value]:
        return [with_number(x, scalar) for x in self]

    def with_scalars(self: Sequence[Value], scalars: Sequence[Scalar]) -> list[Value]:
        return [with_number(x, s) for x, s in zip(self, scalars, strict=True)]

    lower(f"{prefix}.List", listwise=True)(with_list)
    lower(f"{prefix}.Scalar", attributes=attributes, listwise=True)(with_scalar)
    lower(f"{prefix}.ScalarList", attributes=attributes, listwise=True)(with_scalars)
    if name in ("add", "mul", "div"):

        @lower(f"{prefix}.Tensor", listwise=True)
        def with_tensor(self: Sequence[Value], other: Value, **alpha: Scalar) -> list[Value]:
            return [item(tensor_row, x, other, **alpha) for x in self]


for _name in UNARY:
    _unary(_name)
for _row in BINARY:
    _binary(*_row)


@lower("aten::_foreach_pow.ScalarAndTensor", listwise=True)
def pow_scalar_and_tensor(self: Scalar, exponent: Sequence[Value]) -> list[Value]:
    return [item("aten::pow.Scalar", self, x) for x in exponent]


def _ternary(name: str) -> None:
    """addcmul and addcdiv; torch unpacks a tensor of scalars itself, on the CPU."""
    row, prefix = f"aten::{name}", f"aten::_foreach_{name}"

    @lower(f"{prefix}.Scalar", listwise=True)
    def with_scalar(self: Lists, tensor1: Lists, tensor2: Lists, value: Scalar) -> list[Value]:
        return [item(row, *xs, value=value) for xs in zip(self, tensor1, tensor2, strict=True)]

    @lower(f"{prefix}.ScalarList", listwise=True)
    def with_scalars(self: Lists, tensor1: Lists, tensor2: Lists, scalars: Sequence[Scalar]) -> list[Value]:
        return [item(row, *xs, value=s) for *xs, s in zip(self, tensor1, tensor2, scalars, strict=True)]


_ternary("addcmul")
_ternary("addcdiv")


@lower("aten::_foreach_lerp.List", listwise=True)
def lerp_list(self: Sequence[Value], tensors1: Sequence[Value], weights: Sequence[Value]) -> list[Value]:
    return _map(lambda *xs: item("aten::lerp.Tensor", *xs), self, tensors1, weights)


@lower("aten::_foreach_lerp.Scalar", listwise=True)
def lerp_scalar(self: Sequence[Value], tensors1: Sequence[Value], weight: Scalar) -> list[Value]:
    return _map(lambda *xs: item("aten::lerp.Scalar", *xs, weight), self, tensors1)


@lower("aten::_foreach_lerp.ScalarList", listwise=True)
def lerp_scalar_list(self: Sequence[Value], tensors1: Sequence[Value], weight: Sequence[Scalar]) -> list[Value]:
    return _map(lambda *xs: item("aten::lerp.Scalar", *xs), self, tensors1, weight)


@lower("aten::_foreach_zero", listwise=True)
def zero(self: Sequence[Value]) -> list[Value]:
    return [hlo.zeros_like(x) for x in self]


@lower("aten::_foreach_copy", listwise=True)
def copy(self: Sequence[Value], src: Sequence[Value], non_blocking: bool) -> list[Value]:
    return [hlo.broadcast_to(hlo.convert(s, x.dtype), x.shape) for x, s in zip(self, src, strict=True)]


@lower("aten::_foreach_clone", listwise=True)
def clone(self: Sequence[Value], *, memory_format: torch.memory_format | None) -> list[Value]:
    return list(self)


@lower("aten::_foreach_mm", listwise=True)
def mm(self: Sequence[Value], mat2: Sequence[Value]) -> list[Value]:
    return _map(lambda a, b: item("aten::mm", a, b), self, mat2)


@lower("aten::_foreach_max", listwise=True)
def maximum_of_each(self: Sequence[Value]) -> list[Value]:
    if any(x.numel == 0 for x in self):
        raise Unsupported("the maximum of an empty tensor")
    return [hlo.reduce_max(x) for x in self]


def _power_sum(x: Value, order: float, dtype: torch.dtype | None) -> Value:
    """sum |x|**order."""
    if is_integral(x.dtype) and dtype is None:
        raise Unsupported("a norm of integers, which torch refuses")
    x = hlo.convert(x, dtype) if dtype else x
    result = real_of(x.dtype)
    x = hlo.convert(x, compute_dtype(x.dtype))
    if order == 2:
        return hlo.convert(hlo.sum_(_square(x) if is_complex(x.dtype) else x * x), result)
    a = hlo.abs_(x)
    if order == 0:
        a = hlo.convert(hlo.ne(a, 0), a.dtype)
    elif order != 1:
        a = hlo.power(a, float(order))
    return hlo.convert(hlo.sum_(a), result)


def _square(x: Value) -> Value:
    re, im = hlo.real(x), hlo.imag(x)
    return re * re + im * im


@lower("aten::_foreach_powsum.Scalar", attributes=["ord"], listwise=True)
def powsum(self: Sequence[Value], ord: float, dtype: torch.dtype | None) -> list[Value]:
    return [_power_sum(x, ord, dtype) for x in self]
