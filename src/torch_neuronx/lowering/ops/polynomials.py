"""Orthogonal polynomials of a run-time degree: three-term recurrences and closed forms."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.promotion import Build, binary
from torch_neuronx.lowering.value import Value

Step = Callable[[Value, Value, Value], Value]
NAN = float("nan")


def _recur(n: Value, active: Value, second: Value, step: Step) -> Value:
    """p_n from p_0 = 1 and p_1 = second, with p_{k+1} = step(k, p_k, p_{k-1}); zero below degree 0."""

    def moving(k: Value, q: Value) -> Value:
        return active & (k < n) & hlo.not_(hlo.is_nan(q))

    def body(k: Value, p: Value, q: Value) -> list[Value]:
        go = moving(k, q)
        return [k + 1.0, hlo.select(go, q, p), hlo.select(go, step(k, q, p), q)]

    one = hlo.ones_like(second)
    first = hlo.constant(1, second.dtype)
    _, _, q = hlo.while_loop([first, one, second], lambda k, p, q: hlo.any_(moving(k, q)), body)
    return hlo.select(n < 0.0, 0.0, hlo.select(hlo.eq(n, 0.0), one, q))


def _degree(n: Value) -> Value:
    return hlo.trunc(n)


def _alternating(n: Value) -> Value:
    """(-1) ** n."""
    return hlo.select(hlo.eq(hlo.remainder(n, hlo.full_like(n, 2.0)), 0.0), hlo.ones_like(n), -1.0)


def _chebyshev_t(x: Value, n: Value) -> tuple[Value, Value, Value, Value]:
    """(second polynomial, value at 1, value at -1, closed form inside)."""
    return x, hlo.ones_like(x), _alternating(n), hlo.cosine(n * hlo.acos(x))


def _chebyshev_u(x: Value, n: Value) -> tuple[Value, Value, Value, Value]:
    angle = hlo.acos(x)
    sine = hlo.sine(angle)
    inside = hlo.select(
        hlo.eq(sine, 0.0), (n + 1.0) * hlo.cosine((n + 1.0) * angle) / x, hlo.sine((n + 1.0) * angle) / sine
    )
    return x + x, n + 1.0, _alternating(n) * (n + 1.0), inside


def _chebyshev_v(x: Value, n: Value) -> tuple[Value, Value, Value, Value]:
    angle = hlo.acos(x)
    edge = _alternating(n) * (n + n + 1.0)
    at_one = hlo.eq(hlo.sine(angle / 2.0), 1.0)
    inside = hlo.select(at_one, edge, hlo.cosine((n + 0.5) * angle) / hlo.cosine(angle / 2.0))
    return x + x - 1.0, hlo.ones_like(x), edge, inside


def _chebyshev_w(x: Value, n: Value) -> tuple[Value, Value, Value, Value]:
    angle = hlo.acos(x)
    at_one = hlo.eq(hlo.cosine(angle / 2.0), 1.0)
    edge = hlo.select(x > 0.0, n + n + 1.0, _alternating(n))
    inside = hlo.select(at_one, edge, hlo.sine((n + 0.5) * angle) / hlo.sine(angle / 2.0))
    return x + x + 1.0, n + n + 1.0, _alternating(n), inside


def _chebyshev(kind: Callable[..., tuple[Value, Value, Value, Value]], closed_above: float, shifted: bool) -> Build:
    """The kind's recurrence outside [-1, 1] and at low degree, its trigonometric form inside."""

    def build(x: Value, n: Value) -> Value:
        x, n = hlo.operands(x, n)
        n = _degree(n)
        x = x + x - 1.0 if shifted else x
        second, at_one, at_minus_one, inside = kind(x, n)
        closed = (n > closed_above) & (hlo.abs_(x) < 1.0)
        edge = hlo.eq(hlo.abs_(x), 1.0)
        active = hlo.not_(closed) & hlo.not_(edge)
        out = _recur(n, active, second, lambda _, q, p: (x + x) * q - p)
        out = hlo.select(closed, inside, out)
        out = hlo.select(edge, hlo.select(x > 0.0, at_one, at_minus_one), out)
        return hlo.select(n < 0.0, 0.0, out)

    return build


def _hermite(doubled: bool) -> Build:
    scale = 2.0 if doubled else 1.0

    def build(x: Value, n: Value) -> Value:
        x, n = hlo.operands(x, n)
        n = hlo.select(hlo.is_finite(n), _degree(n), -1.0)
        limit = 512.0 if x.dtype is torch.float64 else 128.0
        allowed = n <= limit
        out = _recur(n, allowed, scale * x, lambda k, q, p: scale * x * q - scale * k * p)
        return hlo.select(allowed, out, NAN)

    return build


def laguerre(x: Value, n: Value) -> Value:
    x, n = hlo.operands(x, n)
    n = _degree(n)
    active = hlo.ne(x, 0.0)
    out = _recur(n, active, 1.0 - x, lambda k, q, p: ((k + k + (1.0 - x)) * q - k * p) / (k + 1.0))
    return hlo.select(active | (n < 0.0), out, 1.0)


def legendre(x: Value, n: Value) -> Value:
    x, n = hlo.operands(x, n)
    n = _degree(n)
    edge = hlo.eq(hlo.abs_(x), 1.0)
    out = _recur(n, hlo.not_(edge), x, lambda k, q, p: ((k + k + 1.0) * x * q - k * p) / (k + 1.0))
    at_edge = hlo.select(x > 0.0, hlo.ones_like(x), _alternating(n))
    return hlo.select(edge & (n >= 0.0), at_edge, out)


FAMILIES = {
    "chebyshev_polynomial_t": _chebyshev(_chebyshev_t, 6.0, shifted=False),
    "chebyshev_polynomial_u": _chebyshev(_chebyshev_u, 8.0, shifted=False),
    "chebyshev_polynomial_v": _chebyshev(_chebyshev_v, 8.0, shifted=False),
    "chebyshev_polynomial_w": _chebyshev(_chebyshev_w, 8.0, shifted=False),
    "shifted_chebyshev_polynomial_t": _chebyshev(_chebyshev_t, 6.0, shifted=True),
    "shifted_chebyshev_polynomial_u": _chebyshev(_chebyshev_u, 6.0, shifted=True),
    "shifted_chebyshev_polynomial_v": _chebyshev(_chebyshev_v, 6.0, shifted=True),
    "shifted_chebyshev_polynomial_w": _chebyshev(_chebyshev_w, 4.0, shifted=True),
    "hermite_polynomial_h": _hermite(doubled=True),
    "hermite_polynomial_he": _hermite(doubled=False),
    "laguerre_polynomial_l": laguerre,
    "legendre_polynomial_p": legendre,
}
for _name, _build in FAMILIES.items():
    binary(
        f"aten::special_{_name}",
        f"aten::special_{_name}.n_scalar",
        f"aten::special_{_name}.x_scalar",
        int_to_float=True,
    )(_build)
