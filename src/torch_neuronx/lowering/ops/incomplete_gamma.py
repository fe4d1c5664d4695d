"""The regularised incomplete gamma functions: a power series, a continued fraction, an expansion for large a."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.ops.bessel import horner
from torch_neuronx.lowering.ops.special import EPSILON, INF, NAN, in_double
from torch_neuronx.lowering.promotion import binary
from torch_neuronx.lowering.value import Value

_LARGE: Final = 1e5  # from here on the series would take thousands of steps, and without end where a + 1 == a
_TERMS: Final = 16
_NEAR: Final = 0.15  # |x / a - 1| beyond which, for a large a, one of the two is 0 in float64


def _expansion(order: int) -> list[list[float]]:
    """Temme's coefficients c_0 to c_order (DLMF 8.12.10) as polynomials in eta, highest power first.

    With mu = x / a - 1 and eta^2 / 2 = mu - log(1 + mu): c_0 = 1 / mu - 1 / eta, and
    c_k = c_(k-1)' / eta + (-1)^k g_k / mu, where g_k are Stirling's 1, 1/12, 1/288.
    """
    n = _TERMS + 2 * order + 2
    mu = [Fraction(0), Fraction(1)]  # from mu mu' = eta (1 + mu)
    for m in range(2, n + 1):
        known = sum((mu[i] * (m + 1 - i) * mu[m + 1 - i] for i in range(2, m)), Fraction(0))
        mu.append((mu[m - 1] - known) / (m + 1))
    inverse = [Fraction(1)]  # eta / mu
    for m in range(1, n):
        inverse.append(-sum((mu[i + 1] * inverse[m - i] for i in range(1, m + 1)), Fraction(0)))
    rows = [inverse[1:]]
    for k, g in enumerate((Fraction(-1, 12), Fraction(1, 288))[:order]):
        slope = [i * c for i, c in enumerate(rows[k])][1:]
        both = [d + g * v for d, v in zip(slope, inverse, strict=False)]  # of eta * c_k, which has no constant term
        rows.append(both[1:])
    return [[float(c) for c in reversed(row[:_TERMS])] for row in rows]


_C: Final = _expansion(2)
_LOG_TAIL: Final = [(-1.0) ** k / k for k in range(20, 1, -1)]  # (mu - log(1 + mu)) / mu^2, highest power first


def _for_large_a(a: Value, x: Value) -> tuple[Value, Value]:
    """(P, Q) by Temme's uniform expansion."""
    mu = hlo.clamp(-_NEAR, (x - a) / a, _NEAR)
    half_square = mu * mu * horner(mu, _LOG_TAIL)  # eta^2 / 2
    eta = hlo.sqrt(2.0 * half_square) * hlo.sign(mu)
    rest = horner(eta, _C[0]) + (horner(eta, _C[1]) + horner(eta, _C[2]) / a) / a
    rest = rest * hlo.exponential(-a * half_square) / hlo.sqrt(2.0 * math.pi * a)
    z = hlo.sqrt(a * half_square) * hlo.sign(mu)
    return 0.5 * hlo.erfc(-z) - rest, 0.5 * hlo.erfc(z) + rest


def _gamma_factor(a: Value, x: Value) -> Value:
    """x^a exp(-x) / gamma(a)."""
    return hlo.exponential(a * hlo.log(x) - x - hlo.lgamma(a))


def _lower_series(a: Value, x: Value, wanted: Value) -> Value:
    """P(a, x) by its power series."""

    def body(r: Value, term: Value, total: Value, busy: Value) -> list[Value]:
        r = r + 1.0
        term = term * x / r
        total = hlo.select(busy, total + term, total)
        return [r, term, total, busy & (term > EPSILON * total)]

    one = hlo.ones_like(a)
    _, _, total, _ = hlo.while_loop([a, one, one, wanted], lambda r, t, s, busy: hlo.any_(busy), body)
    return total * _gamma_factor(a, x) / a


def _upper_fraction(a: Value, x: Value, wanted: Value) -> Value:
    """Q(a, x) by Lentz's evaluation of its continued fraction."""
    tiny = 1e-300

    def body(i: Value, b: Value, c: Value, d: Value, h: Value, busy: Value) -> list[Value]:
        step = -i * (i - a)
        b = b + 2.0
        d = step * d + b
        d = 1.0 / hlo.select(hlo.abs_(d) < tiny, tiny, d)
        c = b + step / c
        c = hlo.select(hlo.abs_(c) < tiny, tiny, c)
        change = c * d
        h = hlo.select(busy, h * change, h)
        return [i + 1.0, b, c, d, h, busy & (hlo.abs_(change - 1.0) > 4 * EPSILON)]

    b = x + 1.0 - a
    d = 1.0 / hlo.select(hlo.abs_(b) < tiny, tiny, b)
    start = [hlo.constant(1.0, torch.float64), b, hlo.full_like(b, 1 / tiny), d, d, wanted]
    h = hlo.while_loop(start, lambda i, b, c, d, h, busy: hlo.any_(busy), body)[4]
    return h * _gamma_factor(a, x)


def _regularised_gamma(a: Value, x: Value) -> tuple[Value, Value]:
    """(P, Q): the lower and upper incomplete gamma functions over gamma(a)."""
    a, x = hlo.operands(a, x)
    regular = (a > 0.0) & (x > 0.0) & hlo.is_finite(a) & hlo.is_finite(x)
    large = regular & (a >= _LARGE)
    by_series = regular & (x < a + 1.0) & hlo.not_(large)
    by_fraction = regular & (x >= a + 1.0) & hlo.not_(large)
    series = _lower_series(hlo.select(by_series, a, 1.0), hlo.select(by_series, x, 1.0), by_series)
    fraction = _upper_fraction(hlo.select(by_fraction, a, 1.0), hlo.select(by_fraction, x, 3.0), by_fraction)
    p = hlo.select(by_series, series, 1.0 - fraction)
    q = hlo.select(by_series, 1.0 - series, fraction)
    uniform = _for_large_a(hlo.select(large, a, _LARGE), hlo.select(large, x, _LARGE))
    p, q = hlo.select(large, uniform[0], p), hlo.select(large, uniform[1], q)
    # At the borders one of the two is 1; both infinite, both zero or negative arguments have no answer.
    full = (hlo.eq(a, 0.0) & (x > 0.0)) | (hlo.eq(x, INF) & hlo.is_finite(a) & (a > 0.0))
    empty = (hlo.eq(x, 0.0) & (a > 0.0)) | (hlo.eq(a, INF) & hlo.is_finite(x) & (x >= 0.0))
    p = hlo.select(regular, p, hlo.select(full, 1.0, hlo.select(empty, hlo.zeros_like(p), NAN)))
    q = hlo.select(regular, q, hlo.select(full, hlo.zeros_like(q), hlo.select(empty, hlo.ones_like(q), NAN)))
    return p, q


binary("aten::igamma", "prims::igamma", int_to_float=True)(in_double(lambda a, x: _regularised_gamma(a, x)[0]))
binary("aten::igammac", "prims::igammac", int_to_float=True)(in_double(lambda a, x: _regularised_gamma(a, x)[1]))
