"""Functions of one operand on extreme values, in every floating dtype; integers become the default float."""

from __future__ import annotations

import math

import emulate
import pytest
import torch
from emulate import check

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")
EXTREMES = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-3, 1e-7, 20.0, -20.0, 88.0, 1e10, -1e30]
NAMES = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad erf erfc erfinv exp exp2 expm1 floor frac isinf isnan "
    "isneginf isposinf log log10 log1p log2 logical_not logit neg rad2deg reciprocal relu round rsqrt sgn sigmoid "
    "sign signbit sin sinc sinh sqrt tan tanh trunc"
)


@pytest.mark.parametrize("name", NAMES.split())
def test_extremes(name):
    op = getattr(aten, name).default
    for dtype, tolerance in ((torch.float32, 2e-5), (torch.float64, 1e-12), (torch.bfloat16, 8e-3)):
        x = torch.tensor(EXTREMES, dtype=torch.float64).to(dtype)
        check(op, x, rtol=tolerance, atol=1e-37 if dtype is not torch.bfloat16 else 1e-6)


@pytest.mark.parametrize("name", ["exp", "sqrt", "sin", "sigmoid", "log1p", "reciprocal", "erf", "tanh"])
def test_integers_become_float(name):
    op = getattr(aten, name).default
    for dtype in (torch.int64, torch.uint8, torch.bool):
        check(op, torch.tensor([0, 1, 1, 0]).to(dtype))


@pytest.mark.parametrize("name", ["ceil", "floor", "round", "trunc", "abs", "sign", "neg", "bitwise_not"])
def test_integers_stay(name):
    check(getattr(aten, name).default, torch.tensor([0, 1, -5, 127, -128], dtype=torch.int8))


def test_rounding_to_decimals():
    x = torch.tensor([1.25, -2.675, 1234.5, 0.5, 1.5, 2.5, -0.5])
    for decimals in (-2, 0, 1, 3):
        check(aten.round.decimals, x, decimals=decimals)


COMPLEX = ("abs angle acos acosh asin asinh atan atanh cos cosh exp log log2 log10 neg reciprocal rsqrt sgn sin sinh "
           "sqrt tan tanh sigmoid")  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX.split())
def test_complex(name):
    """Also on branch cuts, where the sign of a zero decides."""
    parts = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0]
    x = torch.tensor([complex(a, b) for a in parts for b in parts if a or b], dtype=torch.complex128)
    if name == "atan":
        x = x[(x != 1j) & (x != -1j)].contiguous()
    if name == "atanh":
        x = x[(x != 1) & (x != -1)].contiguous()
    check(getattr(aten, name).default, x, rtol=1e-9, atol=1e-9)


def test_frexp_and_ldexp():
    x = torch.tensor([0.0, -0.0, 1.0, -3.5, 1e20, 1e-20, INF, 0.75])
    check(aten.frexp.Tensor, x[:6].contiguous())
    check(aten.frexp.Tensor, x[:6].double())
    check(aten.ldexp.Tensor, x, torch.tensor([1, 2, -3, 4, 5, 6, 7, 8]))


def test_two_operands():
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 3.0])
    y = torch.tensor([-0.0, 1.0, -2.0, INF, INF, 1.0, 2.0, NAN])
    for name in ("atan2", "hypot", "nextafter", "logaddexp", "logaddexp2", "fmax", "fmin", "maximum", "minimum"):
        check(getattr(aten, name).default, x, y)
    check(aten.copysign.Tensor, x, y)
    check(aten.xlogy.Tensor, x, y)
    check(aten.special_xlog1py.default, x, y)
    check(aten.heaviside.default, x, y)
    z = torch.tensor([1 + 2j, -INF + 0j, 3 - 1j], dtype=torch.complex64)
    check(aten.logaddexp.default, z, z.flip(0).contiguous())


def test_large_hypot():
    out = emulate.run(aten.hypot.default, (torch.tensor([1e30, 1e-30]), torch.tensor([1e30, 1e-30])), {})
    assert torch.allclose(out, torch.tensor([1e30, 1e-30]) * math.sqrt(2))
