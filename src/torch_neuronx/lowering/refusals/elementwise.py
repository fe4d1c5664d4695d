"""Dtypes that elementwise ops refuse."""

from __future__ import annotations

from typing import Final

import torch

from torch_neuronx.lowering.dtypes import INTEGER, is_integral
from torch_neuronx.lowering.refusals.operands import Refusal, argument, dtype_of, in_place, left_to_the_cpu, short
from torch_neuronx.lowering.spec import Call, TensorSpec


def _self_never(*dtypes: torch.dtype, only_in_place: bool = False) -> Refusal:
    def check(name: str, call: Call) -> None:
        if dtype_of(call.args[0]) in dtypes and (in_place(call) or not only_in_place):
            left_to_the_cpu(f"{short(name)} of {dtype_of(call.args[0])}")

    return check


COMPLEX: Final = (torch.complex64, torch.complex128)


def integer_power(name: str, call: Call) -> None:
    base, exponent = call.args[0], call.args[1]
    if isinstance(exponent, int) and exponent < 0 and is_integral(base.dtype):
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    if isinstance(exponent, (int, float)) and _too_large(exponent, base.dtype):
        left_to_the_cpu(f"{exponent} as a power of {base.dtype}")


def _too_large(number: float, dtype: torch.dtype) -> bool:
    if dtype in INTEGER:
        return isinstance(number, int) and not torch.iinfo(dtype).min <= number <= torch.iinfo(dtype).max
    return dtype is torch.float16 and torch.finfo(dtype).max < abs(number) < float("inf")


def _alpha(name: str, call: Call) -> None:
    alpha = dtype_of(argument(call, "alpha"))
    operands = [dtype_of(x) for x in call.args[:2]]
    if alpha is torch.bool and operands != [torch.bool, torch.bool]:
        left_to_the_cpu("a truth value as alpha")
    if alpha is not None and alpha.is_floating_point and all(d is None or is_integral(d) for d in operands):
        left_to_the_cpu("a fractional alpha for integers")
    if alpha is not None and alpha.is_complex and not any(d is not None and d.is_complex for d in operands):
        left_to_the_cpu("a complex alpha for real tensors")


def _subtraction(name: str, call: Call) -> None:
    operands = [x for arg in call.args[:2] for x in (arg if isinstance(arg, tuple) else (arg,))]
    if any(dtype_of(x) is torch.bool for x in operands):
        left_to_the_cpu("a difference of truth values")
    _alpha(name, call)


def _heaviside(name: str, call: Call) -> None:
    x, values = (dtype_of(a) for a in call.args[:2])
    if x != values or (x is not None and x.is_complex):
        left_to_the_cpu(f"heaviside of {x} and {values}")


def _condition(name: str, call: Call) -> None:
    if dtype_of(call.args[0]) not in (torch.bool, torch.uint8):
        left_to_the_cpu(f"a condition of {dtype_of(call.args[0])}")


def _integer_division(name: str, call: Call) -> None:
    if all(is_integral(x.dtype) for x in call.args[1:3] if isinstance(x, TensorSpec)):
        left_to_the_cpu("addcdiv of integers")


def _weight(name: str, call: Call) -> None:
    if len({x.dtype for x in call.args[:3] if isinstance(x, TensorSpec)}) > 1:
        left_to_the_cpu(f"lerp of {[dtype_of(x) for x in call.args[:3]]}")


def _fill(name: str, call: Call) -> None:
    target, value = dtype_of(call.args[0]), dtype_of(call.args[1])
    if value is not None and value.is_complex and target is not None and not target.is_complex:
        left_to_the_cpu(f"{target} filled with a complex number")


def _hardtanh(name: str, call: Call) -> None:
    """Limits that are passed at run time are looked at by the program."""
    dtype, limits = dtype_of(call.args[0]), call.args[1:3]
    negative = any(isinstance(n, (int, float)) and n < 0 for n in limits)
    if dtype is torch.bool or (dtype is torch.uint8 and negative):
        left_to_the_cpu(f"hardtanh of {dtype}")


def _truth_values(name: str, call: Call) -> None:
    if all(dtype_of(x) is torch.bool for x in call.args[:2]):
        left_to_the_cpu("a difference of truth values")


def boolean_mask(name: str, call: Call) -> None:
    if call.args[1].dtype is not torch.bool:
        raise RuntimeError(
            f"{name}: {short(name)} only supports boolean masks, but got mask with dtype {call.args[1].dtype}. "
            "Convert it with .bool()."
        )


CHECKS: Final[dict[str, Refusal]] = {
    "abs": _self_never(*COMPLEX, only_in_place=True),
    "add": _alpha,
    "sub": _subtraction,
    "rsub": _subtraction,
    "_foreach_sub": _subtraction,
    "deg2rad": _self_never(*COMPLEX),
    "rad2deg": _self_never(*COMPLEX),
    "isposinf": _self_never(*COMPLEX),
    "isneginf": _self_never(*COMPLEX),
    "relu": _self_never(torch.bool),
    "hardtanh": _hardtanh,
    "heaviside": _heaviside,
    "where": _condition,
    "lerp": _weight,
    "fill": _fill,
    "dist": _truth_values,
    "frexp": _self_never(*INTEGER, torch.bool, *COMPLEX),
    "addcdiv": _integer_division,
    "pow.Tensor_Scalar": integer_power,
    "masked_fill": boolean_mask,
    "masked_select": boolean_mask,
    "masked_scatter": boolean_mask,
}
