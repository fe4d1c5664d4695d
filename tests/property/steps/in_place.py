"""Pointwise ops that write to a tensor, mostly a view."""

from __future__ import annotations

from typing import Final

import torch

from tests.property import tensors
from tests.property.scene import NotApplicable, Scene
from tests.property.steps.elementwise import DIVIDING, NEAR, divides_badly, precision_of

_UNARY: Final = (
    "neg_", "abs_", "zero_", "floor_", "round_", "sqrt_", "exp_", "relu_", "logical_not_", "bitwise_not_", "sign_",
    "trunc_", "sigmoid_", "tanh_", "nan_to_num_", "square_", "t_", "squeeze_", "tril_", "triu_", "ceil_", "frac_",
    "reciprocal_", "log_", "sin_", "conj_physical_",
)  # fmt: skip
_BINARY: Final = (
    "add_", "mul_", "sub_", "div_", "copy_", "eq_", "lt_", "logical_and_", "bitwise_and_", "bitwise_or_",
    "bitwise_xor_", "remainder_", "floor_divide_", "fmod_", "pow_", "copysign_", "ge_", "ne_", "logical_or_", "atan2_",
)  # fmt: skip
_OPERATORS: Final = ("+=", "-=", "*=", "/=", "&=", "|=", "^=", "//=", "%=", "**=")


def _unary(s: Scene) -> None:
    op = s.pick(_UNARY)
    t = s.target(plain=op == "conj_physical_")  # of a real tensor it is nothing, refused nowhere on the CPU
    extra = f"{s.integer(-1, 1)}" if op in ("tril_", "triu_") else ""
    base = op[:-1]
    near = "near" if base in NEAR else precision_of(s, base, t)
    s.do(f"{t}.{op}({extra})", op, near, statement=True)


def _binary(s: Scene) -> None:
    op, t = s.pick(_BINARY), s.target()
    other = s.operand(t, away=True, numbers=op != "copy_" and op != "atan2_")
    base = op[:-1]
    if base in DIVIDING and divides_badly(s, t, other):
        raise NotApplicable
    if op == "copy_" and not tensors.fits(s[other], s[t].dtype):
        raise NotApplicable
    extra = f", alpha={s.number()}" if base in ("add", "sub") and s.chance(25) else ""
    precision = precision_of(s, base, t, other)
    s.do(f"{t}.{op}({other}{extra})", op, "sum" if extra else precision, statement=True, data=base in DIVIDING)


def _operator(s: Scene) -> None:
    op, t = s.pick(_OPERATORS), s.target()
    other = s.operand(t, away=True)
    if op[:-1] in DIVIDING and divides_badly(s, t, other):
        raise NotApplicable
    precision = precision_of(s, "pow" if op == "**=" else op[:-1], t, other)
    s.do(f"{t} {op} {other}", op, precision, statement=True, data=op[:-1] in DIVIDING)


def _number_for(x: torch.Tensor, dtype: torch.dtype) -> bool:
    """A 0-d tensor that fits. The CPU refuses a complex one for a real dtype by its value."""
    return x.dim() == 0 and tensors.fits(x, dtype) and (dtype.is_complex or not x.is_complex())


def _fill(s: Scene) -> None:
    t = s.target()
    value = s.beside(t, lambda x: _number_for(x, s[t].dtype)) if s.chance(30) else s.number()
    s.do(f"{t}.fill_({value})", "fill_", statement=True)


def _clamp(s: Scene) -> None:
    t = s.target()
    op = s.pick(("clamp_", "clamp_min_", "clamp_max_"))
    bounds = f"{s.number()}, {s.number()}" if op == "clamp_" else s.number()
    s.do(f"{t}.{op}({bounds})", op, statement=True)


def _masked(s: Scene) -> None:
    t = s.target()
    mask = f"({s.operand(t, numbers=False, away=True)} > 0)" if s.chance(70) else s.beside(t)
    value = s.number() if s.chance(70) else s.beside(t, lambda x: _number_for(x, s[t].dtype))
    s.do(f"{t}.masked_fill_({mask}, {value})", "masked_fill_", statement=True)


def _three(s: Scene) -> None:
    op, t = s.pick(("addcmul_", "addcdiv_", "lerp_")), s.target(lambda t: t.is_floating_point())
    a, b = s.operand(t, numbers=False, away=True), s.operand(t, numbers=False, away=True)
    code = f"{t}.lerp_({a}, {b if s.chance(50) else 0.5})" if op == "lerp_" else f"{t}.{op}({a}, {b}, value=0.5)"
    s.do(code, op, "sum", statement=True)


def _turn(s: Scene) -> None:
    t = s.tensor()
    op = s.pick(("transpose_", "unsqueeze_", "squeeze_"))
    if op == "transpose_":
        s.do(f"{t}.transpose_({s.dim(s[t])}, {s.dim(s[t])})", op, statement=True)
    else:
        s.do(f"{t}.{op}({s.dim(s[t])})", op, statement=True)


def _diagonal(s: Scene) -> None:
    t = s.target(lambda t: t.dim() > 1, plain=True)
    s.do(f"{t}.fill_diagonal_({s.number()})", "fill_diagonal_", statement=True)


def _scan(s: Scene) -> None:
    t = s.target(lambda t: t.dtype is not torch.bool, plain=True)
    op = s.pick(("cumsum_", "cumprod_"))
    s.do(f"{t}.{op}({s.dim(s[t])})", op, "sum", statement=True)


STEPS: Final = (_binary, _unary, _fill, _operator, _clamp, _masked, _three, _turn, _diagonal, _scan, _binary)
