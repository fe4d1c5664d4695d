"""Reparameterised gradients of gamma and Dirichlet samples.

The approximations and their coefficients are those of PyTorch's ATen/native/Distributions.h: Taylor
series near the borders, saddle-point expansions for large parameters, a fitted rational function
between. All regions are computed in float64 and one is selected per element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.ops.special import digamma
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value

F64 = torch.float64


def _or_zero(x: Value) -> Value:
    return hlo.select(hlo.is_nan(x), 0.0, x)


def _polynomial(x: Value, lowest_first: Sequence[Any]) -> Value:
    total: Any = lowest_first[-1]
    for c in reversed(lowest_first[:-1]):
        total = c + x * total
    return total


GAMMA_UV: Final = (
    (0.16009398, -0.094634809, 0.025146376, -0.0030648343, 1.0, 0.32668115, 0.10406089, 0.0014179084),
    (0.53487893, 0.1298071, 0.065735949, -0.0015649758, 0.16639465, 0.020070113, -0.0035938915, -0.00058392623),
    (0.040121004, -0.0065914022, -0.0026286047, -0.0013441777,
     0.017050642, -0.0021309326, 0.00085092367, -1.5247877e-07),
)  # fmt: skip


def _gamma_small(alpha: Value, x: Value) -> Value:
    numer, denom = hlo.ones_like(x), alpha
    series1, series2 = numer / denom, numer / (denom * denom)
    for i in range(1, 6):
        numer = numer * (-x / float(i))
        denom = denom + 1.0
        series1 = series1 + numer / denom
        series2 = series2 + numer / (denom * denom)
    power = hlo.power(x, alpha)
    density = hlo.power(x, alpha - 1.0) * hlo.exponential(-x)
    slope = (hlo.log(x) - digamma(alpha)) * power * series1 - power * series2
    return _or_zero(-slope / density)


def _gamma_large(alpha: Value, x: Value) -> Value:
    numer1 = 1.0 + 24.0 * alpha * (1.0 + 12.0 * alpha)
    square = alpha * alpha
    numer2 = 1440.0 * square + 6.0 * x * (53.0 - 120.0 * x) - 65.0 * x * x / alpha + alpha * (107.0 + 3600.0 * x)
    at_mean = numer1 * numer2 / (1244160.0 * square * square)
    denom = hlo.sqrt(8.0 * alpha)
    gap = alpha - x
    term3 = hlo.power(-gap - alpha * hlo.log(x / alpha), hlo.full_like(x, -1.5))
    term23 = denom / gap + hlo.select(x < alpha, -term3, term3)
    term1 = hlo.log(x / alpha) * term23 - hlo.sqrt(2.0 / alpha) * (alpha + x) / (gap * gap)
    stirling = 1.0 + 1.0 / (12.0 * alpha) * (1.0 + 1.0 / (24.0 * alpha))
    away = -stirling * x * term1 / denom
    return hlo.select((x >= 0.9 * alpha) & (x <= 1.1 * alpha), at_mean, away)


def _gamma_middle(alpha: Value, x: Value) -> Value:
    u, v = hlo.log(x / alpha), hlo.log(alpha)
    c = [_polynomial(u, tuple(row[i] for row in GAMMA_UV)) for i in range(8)]
    return hlo.exponential(_polynomial(v, c[:4]) / _polynomial(v, c[4:]))


def _wide(*xs: Value) -> list[Value]:
    return hlo.operands(*(hlo.convert(x, F64) for x in xs))


@lower("aten::_standard_gamma_grad", pointwise=True)
def standard_gamma_grad(self: Value, output: Value) -> Value:
    alpha, x = _wide(self, output)
    rest = hlo.select(alpha > 8.0, _gamma_large(alpha, x), _gamma_middle(alpha, x))
    return hlo.convert(hlo.select(x < 0.8, _gamma_small(alpha, x), rest), self.dtype)


def _beta_alpha_small(x: Value, alpha: Value, beta: Value) -> Value:
    factor = digamma(alpha) - digamma(alpha + beta) - hlo.log(x)
    numer = hlo.ones_like(x)
    series = numer / alpha * (factor + 1.0 / alpha)
    for i in range(1, 11):
        numer = numer * ((float(i) - beta) * x / float(i))
        denom = alpha + float(i)
        series = series + numer / denom * (factor + 1.0 / denom)
    return _or_zero(x * hlo.power(1.0 - x, -beta) * series)


def _beta_beta_small(x: Value, alpha: Value, beta: Value) -> Value:
    factor = digamma(alpha + beta) - digamma(beta)
    numer, betas, slopes = hlo.ones_like(x), hlo.ones_like(x), hlo.zeros_like(x)
    series = factor / alpha
    for i in range(1, 9):
        numer = numer * (-x / float(i))
        slopes = slopes * (beta - float(i)) + betas
        betas = betas * (beta - float(i))
        series = series + numer / (alpha + float(i)) * (slopes + factor * betas)
    return _or_zero(-hlo.power(1.0 - x, 1.0 - beta) * series)


def _stirling(x: Value) -> Value:
    return 1.0 + 1.0 / (12.0 * x) + 1.0 / (288.0 * x * x)


def _beta_alpha_middle(x: Value, alpha: Value, beta: Value) -> Value:
    total = alpha + beta
    mean = alpha / total
    spread = 0.1 * hlo.sqrt(alpha * beta / (total + 1.0)) / total
    b2, b3 = beta * beta, beta * beta * beta
    inner = (453.0 + 1620.0 * beta * (1.0 - x) - 455.0 * x) * beta + alpha * 8.0 * (1.0 - x) * (135.0 * beta - 11.0)
    inner = 3.0 * (59.0 + 180.0 * beta - 90.0 * x) * b2 + alpha * inner
    inner = (43.0 + 20.0 * (16.0 + 27.0 * beta) * x) * b3 + alpha * inner
    poly = 47.0 * x * b2 * b2 + alpha * inner
    over = (1.0 + 12.0 * alpha) * (1.0 + 12.0 * beta) / (total * total)
    under = 12960.0 * alpha * alpha * alpha * b2 * (1.0 + 12.0 * total)
    at_mean = over / (1.0 - x) * poly / under
    prefactor = -x / hlo.sqrt(2.0 * alpha * beta / total)
    stirling = _stirling(alpha) * _stirling(beta) / _stirling(total)
    cross = alpha * (x - 1.0) + beta * x
    term1 = 2.0 * alpha * alpha * (x - 1.0) + alpha * beta * (x - 1.0) - x * b2
    term1 = term1 / (hlo.sqrt(2.0 * alpha / beta) * total * hlo.sqrt(total) * cross * cross)
    term2 = 0.5 * hlo.log(alpha / (total * x))
    term3 = hlo.sqrt(8.0 * alpha * beta / total) / cross
    base = beta * hlo.log(beta / (total * (1.0 - x))) + alpha * hlo.log(alpha / (total * x))
    term4 = hlo.power(base, hlo.full_like(base, -1.5))
    away = stirling * prefactor * (term1 + term2 * (term3 + hlo.select(x < mean, term4, -term4)))
    return hlo.select((x >= mean - spread) & (x <= mean + spread), at_mean, away)


# [numerator, denominator][power of log x][power of log alpha][power of log total]
DIRICHLET: Final = (
    (
        ((1.003668233, -0.01061107488, -0.0657888334, 0.01201642863),
         (0.6336835991, -0.3557432599, 0.05486251648, -0.001465281033),
         (-0.03276231906, 0.004474107445, 0.002429354597, -0.0001557569013)),
        ((0.221950385, -0.3187676331, 0.01799915743, 0.01074823814),
         (-0.2951249643, 0.06219954479, 0.01535556598, 0.001550077057),
         (0.02155310298, 0.004170831599, 0.001292462449, 6.976601077e-05)),
        ((-0.05980841433, 0.008441916499, 0.01085618172, 0.002319392565),
         (0.02911413504, 0.01400243777, -0.002721828457, 0.000751041181),
         (0.005900514878, -0.001936558688, -9.495446725e-06, 5.385558597e-05)),
    ),
    (
        ((1.0, -0.02924021934, -0.04438342661, 0.007285809825),
         (0.6357567472, -0.3473456711, 0.05454656494, -0.002407477521),
         (-0.03301322327, 0.004845219414, 0.00231480583, -0.0002307248149)),
        ((0.5925320577, -0.1757678135, 0.01505928619, 0.000564515273),
         (0.1014815858, -0.06589186703, 0.01272886114, -0.0007316646956),
         (-0.007258481865, 0.001096195486, 0.0003934994223, -4.12701925e-05)),
        ((0.06469649321, -0.0236701437, 0.002902096474, -5.896963079e-05),
         (0.001925008108, -0.002869809258, 0.0008000589141, -6.063713228e-05),
         (-0.0003477407336, 6.959756487e-05, 1.097287507e-05, -1.650964693e-06)),
    ),
)  # fmt: skip


def _beta_fitted(x: Value, alpha: Value, total: Value) -> Value:
    u = hlo.log(x)
    a = hlo.log(alpha) - u
    b = hlo.log(total) - a
    p, q = (
        _polynomial(u, [_polynomial(a, [_polynomial(b, c) for c in by_alpha]) for by_alpha in by_x])
        for by_x in DIRICHLET
    )
    return p / q * x * (digamma(total) - digamma(alpha)) / (total - alpha)


@lower("aten::_dirichlet_grad", pointwise=True)
def dirichlet_grad(x: Value, alpha: Value, total: Value) -> Value:
    dtype = x.dtype
    x, alpha, total = _wide(x, alpha, total)
    beta = total - alpha
    border = total * x * (1.0 - x)
    fitted = _beta_fitted(x, alpha, total)
    out = hlo.select((alpha > 6.0) & (beta > 6.0), _beta_alpha_middle(x, alpha, beta), fitted)
    out = hlo.select((x >= 0.5) & (border < 0.75), -_beta_beta_small(1.0 - x, beta, alpha), out)
    out = hlo.select((x <= 0.5) & (border < 2.5), _beta_alpha_small(x, alpha, beta), out)
    return hlo.convert(out, dtype)
