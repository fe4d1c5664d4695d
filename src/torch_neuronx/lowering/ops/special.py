"""Special functions: error functions, gamma functions, entropy forms, the normal distribution."""

from __future__ import annotations

import math

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import HALVES, compute_dtype
from torch_neuronx.lowering.ops.arithmetic import copy_sign
from torch_neuronx.lowering.ops.bessel import horner
from torch_neuronx.lowering.promotion import Build, apply, binary, unary
from torch_neuronx.lowering.special_tables import DIGAMMA, NDTRI, ZETA
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value

INF, NAN = float("inf"), float("nan")
EPSILON = 2.0**-53


def in_double(build: Build) -> Build:
    """Computes in float64 where float32 loses its digits: exp(x * x), near a zero or a pole."""

    def run(*xs: Value) -> Value:
        return hlo.convert(build(*(hlo.convert(x, torch.float64) for x in xs)), xs[0].dtype)

    return run


unary("aten::erf", "prims::erf", int_to_float=True)(hlo.erf)
unary("aten::erfc", "prims::erfc", int_to_float=True)(hlo.erfc)


def lgamma(x: Value) -> Value:
    """log |gamma(x)|; infinite at both infinities and at the poles."""
    return hlo.select(hlo.is_inf(x), INF, hlo.lgamma(x))


def digamma(x: Value) -> Value:
    """Reflected to positive arguments, raised to at least 10, then the asymptotic series."""
    reflected = x < 0.0
    fraction = x - hlo.trunc(x)
    y = hlo.select(reflected, 1.0 - x, x)
    total = hlo.zeros_like(y)
    for _ in range(10):
        low = y < 10.0
        total = hlo.select(low, total - 1.0 / y, total)
        y = hlo.select(low, y + 1.0, y)
    z = 1.0 / (y * y)
    series = hlo.select(y < 1e17, z * horner(z, DIGAMMA), 0.0)
    out = total + hlo.log(y) - 0.5 / y - series
    out = hlo.select(reflected, out - math.pi / hlo.tan(math.pi * fraction), out)
    out = hlo.select(reflected & hlo.eq(fraction, 0.0), NAN, out)
    return hlo.select(hlo.eq(x, 0.0), copy_sign(hlo.full_like(x, INF), -x), out)


unary("aten::lgamma", "prims::lgamma", int_to_float=True)(in_double(lgamma))
unary("aten::digamma", "prims::digamma", int_to_float=True)(in_double(digamma))


def trigamma(x: Value) -> Value:
    reflected = x < 0.5
    sine = hlo.sine(math.pi * x)
    y = hlo.select(reflected, 1.0 - x, x)
    total = hlo.select(reflected, -(math.pi**2) / (sine * sine), 0.0)
    for _ in range(6):
        total = total + 1.0 / (y * y)
        y = y + 1.0
    z = 1.0 / (y * y)
    total = total + (1.0 + 1.0 / (2.0 * y) + z * (1 / 6 - z * (1 / 30 - z * (1 / 42)))) / y
    return hlo.select(reflected, -total, total)


def zeta(x: Value, q: Value) -> Value:
    """Hurwitz zeta by Euler-Maclaurin: at least nine terms of the sum, then twelve corrections."""
    x, q = hlo.operands(x, q)
    valid = (x > 1.0) & ((q > 0.0) | (hlo.ne(q, hlo.floor(q)) & hlo.eq(x, hlo.floor(x))))
    base = hlo.select(valid, q, 1.0)
    exponent = hlo.select(valid, x, 2.0)
    total = hlo.power(base, -exponent)
    never = hlo.ne(total, total)  # a NaN stops at once

    def unfinished(i: Value, a: Value, done: Value) -> Value:
        return hlo.not_(done) & ((i < 9) | (a <= 9.0))

    def body(i: Value, a: Value, b: Value, s: Value, done: Value) -> list[Value]:
        go = unfinished(i, a, done)
        following = a + 1.0
        term = hlo.power(following, -exponent)
        summed = s + term
        small = hlo.abs_(term) < EPSILON * hlo.abs_(summed)
        return [
            i + 1,
            hlo.select(go, following, a),
            hlo.select(go, term, b),
            hlo.select(go, summed, s),
            done | (go & small),
        ]

    start = [hlo.constant(0, torch.int32), base, hlo.zeros_like(base), total, never]
    _, w, b, s, done = hlo.while_loop(start, lambda i, a, b, s, done: hlo.any_(unfinished(i, a, done)), body)
    tail = s + b * w / (exponent - 1.0) - 0.5 * b
    factor, power = hlo.ones_like(b), b
    for k, scale in enumerate(ZETA):
        factor = factor * (exponent + float(2 * k))
        power = power / w
        tail = tail + factor * power / scale
        factor = factor * (exponent + float(2 * k + 1))
        power = power / w
    out = hlo.select(done, s, tail)
    pole = (q <= 0.0) & hlo.eq(q, hlo.floor(q))
    out = hlo.select(valid, out, hlo.select(pole, hlo.full_like(x, INF), NAN))
    out = hlo.select(hlo.eq(x, 1.0), INF, hlo.select(x < 1.0, NAN, out))
    return hlo.select(hlo.is_nan(x) | hlo.is_nan(q), NAN, out)


binary(
    "aten::special_zeta",
    "aten::special_zeta.self_scalar",
    "aten::special_zeta.other_scalar",
    "prims::zeta",
    int_to_float=True,
)(in_double(zeta))


@lower("aten::polygamma", pointwise=True)
def polygamma(n: int, self: Value) -> Value:
    """(-1)^(n+1) n! zeta(n+1, x) for n >= 2."""

    def build(x: Value) -> Value:
        if n == 0:
            return digamma(x)
        if n == 1:
            return trigamma(x)
        factor = hlo.exponential(hlo.lgamma(hlo.full_like(x, n + 1.0)))
        return (1.0 if n % 2 else -1.0) * factor * zeta(hlo.full_like(x, n + 1.0), x)

    return apply(build, self, int_to_float=True)


def xlogy(x: Value, y: Value) -> Value:
    """x log y, zero where x is zero, NaN where y is."""
    product = x * hlo.log(y)
    return hlo.select(hlo.is_nan(y), NAN, hlo.select(hlo.eq(x, 0.0), 0.0, product))


def xlog1py(x: Value, y: Value) -> Value:
    product = x * hlo.in_dtype(compute_dtype(y.dtype), hlo.log1p)(y)  # float16's own loses digits
    return hlo.select(hlo.is_nan(y), NAN, hlo.select(hlo.eq(x, 0.0), 0.0, product))


binary("aten::xlogy.Tensor", "aten::xlogy.Scalar_Other", "aten::xlogy.Scalar_Self", int_to_float=True, steps_in=HALVES)(
    xlogy
)
binary(
    "aten::special_xlog1py",
    "aten::special_xlog1py.other_scalar",
    "aten::special_xlog1py.self_scalar",
    int_to_float=True,
    steps_in=HALVES,
)(xlog1py)


def entr(x: Value) -> Value:
    """-x log x, zero at zero, -inf below."""
    out = hlo.select(x > 0.0, -x * hlo.log(x), hlo.select(hlo.eq(x, 0.0), hlo.zeros_like(x), -INF))
    return hlo.select(hlo.is_nan(x), x, out)


unary("aten::special_entr", int_to_float=True, steps_in=HALVES)(entr)


def erf_inv(x: Value) -> Value:
    inside = hlo.erf_inv(x)
    edge = hlo.eq(hlo.abs_(x), 1.0)
    return hlo.select(hlo.abs_(x) > 1.0, NAN, hlo.select(edge, x * INF, inside))


unary("aten::erfinv", "prims::erf_inv", int_to_float=True)(erf_inv)


@lower("aten::mvlgamma")
def mvlgamma(self: Value, p: int) -> Value:
    def build(x: Value) -> Value:
        total = hlo.full_like(x, p * (p - 1) / 4 * math.log(math.pi))
        for j in range(p):
            total = total + lgamma(x - j / 2)
        return total

    return apply(build, self, int_to_float=True)


def erfcx(x: Value) -> Value:
    """exp(x^2) erfc(x): the product up to 5, a continued fraction beyond."""
    near = hlo.clamp(-27.0, x, 5.0)
    product = hlo.exponential(near * near) * hlo.erfc(near)
    far = hlo.maximum(x, 5.0)
    fraction = far
    for k in range(24, 0, -1):
        fraction = far + (k / 2) / fraction
    out = hlo.select(x < 5.0, product, 1 / math.sqrt(math.pi) / fraction)
    return hlo.select(hlo.is_nan(x), x, hlo.select(x < -26.7, INF, out))


def log_ndtr(x: Value) -> Value:
    t = x * math.sqrt(0.5)
    tail = hlo.log(erfcx(-t) / 2.0) - t * t
    return hlo.select(x < -1.0, tail, hlo.log1p(-hlo.erfc(t) / 2.0))


def ndtri(y0: Value) -> Value:
    """Quantile of the normal distribution: rational in the middle, in sqrt(-2 log y) at the tails."""
    tail_start = 0.13533528323661269189  # exp(-2)
    upper = y0 > 1.0 - tail_start
    y = hlo.select(upper, 1.0 - y0, y0)
    centre = y - 0.5
    square = centre * centre
    ratio = square * horner(square, NDTRI["P0"]) / horner(square, NDTRI["Q0"])
    middle = (centre + centre * ratio) * math.sqrt(2 * math.pi)
    x = hlo.sqrt(-2.0 * hlo.log(hlo.select(y > 0.0, y, 0.5)))
    z = 1.0 / x
    near = horner(z, NDTRI["P1"]) / horner(z, NDTRI["Q1"])
    far = horner(z, NDTRI["P2"]) / horner(z, NDTRI["Q2"])
    tail = x - hlo.log(x) / x - z * hlo.select(x < 8.0, near, far)
    out = hlo.select(y > tail_start, middle, hlo.select(upper, tail, -tail))
    out = hlo.select(hlo.eq(y0, 0.0), -INF, hlo.select(hlo.eq(y0, 1.0), INF, out))
    return hlo.select((y0 >= 0.0) & (y0 <= 1.0), out, NAN)


unary("aten::special_erfcx", "prims::erfcx", int_to_float=True)(in_double(erfcx))
unary("aten::special_log_ndtr", int_to_float=True)(in_double(log_ndtr))
unary("aten::special_ndtri", "prims::ndtri", int_to_float=True)(ndtri)
