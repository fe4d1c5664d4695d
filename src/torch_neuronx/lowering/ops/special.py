"""Special functions: error functions, gamma functions, entropy forms, the normal distribution."""

from __future__ import annotations

import math

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.promotion import apply, binary, unary
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value

INF, NAN = float("inf"), float("nan")

unary("aten::erf", "prims::erf", int_to_float=True)(hlo.erf)
unary("aten::erfc", "prims::erfc", int_to_float=True)(hlo.erfc)


def lgamma(x: Value) -> Value:
    """log |gamma(x)|; infinite at both infinities and at the poles."""
    return hlo.select(hlo.is_inf(x), INF, hlo.lgamma(x))


def digamma(x: Value) -> Value:
    """Poles at negative integers are NaN, at +-0 -+inf."""
    at_zero = hlo.select(hlo.eq(x, 0.0), -1.0 / x, hlo.digamma(x))
    pole = (x < 0.0) & hlo.eq(x, hlo.floor(x))
    return hlo.select(pole, NAN, at_zero)


unary("aten::lgamma", "prims::lgamma", int_to_float=True)(lgamma)
unary("aten::digamma", "prims::digamma", int_to_float=True)(digamma)


def zeta(x: Value, q: Value) -> Value:
    return hlo.zeta(x, q)


binary(
    "aten::special_zeta",
    "aten::special_zeta.self_scalar",
    "aten::special_zeta.other_scalar",
    "prims::zeta",
    int_to_float=True,
)(zeta)


@lower("aten::polygamma", pointwise=True)
def polygamma(n: int, self: Value) -> Value:
    """(-1)^(n+1) n! zeta(n+1, x), as torch computes it for every n >= 2."""

    def build(x: Value) -> Value:
        if n == 0:
            return digamma(x)
        order = hlo.full_like(x, float(n))
        factor = hlo.exponential(hlo.lgamma(order + 1.0))
        return (1.0 if n % 2 else -1.0) * factor * zeta(order + 1.0, x)

    return apply(build, self, int_to_float=True)


def xlogy(x: Value, y: Value) -> Value:
    """x log y, zero where x is zero, NaN where y is."""
    product = x * hlo.log(y)
    return hlo.select(hlo.is_nan(y), NAN, hlo.select(hlo.eq(x, 0.0), 0.0, product))


def xlog1py(x: Value, y: Value) -> Value:
    product = x * hlo.log1p(y)
    return hlo.select(hlo.is_nan(y), NAN, hlo.select(hlo.eq(x, 0.0), 0.0, product))


binary("aten::xlogy.Tensor", "aten::xlogy.Scalar_Other", "aten::xlogy.Scalar_Self", int_to_float=True)(xlogy)
binary(
    "aten::special_xlog1py",
    "aten::special_xlog1py.other_scalar",
    "aten::special_xlog1py.self_scalar",
    int_to_float=True,
)(xlog1py)


def entr(x: Value) -> Value:
    """-x log x, zero at zero, -inf below."""
    out = hlo.select(x > 0.0, -x * hlo.log(x), hlo.select(hlo.eq(x, 0.0), 0.0, -INF))
    return hlo.select(hlo.is_nan(x), x, out)


unary("aten::special_entr", int_to_float=True)(entr)


def erf_inv(x: Value) -> Value:
    inside = hlo.erf_inv(x)
    edge = hlo.eq(hlo.abs_(x), 1.0)
    return hlo.select(hlo.abs_(x) > 1.0, NAN, hlo.select(edge, x * INF, inside))


unary("aten::erfinv", "prims::erf_inv", int_to_float=True)(erf_inv)


@lower("aten::mvlgamma", pointwise=True)
def mvlgamma(self: Value, p: int) -> Value:
    def build(x: Value) -> Value:
        total = hlo.full_like(x, p * (p - 1) / 4 * math.log(math.pi))
        for j in range(p):
            total = total + lgamma(x - j / 2)
        return total

    return apply(build, self, int_to_float=True)
