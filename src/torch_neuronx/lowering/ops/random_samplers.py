"""Random tensors that need a search: poisson, binomial, gamma, dirichlet, multinomial.

Everything is computed in float64. Small expectations invert the distribution function; large ones
use transformed rejection (Hörmann's PTRS and BTRS), gamma uses Marsaglia and Tsang's squeeze. A
rejection loop draws its rounds from separate Philox streams (see `lowering.philox`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_neuronx.lowering import hlo, philox
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.ops.random import standard_exponential
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value

Generator = Any
F64 = torch.float64
SMALL = 10.0  # expectation up to which inversion is cheaper than rejection
NAN = float("nan")

Proposal = Callable[[list[Value]], tuple[Value, Value]]


def _reject(draw: philox.Draw, start: Value, pending: Value, propose: Proposal) -> Value:
    """Replaces the `pending` elements of `start` by the first accepted proposal."""

    def body(number: Value, waiting: Value, result: Value) -> list[Value]:
        candidate, accepted = propose(draw.words(number))
        taken = waiting & accepted
        return [number + 1, waiting & hlo.not_(accepted), hlo.select(taken, candidate, result)]

    first = hlo.constant(1, torch.uint64)
    return hlo.while_loop([first, pending, start], lambda _, waiting, __: hlo.any_(waiting), body)[2]


def _two_uniforms(words: list[Value]) -> tuple[Value, Value]:
    """(0, 1] twice, from one block."""
    wide = [hlo.convert(w, torch.uint64) for w in words]
    first = wide[0] | hlo.shift_left(wide[1], 32)
    second = wide[2] | hlo.shift_left(wide[3], 32)
    return philox.open_unit(first, F64), philox.open_unit(second, F64)


def _invert(u: Value, first: Value, active: Value, ratio: Callable[[Value], Value]) -> Value:
    """Smallest k whose distribution function reaches u; pmf(k+1) = pmf(k) * ratio(k)."""

    def behind(k: Value, pmf: Value, cdf: Value) -> Value:
        return active & (u > cdf) & (pmf > 0.0)

    def body(k: Value, pmf: Value, cdf: Value) -> list[Value]:
        moving = behind(k, pmf, cdf)
        following = pmf * ratio(k)
        return [
            hlo.select(moving, k + 1.0, k),
            hlo.select(moving, following, pmf),
            hlo.select(moving, cdf + following, cdf),
        ]

    return hlo.while_loop([hlo.zeros_like(u), first, first], lambda *c: hlo.any_(behind(*c)), body)[0]


def _flat64(*xs: Value) -> list[Value]:
    return [hlo.flatten(hlo.convert(x, F64)) for x in hlo.operands(*xs)]


@lower("aten::poisson", random=True)
def poisson(self: Value, generator: Generator = None) -> Value:
    (rate,) = _flat64(self)
    require(hlo.all_(rate >= 0.0), "RuntimeError", "invalid Poisson rate, expected rate to be non-negative")
    if not rate.numel:
        return self
    draw = philox.Draw(rate.numel)
    low = rate < SMALL
    small_rate = hlo.select(low, rate, 1.0)
    u, _ = _two_uniforms(draw.words())
    small = _invert(u, hlo.exponential(-small_rate), low, lambda k: small_rate / (k + 1.0))
    high = rate >= SMALL
    out = _poisson_by_rejection(draw, hlo.select(high, rate, SMALL), high, small)
    return hlo.reshape(hlo.convert(out, self.dtype), self.shape)


def _poisson_by_rejection(draw: philox.Draw, rate: Value, pending: Value, start: Value) -> Value:
    log_rate = hlo.log(rate)
    b = 0.931 + 2.53 * hlo.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2.0)

    def propose(words: list[Value]) -> tuple[Value, Value]:
        u, v = _two_uniforms(words)
        u = u - 0.5
        inner = 0.5 - hlo.abs_(u)
        k = hlo.floor((2.0 * a / inner + b) * u + rate + 0.43)
        quick = (inner >= 0.07) & (v <= v_r)
        hopeless = (k < 0.0) | ((inner < 0.013) & (v > inner))
        s = hlo.log(v * inverse_alpha / (a / (inner * inner) + b))
        t = k * log_rate - rate - hlo.lgamma(k + 1.0)
        return k, quick | (hlo.not_(hopeless) & (s <= t))

    return _reject(draw, start, pending, propose)


@lower("aten::binomial", random=True)
def binomial(count: Value, prob: Value, generator: Generator = None) -> Value:
    shape = hlo.broadcast_shapes(count.shape, prob.shape)
    n, p = _flat64(count, prob)
    if not n.numel:
        return hlo.full(shape, 0, count.dtype)
    draw = philox.Draw(n.numel)
    flipped = p > 0.5
    rate = hlo.clamp(0.0, hlo.select(flipped, 1.0 - p, p), 0.5)
    known = hlo.not_((n > 0.0) & (p > 0.0) & (p < 1.0))
    mean = n * rate
    low = hlo.not_(known) & (mean < SMALL)
    high = hlo.not_(known) & (mean >= SMALL)
    u, _ = _two_uniforms(draw.words())
    trials = hlo.select(low, n, 1.0)
    odds = rate / (1.0 - rate)
    small = _invert(u, hlo.exponential(trials * hlo.log1p(-rate)), low, lambda k: (trials - k) / (k + 1.0) * odds)
    big_n, big_p = hlo.select(high, n, 100.0), hlo.select(high, rate, 0.5)
    out = _binomial_by_rejection(draw, big_n, big_p, high, small)
    out = hlo.select(flipped, n - out, out)
    out = hlo.select(known, hlo.select((p >= 1.0) & (n > 0.0), n, 0.0), out)
    out = hlo.select(hlo.is_nan(n) | hlo.is_nan(p), NAN, out)
    return hlo.reshape(hlo.convert(out, count.dtype), shape)


def _binomial_by_rejection(draw: philox.Draw, n: Value, p: Value, pending: Value, start: Value) -> Value:
    q = 1.0 - p
    spread = hlo.sqrt(n * p * q)
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = n * p + 0.5
    v_r = 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * spread
    mode = hlo.floor((n + 1.0) * p)
    log_odds = hlo.log(p / q)
    peak = hlo.lgamma(mode + 1.0) + hlo.lgamma(n - mode + 1.0)

    def propose(words: list[Value]) -> tuple[Value, Value]:
        u, v = _two_uniforms(words)
        u = u - 0.5
        inner = 0.5 - hlo.abs_(u)
        k = hlo.floor((2.0 * a / inner + b) * u + c)
        quick = (inner >= 0.07) & (v <= v_r)
        possible = (k >= 0.0) & (k <= n)
        s = hlo.log(v * alpha / (a / (inner * inner) + b))
        t = peak - hlo.lgamma(k + 1.0) - hlo.lgamma(n - k + 1.0) + (k - mode) * log_odds
        return k, possible & (quick | (s <= t))

    return _reject(draw, start, pending, propose)


def gamma(alpha: Value) -> Value:
    """Standard gamma samples of a flat float64 `alpha`."""
    draw = philox.Draw(alpha.numel)
    below = alpha < 1.0
    shape = hlo.select(below, alpha + 1.0, alpha)
    d = shape - 1.0 / 3.0
    c = 1.0 / hlo.sqrt(9.0 * d)

    def propose(words: list[Value]) -> tuple[Value, Value]:
        x = philox.box_muller(words[0], words[1], F64)[0]
        u = _two_uniforms(words)[1]
        y = 1.0 + c * x
        v = y * y * y
        squared = x * x
        quick = u < 1.0 - 0.0331 * squared * squared
        slow = hlo.log(u) < 0.5 * squared + d * (1.0 - v + hlo.log(v))
        return d * v, (y > 0.0) & (quick | slow)

    valid = alpha > 0.0
    drawn = _reject(draw, hlo.full_like(alpha, NAN), valid, propose)
    boost = hlo.exponential(hlo.log(_two_uniforms(draw.words())[0]) / hlo.select(valid, alpha, 1.0))
    drawn = hlo.select(below, drawn * boost, drawn)
    return hlo.select(hlo.eq(alpha, 0.0), 0.0, drawn)


@lower("aten::_standard_gamma", random=True)
def standard_gamma(self: Value, generator: Generator = None) -> Value:
    (alpha,) = _flat64(self)
    if not alpha.numel:
        return self
    least = torch.finfo(self.dtype).tiny
    return hlo.reshape(hlo.convert(hlo.maximum(gamma(alpha), least), self.dtype), self.shape)


@lower("aten::_sample_dirichlet", random=True)
def sample_dirichlet(self: Value, generator: Generator = None) -> Value:
    (alpha,) = _flat64(self)
    if not alpha.numel:
        return self
    drawn = hlo.reshape(hlo.maximum(gamma(alpha), torch.finfo(F64).tiny), self.shape)
    share = drawn / hlo.sum_(drawn, -1, keepdim=True)
    limits = torch.finfo(self.dtype)
    return hlo.convert(hlo.clamp(limits.tiny, share, 1.0 - limits.eps / 2), self.dtype)


@lower("aten::multinomial", random=True)
def multinomial(self: Value, num_samples: int, replacement: bool = False, *, generator: Generator = None) -> Value:
    weights = hlo.convert(self, F64 if self.dtype is F64 else compute_dtype(self.dtype))
    require(
        hlo.all_((weights >= 0.0) & hlo.is_finite(weights)),
        "RuntimeError",
        "probability tensor contains either `inf`, `nan` or element < 0",
    )
    rows = weights if self.ndim == 2 else hlo.unsqueeze(weights, 0)
    if not rows.shape[0] or not num_samples:
        return hlo.full((*self.shape[:-1], num_samples), 0, torch.int64)
    require(
        hlo.all_(hlo.sum_(rows, 1) > 0.0),
        "RuntimeError",
        "invalid multinomial distribution (sum of probabilities <= 0)",
    )
    picked = _with_replacement(rows, num_samples) if replacement else _without_replacement(rows, num_samples)
    return picked if self.ndim == 2 else hlo.squeeze(picked, 0)


def _with_replacement(rows: Value, count: int) -> Value:
    """Inverts each row's distribution function: how many partial sums the uniform number has passed."""
    (sums,) = hlo.cumulative([rows], [0], 1, lambda a, b: [a + b])
    n = rows.shape[1]
    total = hlo.slice_dim(sums, 1, n - 1, n)
    u = philox.uniform((rows.shape[0], count), rows.dtype) * total
    passed = hlo.unsqueeze(sums, 1) <= hlo.unsqueeze(u, 2)
    index = hlo.sum_(hlo.convert(passed, torch.int64), 2)
    last = hlo.reduce_max(hlo.select(rows > 0.0, hlo.iota(rows.shape, 1), 0), 1, keepdim=True)
    return hlo.minimum(index, last)  # rounding may leave u at the total


def _without_replacement(rows: Value, count: int) -> Value:
    """Exponential race: the arrivals Exp(1) / weight in order are draws without replacement; weight 0 comes last."""
    arrival = standard_exponential(rows.shape, rows.dtype) / rows
    if count == 1:
        return hlo.unsqueeze(hlo.argreduce(arrival, 1, largest=False)[1], 1)
    _, order = hlo.sort([arrival, hlo.iota(rows.shape, 1)], 1, lambda a, b, i, j: a < b)
    return hlo.slice_dim(order, 1, 0, count)
