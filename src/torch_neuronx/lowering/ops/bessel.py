"""Bessel and Airy functions, by the rational and Chebyshev approximations of Cephes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.promotion import unary
from torch_neuronx.lowering.special_tables import AIRY, I0, I1, J0, J1, K0, K1, Y0, Y1, Table
from torch_neuronx.lowering.value import Value

INF, NAN = float("inf"), float("nan")
TWO_OVER_PI = 2 / math.pi
ROOT_TWO_OVER_PI = math.sqrt(2 / math.pi)


def horner(x: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial with the highest power's coefficient first."""
    total = hlo.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total


def clenshaw(x: Value, coefficients: Sequence[float]) -> Value:
    """Half the Chebyshev sum in 2x-scaled form, as Cephes' chbevl."""
    p = q = hlo.zeros_like(x)
    a = hlo.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        p, q = q, a
        a = x * q - p + c
    return 0.5 * (a - p)


def _asymptotic(x: Value, table: Table, phase: float, *, second_kind: bool) -> Value:
    """The oscillating form for large x, shared by J and Y of one order."""
    small = 5.0 / x
    z = small * small
    even = horner(z, table["PP"]) / horner(z, table["PQ"])
    odd = small * (horner(z, table["QP"]) / horner(z, table["QQ"]))
    sine, cosine = hlo.sine(x - phase), hlo.cosine(x - phase)
    wave = even * sine + odd * cosine if second_kind else even * cosine - odd * sine
    return wave * ROOT_TWO_OVER_PI / hlo.sqrt(x)


PHASE_0, PHASE_1 = math.pi / 4, 3 * math.pi / 4


def _positive(x: Value) -> Value:
    """|x|, and 1 where the asymptotic form is not used, so that nothing divides by zero."""
    size = hlo.abs_(x)
    return hlo.select(size > 5.0, size, 1.0)


def bessel_j0(x: Value) -> Value:
    x = hlo.abs_(x)
    z = x * x
    near = (z - 5.78318596294678452118e00) * (z - 3.04712623436620863991e01) * horner(z, J0["RP"])
    near = hlo.select(x < 1e-5, 1.0 - z / 4.0, near / horner(z, J0["RQ"]))
    far = _asymptotic(_positive(x), J0, PHASE_0, second_kind=False)
    return hlo.select(x <= 5.0, near, _nan_through(x, far))


def _nan_through(x: Value, far: Value) -> Value:
    """The far branch at infinity and NaN, where _positive or sine lose it."""
    return hlo.select(hlo.is_finite(x), far, NAN)


def bessel_j1(x: Value) -> Value:
    size = hlo.abs_(x)
    z = size * size
    near = horner(z, J1["RP"]) / horner(z, J1["RQ"]) * x
    near = near * (z - 1.46819706421238932572e01) * (z - 4.92184563216946036703e01)
    far = _asymptotic(_positive(size), J1, PHASE_1, second_kind=False)
    return hlo.select(size <= 5.0, near, _odd(x, _nan_through(x, far)))


def _second_kind(x: Value, near: Value, far: Value) -> Value:
    out = hlo.select(x <= 5.0, near, _nan_through(x, far))
    return hlo.select(hlo.eq(x, 0.0), -INF, hlo.select(x < 0.0, NAN, out))


def bessel_y0(x: Value) -> Value:
    z = x * x
    near = horner(z, Y0["YP"]) / horner(z, Y0["YQ"]) + TWO_OVER_PI * hlo.log(x) * bessel_j0(x)
    return _second_kind(x, near, _asymptotic(_positive(x), J0, PHASE_0, second_kind=True))


def bessel_y1(x: Value) -> Value:
    z = x * x
    near = x * (horner(z, Y1["YP"]) / horner(z, Y1["YQ"]))
    near = near + TWO_OVER_PI * (bessel_j1(x) * hlo.log(x) - 1.0 / x)
    return _second_kind(x, near, _asymptotic(_positive(x), J1, PHASE_1, second_kind=True))


def _scaled_first_kind(size: Value, table: Table, order: int) -> Value:
    """exp(-|x|) I(|x|)."""
    near = clenshaw(size / 2.0 - 2.0, table["A"])
    near = near * size if order else near
    safe = hlo.select(size > 8.0, size, 8.0)
    far = clenshaw(32.0 / safe - 2.0, table["B"]) / hlo.sqrt(safe)
    return hlo.select(hlo.is_nan(size), size, hlo.select(size <= 8.0, near, far))


def _odd(x: Value, positive: Value) -> Value:
    return hlo.select(x < 0.0, -positive, positive)


def i0e(x: Value) -> Value:
    return _scaled_first_kind(hlo.abs_(x), I0, 0)


def i0(x: Value) -> Value:
    size = hlo.abs_(x)
    return hlo.exponential(size) * _scaled_first_kind(size, I0, 0)


def i1e(x: Value) -> Value:
    return _odd(x, _scaled_first_kind(hlo.abs_(x), I1, 1))


def i1(x: Value) -> Value:
    size = hlo.abs_(x)
    return _odd(x, hlo.exponential(size) * _scaled_first_kind(size, I1, 1))


def _third_kind(x: Value, near: Value, table: Table, scaled: bool) -> Value:
    """K: `near` up to 2, the exponentially falling form beyond."""
    safe = hlo.select(x > 2.0, x, 2.0)
    far = clenshaw(8.0 / safe - 2.0, table["B"]) / hlo.sqrt(safe)
    out = (
        hlo.select(x <= 2.0, near * hlo.exponential(x), far)
        if scaled
        else hlo.select(x <= 2.0, near, hlo.exponential(-x) * far)
    )
    out = hlo.select(hlo.is_nan(x), x, out)
    return hlo.select(hlo.eq(x, 0.0), INF, hlo.select(x < 0.0, NAN, out))


def _k0(x: Value, scaled: bool) -> Value:
    near = clenshaw(x * x - 2.0, K0["A"]) - hlo.log(0.5 * x) * i0(x)
    return _third_kind(x, near, K0, scaled)


def _k1(x: Value, scaled: bool) -> Value:
    near = hlo.log(0.5 * x) * i1(x) + clenshaw(x * x - 2.0, K1["A"]) / x
    return _third_kind(x, near, K1, scaled)


def spherical_j0(x: Value) -> Value:
    z = x * x
    series = [(-1) ** k / math.factorial(2 * k + 1) for k in range(6, -1, -1)]
    out = hlo.select(hlo.abs_(x) < 0.5, horner(z, series), hlo.sine(x) / x)
    return hlo.select(hlo.is_inf(x), 0.0, out)


def airy_ai(x: Value) -> Value:
    """Oscillating below -2.09, power series around zero, exponentially falling above 2.09."""
    low = _airy_oscillating(hlo.select(x < -2.09, x, -3.0))
    high = _airy_falling(hlo.select(x >= 2.09, x, 3.0))
    middle = _airy_series(hlo.clamp(-2.1, x, 2.1))
    out = hlo.select(x < -2.09, low, hlo.select(x >= 2.09, high, middle))
    out = hlo.select(x > 103.892, 0.0, out)
    return hlo.select(hlo.is_finite(x), out, NAN)


def _airy_oscillating(x: Value) -> Value:
    root = hlo.sqrt(-x)
    angle = -2.0 * x * root / 3.0
    z = 1.0 / angle
    square = z * z
    even = 1.0 + square * horner(square, AIRY["AFN"]) / horner(square, AIRY["AFD"])
    odd = z * horner(square, AIRY["AGN"]) / horner(square, AIRY["AGD"])
    t = angle + math.pi / 4
    return 1 / math.sqrt(math.pi) / hlo.sqrt(root) * (hlo.sine(t) * even - hlo.cosine(t) * odd)


def _airy_falling(x: Value) -> Value:
    root = hlo.sqrt(x)
    rate = 2.0 * x * root / 3.0
    inverse = 1.0 / rate
    ratio = horner(inverse, AIRY["AN"]) / horner(inverse, AIRY["AD"])
    return 1 / math.sqrt(math.pi) * ratio / (2.0 * hlo.sqrt(root) * hlo.exponential(rate))


def _airy_series(x: Value) -> Value:
    z = x * x * x
    f, g = hlo.ones_like(x), x
    m, n = f, g
    for k in range(1, 46, 3):
        m = m * z / float((k + 1) * (k + 2))
        n = n * z / float((k + 2) * (k + 3))
        f, g = f + m, g + n
    return 0.355028053887817239260 * f - 0.258819403792806798405 * g


FUNCTIONS = {
    "aten::special_bessel_j0": bessel_j0,
    "aten::special_bessel_j1": bessel_j1,
    "prims::bessel_j0": bessel_j0,
    "prims::bessel_j1": bessel_j1,
    "aten::special_bessel_y0": bessel_y0,
    "aten::special_bessel_y1": bessel_y1,
    "aten::i0": i0,
    "prims::bessel_i0": i0,
    "aten::special_i0e": i0e,
    "prims::bessel_i0e": i0e,
    "aten::special_i1": i1,
    "prims::bessel_i1": i1,
    "aten::special_i1e": i1e,
    "prims::bessel_i1e": i1e,
    "aten::special_modified_bessel_i0": i0,
    "aten::special_modified_bessel_i1": i1,
    "aten::special_modified_bessel_k0": lambda x: _k0(x, scaled=False),
    "aten::special_modified_bessel_k1": lambda x: _k1(x, scaled=False),
    "aten::special_scaled_modified_bessel_k0": lambda x: _k0(x, scaled=True),
    "aten::special_scaled_modified_bessel_k1": lambda x: _k1(x, scaled=True),
    "aten::special_spherical_bessel_j0": spherical_j0,
    "prims::spherical_bessel_j0": spherical_j0,
    "aten::special_airy_ai": airy_ai,
}
for _name, _build in FUNCTIONS.items():
    unary(_name, int_to_float=True)(_build)
