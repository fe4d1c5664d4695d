"""Pointwise ops on one, two and three operands, with and without out=."""

from __future__ import annotations

from typing import Final

import torch

from tests.property import tensors
from tests.property.scene import NotApplicable, Scene

# Rounded once: the device must agree to the bit.
EXACT: Final = (
    "neg", "abs", "sign", "floor", "ceil", "trunc", "round", "square", "relu", "bitwise_not", "logical_not", "isnan",
    "isinf", "isfinite", "signbit", "positive", "nan_to_num", "isposinf", "isneginf", "sgn", "frac",
)  # fmt: skip
NEAR: Final = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "tanh", "sinh", "cosh", "asinh",
    "acosh", "atanh", "asin", "acos", "atan", "sigmoid", "erf", "erfc", "lgamma", "rsqrt", "sqrt", "reciprocal",
    "angle", "deg2rad", "rad2deg", "sinc", "logit", "digamma", "i0", "erfinv",
)  # fmt: skip
FUNCTIONAL: Final = (
    "softplus", "gelu", "silu", "mish", "elu", "selu", "hardswish", "hardsigmoid", "logsigmoid", "leaky_relu",
    "softsign", "hardtanh", "relu6", "celu", "tanhshrink", "softshrink", "hardshrink",
)  # fmt: skip
BINARY: Final = (
    "add", "sub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "eq", "ne", "lt", "le", "gt", "ge",
    "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "copysign", "heaviside",
    "floor_divide", "remainder", "fmod", "bitwise_left_shift", "bitwise_right_shift", "gcd", "lcm",
)  # fmt: skip
BINARY_NEAR: Final = ("pow", "atan2", "hypot", "logaddexp", "xlogy", "float_power", "logaddexp2")
OPERATORS: Final = ("+", "-", "*", "/", "&", "|", "^", "==", "!=", "<", "<=", ">", ">=", "//", "%", "<<", ">>")
DIVIDING: Final = frozenset(("floor_divide", "remainder", "fmod", "//", "%", "div", "gcd", "lcm"))
_TENSORS_ONLY: Final = frozenset(("maximum", "minimum", "fmax", "fmin", "heaviside", "gcd", "lcm", "hypot",
                                  "atan2", "logaddexp", "logaddexp2"))  # fmt: skip


def precision_of(s: Scene, op: str, *operands: str) -> str:
    """Complex arithmetic has several algorithms."""
    if op in ("clamp by tensors", "fmax", "fmin", "maximum", "minimum"):
        return "equal"  # of two zeros the CPU's vectorized loop takes the second, its scalar loop the first
    if op.endswith("alpha") and any(s[o].dtype.itemsize == 2 for o in operands if s.has(o)):
        return "near"  # the CPU's scalar loop rounds alpha's product, its vectorized loop does not
    near = op in NEAR or op in FUNCTIONAL or op in BINARY_NEAR
    arithmetic = op in ("mul", "div", "*", "/", "square", "abs", "sgn", "sign", "add", "sub", "+", "-", "neg")
    if arithmetic and any(s[o].is_complex() for o in operands if s.has(o)):
        return "sum"
    if op in BINARY_NEAR and any(s[o].is_complex() for o in operands if s.has(o)):
        raise NotApplicable  # 0 ** 0 and exp's overflow depend on whether the CPU's vectorized loop took the element
    return "near" if near else "exact"


def divides_badly(s: Scene, *operands: str) -> bool:
    """The lowest integer over -1 ends the process on the CPU; bool operands are as good as integers."""
    ints = [s[o] for o in operands if s.has(o) and not (s[o].is_floating_point() or s[o].is_complex())]
    wide = [t for t in ints if t.dtype in tensors.SIGNED]
    return any(bool((t == torch.iinfo(t.dtype).min).any()) for t in wide)


def out_of(s: Scene, *operands: str) -> str:
    """out= into a live tensor that shares no memory with the operands, of any shape."""
    mine = {s[o].untyped_storage()._cdata for o in operands if s.has(o)}

    def good(t: torch.Tensor) -> bool:
        return t.untyped_storage()._cdata not in mine and (not tensors.overlaps(t) or tensors.refused_in_place(t))

    return s.tensor(good)


def _finish(s: Scene, call: str, op: str, *operands: str, data: bool = False) -> None:
    """The call as it is, or sometimes with out=."""
    precision = precision_of(s, op, *operands)
    # alpha is looked at when out= has grown already.
    if s.chance(12) and not op.endswith("alpha"):
        out = out_of(s, *operands)
        s.do(f"{call[:-1]}, out={out})", f"{op} out", precision, statement=True, data=data)
    else:
        s.do(call, op, precision, data=data)


def _unary(s: Scene) -> None:
    op, t = s.pick(EXACT), s.tensor()
    if op in ("isinf", "isfinite") and not (s[t].is_floating_point() or s[t].is_complex()):
        raise NotApplicable  # zeros_like and ones_like on the CPU: an extent of 1 keeps its stride
    _finish(s, f"torch.{op}({t})", op, t)


def _unary_near(s: Scene) -> None:
    op, t = s.pick(NEAR), s.tensor()
    _finish(s, f"torch.{op}({t})", op, t)


def _functional(s: Scene) -> None:
    op, t = s.pick(FUNCTIONAL), s.tensor()
    # tanhshrink is a difference, which cancels.
    s.do(f"torch.nn.functional.{op}({t})", op, "sum" if op == "tanhshrink" else precision_of(s, op, t))


def _binary(s: Scene) -> None:
    op = s.pick((*BINARY, *BINARY_NEAR, *BINARY[:4]))
    a = s.tensor()
    b = s.operand(a, numbers=op not in _TENSORS_ONLY)
    if op in DIVIDING and divides_badly(s, a, b):
        raise NotApplicable
    extra = ""
    if op == "div" and s.chance(60):
        extra = f", rounding_mode={s.pick(('floor', 'trunc'))!r}"
    elif op in ("add", "sub") and s.chance(30):
        extra, op = f", alpha={s.number()}", f"{op} alpha"
    _finish(s, f"torch.{op.split()[0]}({a}, {b}{extra})", op, a, b, data=op in DIVIDING)


def _operator(s: Scene) -> None:
    op, a = s.pick(OPERATORS), s.tensor()
    b = s.operand(a)
    if op in DIVIDING and divides_badly(s, a, b):
        raise NotApplicable
    pair = (a, b) if s.chance(70) else (b, a)
    s.do(f"{pair[0]} {op} {pair[1]}", op, precision_of(s, op, a, b), data=op in DIVIDING)


def _clamp(s: Scene) -> None:
    t = s.tensor()
    if s.chance(50):
        bounds = [s.pick(("None", s.number())), s.number()]
    else:
        bounds = [s.operand(t, numbers=False), s.operand(t, numbers=False)]
    by = "clamp by tensors" if s.has(bounds[1]) else "clamp"
    _finish(s, f"torch.clamp({t}, {bounds[0]}, {bounds[1]})", by, t, *bounds)


def _where(s: Scene) -> None:
    t = s.tensor()
    other = s.operand(t)
    condition = f"({s.operand(t, numbers=False)} > 0)" if s.chance(70) else s.tensor(lambda x: x.dtype is torch.bool)
    s.do(f"torch.where({condition}, {t}, {other})", "where")


def _masked_fill(s: Scene) -> None:
    t = s.tensor()
    s.do(f"{t}.masked_fill({s.operand(t, numbers=False)} > 0, {s.number()})", "masked_fill")


def _three(s: Scene) -> None:
    op = s.pick(("addcmul", "lerp", "addcdiv", "lerp tensor"))
    t = s.tensor()
    if op.startswith("lerp"):
        weight = s.operand(t, numbers=False) if op == "lerp tensor" else s.pick(("0.5", "0.25", "-1.0", "2", "0.9"))
        s.do(f"torch.lerp({t}, {s.operand(t, numbers=False)}, {weight})", op, "sum")
        return
    a, b = s.operand(t, numbers=False), s.operand(t, numbers=False)
    s.do(f"torch.{op}({t}, {a}, {b}, value={s.number()})", op, "sum")


STEPS: Final = (
    _binary,
    _unary,
    _operator,
    _unary_near,
    _clamp,
    _where,
    _three,
    _functional,
    _binary,
    _unary,
    _masked_fill,
)
