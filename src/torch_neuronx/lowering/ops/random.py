"""Random tensors: uniform, normal and what follows from them by a formula, integers, dropout.

Numbers come from `lowering.philox`; in-place forms (`uniform_`, `normal_`, ...) are derived from
these functional rows, and the factories (`rand`, `randn`, `randint`) end in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_neuronx.lowering import hlo, philox
from torch_neuronx.lowering.dtypes import compute_dtype, real_of
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.promotion import apply
from torch_neuronx.lowering.table import Writes, lower
from torch_neuronx.lowering.value import Scalar, Value

Generator = Any


def _number(x: Scalar, dtype: torch.dtype) -> Value:
    return hlo.convert(hlo.as_value(x), dtype)


def _check(ok: Value, message: str) -> None:
    require(hlo.all_(ok), "RuntimeError", message)


def _uniform(shape: Sequence[int], dtype: torch.dtype, low: Scalar, high: Scalar) -> Value:
    wide = compute_dtype(dtype)
    a, b = _number(low, wide), _number(high, wide)
    if isinstance(low, Value) or isinstance(high, Value):
        _check(a <= b, "uniform_ expects to return a [from, to) range, but found from > to")
    value = hlo.convert(philox.uniform(shape, dtype) * (b - a) + a, dtype)
    return hlo.select((value >= hlo.convert(b, dtype)) & (b > a), hlo.convert(a, dtype), value)  # rounded up to `to`


@lower("aten::uniform", random=True, reads_self=False)
def uniform(self: Value, low: Scalar = 0.0, high: Scalar = 1.0, *, generator: Generator = None) -> Value:
    if self.dtype.is_complex:
        return _complex(self.dtype, lambda part: _uniform(self.shape, part, low, high))
    return _uniform(self.shape, self.dtype, low, high)


def _complex(dtype: torch.dtype, draw: Callable[[torch.dtype], Value]) -> Value:
    part = real_of(dtype)
    return hlo.complex_(draw(part), draw(part))


def _normal(shape: Sequence[int], dtype: torch.dtype, mean: Scalar, std: Scalar) -> Value:
    if isinstance(std, Value):
        _check(hlo.not_(std < 0), "normal expects all elements of std >= 0.0")
    if dtype.is_complex:  # the variance is shared by both parts
        wide = compute_dtype(dtype)
        part = real_of(wide)
        scale = _number(std, part) * math.sqrt(0.5)
        centre = _number(mean, wide)
        re = philox.normal(shape, part) * scale + hlo.real(centre)
        return hlo.convert(hlo.complex_(re, philox.normal(shape, part) * scale + hlo.imag(centre)), dtype)
    wide = compute_dtype(dtype)
    return hlo.convert(philox.normal(shape, wide) * _number(std, wide) + _number(mean, wide), dtype)


@lower("aten::normal_functional", random=True, reads_self=False)
def normal(self: Value, mean: Scalar = 0.0, std: Scalar = 1.0, *, generator: Generator = None) -> Value:
    return _normal(self.shape, self.dtype, mean, std)


@lower("aten::normal.Tensor_Tensor", "aten::normal.Tensor_float", "aten::normal.float_Tensor", random=True)
def normal_tensors(mean: Scalar, std: Scalar = 1.0, *, generator: Generator = None) -> Value:
    mean, std = hlo.as_value(mean), hlo.as_value(std)
    shape = hlo.broadcast_shapes(mean.shape, std.shape)
    dtype = std.dtype if mean.weak else mean.dtype
    return _normal(shape, dtype, mean, std)


@lower("aten::log_normal", random=True, reads_self=False)
def log_normal(self: Value, mean: Scalar = 1.0, std: Scalar = 2.0, *, generator: Generator = None) -> Value:
    wide = compute_dtype(self.dtype)
    if isinstance(std, Value):
        _check(std > 0, "log_normal_ expects std > 0.0")
    drawn = philox.normal(self.shape, wide) * _number(std, wide) + _number(mean, wide)
    return hlo.convert(hlo.exponential(drawn), self.dtype)


def standard_exponential(shape: Sequence[int], dtype: torch.dtype) -> Value:
    """-log(u), never zero."""
    u = philox.positive_uniform(shape, dtype)
    half_ulp = torch.finfo(dtype).eps / 2
    return hlo.select(u >= 1.0 - half_ulp, half_ulp, -hlo.log(u))


@lower("aten::exponential", random=True, reads_self=False)
def exponential(self: Value, lambd: Scalar = 1.0, *, generator: Generator = None) -> Value:
    wide = compute_dtype(self.dtype)
    if isinstance(lambd, Value):
        _check(lambd > 0, "exponential_ expects lambda > 0.0")
    return hlo.convert(standard_exponential(self.shape, wide) / _number(lambd, wide), self.dtype)


@lower("aten::cauchy", random=True, reads_self=False)
def cauchy(self: Value, median: Scalar = 0.0, sigma: Scalar = 1.0, *, generator: Generator = None) -> Value:
    wide = compute_dtype(self.dtype)
    if isinstance(sigma, Value):
        _check(sigma > 0, "cauchy_ expects sigma > 0.0")
    eps = torch.finfo(wide).eps
    u = hlo.clamp(eps, philox.positive_uniform(self.shape, wide), 1.0 - eps)
    drawn = _number(median, wide) + _number(sigma, wide) * hlo.tan((u - 0.5) * math.pi)
    return hlo.convert(drawn, self.dtype)


@lower("aten::geometric", random=True, reads_self=False, attributes=("p",))
def geometric(self: Value, p: Scalar, *, generator: Generator = None) -> Value:
    """The number of trials up to the first success, 1, 2, ..."""
    wide = torch.float64 if self.dtype in (torch.float64, torch.int64) else torch.float32
    u = hlo.minimum(philox.positive_uniform(self.shape, wide), 1.0 - torch.finfo(wide).eps / 2)
    trials = hlo.ceil(hlo.log(u) / hlo.log1p(-_number(p, wide)))
    return hlo.convert(hlo.maximum(trials, 1.0), self.dtype)


def _bernoulli(shape: Sequence[int], p: Value, dtype: torch.dtype) -> Value:
    wide = torch.float64 if p.dtype is torch.float64 and not p.weak else torch.float32
    p = hlo.convert(p, wide)
    _check((p >= 0.0) & (p <= 1.0), "bernoulli expects every probability p to be in [0, 1]")
    return hlo.convert(philox.uniform(shape, wide) < p, dtype)


@lower("aten::bernoulli", random=True)
def bernoulli(self: Value, *, generator: Generator = None) -> Value:
    """Element-wise probabilities in self."""
    return _bernoulli(self.shape, self, self.dtype)


@lower("aten::bernoulli.p", random=True, reads_self=False)
def bernoulli_p(self: Value, p: Scalar, *, generator: Generator = None) -> Value:
    return _bernoulli(self.shape, hlo.as_value(p), self.dtype)


@lower("aten::bernoulli.Tensor", random=True, reads_self=False)
def bernoulli_tensor(self: Value, p: Value, *, generator: Generator = None) -> Value:
    return _bernoulli(self.shape, hlo.broadcast_to(p, self.shape), self.dtype)


@lower("aten::bernoulli_.float", random=True)
def bernoulli_float(self: Value, p: Scalar = 0.5, *, generator: Generator = None) -> Writes:
    return Writes((), {"self": _bernoulli(self.shape, hlo.as_value(p), self.dtype)})


@lower("aten::bernoulli_.Tensor", random=True)
def bernoulli_from_tensor(self: Value, p: Value, *, generator: Generator = None) -> Writes:
    return Writes((), {"self": _bernoulli(self.shape, hlo.broadcast_to(p, self.shape), self.dtype)})


def integers(shape: Sequence[int], low: int, count: int, dtype: torch.dtype) -> Value:
    """low, ..., low + count - 1 (count up to 2**64), each as likely as 32 or 64 random bits allow."""
    if count <= 1 << 32:
        wide = hlo.convert(philox.random_bits(shape, 32), torch.uint64)
        drawn = hlo.shift_right_logical(wide * hlo.constant(count, torch.uint64), 32)
    elif count == 1 << 64:
        drawn = philox.random_bits(shape, 64)
    else:
        drawn = hlo.remainder(philox.random_bits(shape, 64), hlo.constant(count, torch.uint64))
    number = hlo.convert(drawn, torch.int64) + hlo.constant(low, torch.int64)
    return hlo.convert(number, dtype)


def _default_range(dtype: torch.dtype) -> int:
    """random_() without bounds: every non-negative integer the dtype represents exactly."""
    if dtype.is_floating_point:
        return (1 << philox.DIGITS.get(dtype, 3)) + 1
    return 2 if dtype is torch.bool else torch.iinfo(dtype).max + 1


@lower("aten::random", random=True, reads_self=False)
def random(self: Value, *, generator: Generator = None) -> Value:
    return integers(self.shape, 0, _default_range(self.dtype), self.dtype)


@lower("aten::random.to", random=True, reads_self=False)
def random_to(self: Value, to: int, *, generator: Generator = None) -> Value:
    return integers(self.shape, 0, to, self.dtype)


@lower("aten::random.from", random=True, reads_self=False)
def random_from(self: Value, low: int, to: int | None, *, generator: Generator = None) -> Value:
    if to is not None:
        return integers(self.shape, low, to - low, self.dtype)
    last = (1 << philox.DIGITS.get(self.dtype, 3)) if self.dtype.is_floating_point else None
    top = last if last is not None else 1 if self.dtype is torch.bool else torch.iinfo(self.dtype).max
    return integers(self.shape, low, top - low + 1, self.dtype)


def _permutation(n: int, dtype: torch.dtype) -> Value:
    keys = philox.random_bits((n,), 64)
    _, order = hlo.sort([keys, hlo.iota((n,), 0)], 0, lambda a, b, i, j: a < b)
    return hlo.convert(order, dtype)


@lower("aten::randperm.generator_out", random=True)
def randperm_out(n: int, *, generator: Generator = None, out: Value) -> Writes:
    return Writes((), {"out": _permutation(n, out.dtype)})


@lower("aten::randperm.out", random=True)
def randperm_plain_out(n: int, *, out: Value) -> Writes:
    return Writes((), {"out": _permutation(n, out.dtype)})


@lower("aten::randperm", random=True, bind=False)
def randperm(n: int, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return _permutation(n, dtype or torch.int64)


@lower("aten::rand", "aten::rand.generator", random=True, bind=False)
def rand(size: Sequence[int], *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return uniform(hlo.full(tuple(size), 0, dtype or torch.get_default_dtype()))


@lower("aten::randn", "aten::randn.generator", random=True, bind=False)
def randn(size: Sequence[int], *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return _normal(tuple(size), dtype or torch.get_default_dtype(), 0.0, 1.0)


@lower("aten::rand_like", "aten::rand_like.generator", random=True, bind=False)
def rand_like(self: Value, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return uniform(hlo.full(self.shape, 0, dtype or self.dtype))


@lower("aten::randn_like", "aten::randn_like.generator", random=True, bind=False)
def randn_like(self: Value, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return _normal(self.shape, dtype or self.dtype, 0.0, 1.0)


@lower("aten::randint", "aten::randint.generator", random=True, bind=False)
def randint(high: int, size: Sequence[int], *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return integers(tuple(size), 0, high, dtype or torch.int64)


@lower("aten::randint.low", "aten::randint.low_generator", random=True, bind=False)
def randint_low(low: int, high: int, size: Sequence[int], *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return integers(tuple(size), low, high - low, dtype or torch.int64)


@lower("aten::randint_like", "aten::randint_like.generator", random=True, bind=False)
def randint_like(self: Value, high: int, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return integers(self.shape, 0, high, dtype or self.dtype)


@lower("aten::randint_like.low_dtype", "aten::randint_like.low_generator_dtype", random=True, bind=False)
def randint_like_low(self: Value, low: int, high: int, *, dtype: torch.dtype | None = None, **where: Any) -> Value:
    return integers(self.shape, low, high - low, dtype or self.dtype)


@lower("prims::normal", random=True)
def prims_normal(shape: Sequence[int], *, mean: Scalar, std: Scalar, dtype: torch.dtype, **where: Any) -> Value:
    return _normal(tuple(shape), dtype, mean, std)


@lower("prims::uniform", random=True)
def prims_uniform(shape: Sequence[int], *, low: Scalar, high: Scalar, dtype: torch.dtype, **where: Any) -> Value:
    return _uniform(tuple(shape), dtype, low, high)


@lower("aten::native_dropout", random=True)
def native_dropout(input: Value, p: Scalar, train: bool | None) -> tuple[Value, Value]:
    """(input scaled where kept, mask of what was kept)."""
    if train is False:
        return input, hlo.full(input.shape, True, torch.bool)
    wide = compute_dtype(input.dtype)
    keep_rate = 1.0 - _number(p, torch.float32)
    kept = philox.uniform(input.shape, torch.float32) < keep_rate
    scale = hlo.select(hlo.eq(keep_rate, 0.0), 0.0, 1.0 / keep_rate)
    scaled = hlo.convert(input, wide) * hlo.convert(scale, wide)
    return hlo.convert(hlo.select(kept, scaled, 0), input.dtype), kept


@lower("aten::native_dropout_backward", pointwise=True)
def native_dropout_backward(grad_output: Value, mask: Value, scale: Scalar) -> Value:
    number = hlo.as_value(float(scale)) if isinstance(scale, int) else hlo.as_value(scale)
    return apply(lambda g, m, s: g * m * s, grad_output, mask, number)


@lower("aten::_fused_dropout", random=True)
def fused_dropout(self: Value, p: Scalar, generator: Generator = None) -> tuple[Value, Value]:
    """p is the probability to keep; the mask is uint8."""
    keep = _number(p, torch.float32)
    kept = philox.uniform(self.shape, torch.float32) < keep
    wide = compute_dtype(self.dtype)
    scaled = hlo.convert(self, wide) * hlo.convert(1.0 / keep, wide)
    return hlo.convert(hlo.select(kept, scaled, 0), self.dtype), hlo.convert(kept, torch.uint8)


def rrelu(self: Value, low: Scalar, high: Scalar, training: bool) -> tuple[Value, Value]:
    """(result, noise): the slope drawn for each non-positive element, 1 elsewhere."""
    wide = compute_dtype(self.dtype)
    x, a, b = hlo.convert(self, wide), _number(low, wide), _number(high, wide)
    slope = philox.uniform(self.shape, wide) * (b - a) + a if training else (a + b) / 2.0
    noise = hlo.select(x <= 0.0, slope, 1.0) if training else hlo.broadcast_to(slope, self.shape)
    out = hlo.select(x <= 0.0, x * slope, x)
    return hlo.convert(out, self.dtype), hlo.convert(noise, self.dtype)


@lower("aten::rrelu_with_noise_functional", random=True)
def rrelu_functional(
    self: Value,
    noise: Value,
    lower: Scalar = 1 / 8,
    upper: Scalar = 1 / 3,
    training: bool = False,
    generator: Generator = None,
) -> tuple[Value, Value]:
    out, drawn = rrelu(self, lower, upper, training)
    return out, drawn if training else noise


@lower("aten::rrelu_with_noise", random=True)
def rrelu_with_noise(self: Value, noise: Value, *rest: Any) -> Writes:
    out, drawn = rrelu_functional(self, noise, *rest)
    return Writes((out,), {"noise": drawn})


@lower("aten::rrelu_with_noise_", random=True)
def rrelu_with_noise_(self: Value, noise: Value, *rest: Any) -> Writes:
    out, drawn = rrelu_functional(self, noise, *rest)
    return Writes((), {"self": out, "noise": drawn})
