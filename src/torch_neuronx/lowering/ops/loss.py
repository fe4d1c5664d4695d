"""Losses on elements: squared, absolute, Huber, cross entropy on probabilities, margins."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.promotion import apply, promote
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value

NONE, MEAN, SUM = 0, 1, 2


def reduced(loss: Value, reduction: int, result: torch.dtype) -> Value:
    """The loss per element, or the mean or sum of what the CPU has rounded per element."""
    loss = hlo.convert(loss, result)
    if reduction == NONE:
        return loss
    total = hlo.sum_(hlo.convert(loss, compute_dtype(result)))
    return hlo.convert(total / float(loss.numel) if reduction == MEAN else total, result)


def number(x: Scalar, dtype: torch.dtype) -> Value:
    return hlo.convert(hlo.as_value(x), dtype)


def _compute(*xs: Value) -> tuple[torch.dtype, list[Value]]:
    """(promoted dtype, operands in its compute dtype)."""
    dtype, values = promote(*xs)
    return dtype, [hlo.convert(v, compute_dtype(dtype)) for v in values]


def _share(numel: int, reduction: int, dtype: torch.dtype, factor: float = 1.0) -> Value:
    """What multiplies each element's gradient, rounded as the CPU's kernels round it.

    Opaque, or XLA multiplies it with another number first.
    """
    share = hlo.constant(factor / numel if reduction == MEAN and numel else factor, dtype)
    return hlo.opaque(share) if compute_dtype(dtype) != dtype else share


# Where a row says "in steps", the CPU's kernel rounds to the tensors' dtype at each step. Which kernels do, in which
# dtype, is a matter of how they are vectorised; in bfloat16 it decides most results.


@lower("aten::mse_loss")
def mse_loss(self: Value, target: Value, reduction: int = MEAN) -> Value:
    dtype, (a, b) = promote(self, target)  # in steps
    apart = a - b
    return reduced(apart * apart, reduction, dtype)


@lower("aten::mse_loss_backward")
def mse_loss_backward(grad_output: Value, self: Value, target: Value, reduction: int) -> Value:
    dtype, (a, b) = promote(self, target)  # in steps
    return _share(self.numel, reduction, dtype, 2.0) * (a - b) * hlo.convert(grad_output, dtype)


@lower("aten::smooth_l1_loss")
def smooth_l1_loss(self: Value, target: Value, reduction: int = MEAN, beta: Scalar = 1.0) -> Value:
    dtype, (a, b) = promote(self, target) if self.dtype is torch.float16 else _compute(self, target)
    z, edge = hlo.abs_(a - b), number(beta, a.dtype)
    require(hlo.ge(edge, 0.0), "RuntimeError", "smooth_l1_loss does not support negative values for beta.")
    return reduced(hlo.select(hlo.lt(z, edge), 0.5 * z * z / edge, z - 0.5 * edge), reduction, dtype)


@lower("aten::smooth_l1_loss_backward")
def smooth_l1_loss_backward(grad_output: Value, self: Value, target: Value, reduction: int, beta: Scalar) -> Value:
    dtype, (a, b) = _compute(self, target)
    x, edge = a - b, number(beta, a.dtype)
    slope = hlo.select(hlo.lt(hlo.abs_(x), edge), x / edge, hlo.sign(x))
    return hlo.convert(slope * _share(self.numel, reduction, x.dtype) * hlo.convert(grad_output, x.dtype), dtype)


@lower("aten::huber_loss")
def huber_loss(self: Value, target: Value, reduction: int = MEAN, delta: Scalar = 1.0) -> Value:
    dtype, (a, b) = promote(self, target) if self.dtype is torch.bfloat16 else _compute(self, target)
    z, edge = hlo.abs_(a - b), number(delta, a.dtype)
    require(hlo.gt(edge, 0.0), "RuntimeError", "huber_loss does not support non-positive values for delta.")
    return reduced(hlo.select(hlo.le(z, edge), 0.5 * z * z, edge * (z - 0.5 * edge)), reduction, dtype)


@lower("aten::huber_loss_backward")
def huber_loss_backward(grad_output: Value, self: Value, target: Value, reduction: int, delta: Scalar) -> Value:
    dtype, (a, b) = promote(self, target)  # in steps
    x, edge, g = a - b, number(delta, dtype), hlo.convert(grad_output, dtype)
    share = _share(self.numel, reduction, dtype)
    outside = share * edge * g
    return hlo.select(hlo.le(x, -edge), -outside, hlo.select(hlo.ge(x, edge), outside, share * x * g))


def _probability(x: Value, name: str) -> None:
    inside = hlo.ge(x, 0) & hlo.le(x, 1)
    require(hlo.all_(inside), "RuntimeError", f"all elements of {name} should be between 0 and 1")


@lower("aten::binary_cross_entropy")
def binary_cross_entropy(self: Value, target: Value, weight: Value | None = None, reduction: int = MEAN) -> Value:
    dtype, (x, y) = promote(self, target)  # in steps
    _probability(x, "input")
    _probability(y, "target")
    log, log_of_rest = apply(hlo.log, x), apply(lambda v: hlo.log1p(-v), x)
    loss = (y - 1.0) * hlo.maximum(log_of_rest, -100.0) - y * hlo.maximum(log, -100.0)
    if weight is not None:
        loss = loss * hlo.convert(weight, dtype)
    return reduced(loss, reduction, dtype)


@lower("aten::binary_cross_entropy_backward")
def binary_cross_entropy_backward(
    grad_output: Value, self: Value, target: Value, weight: Value | None = None, reduction: int = MEAN
) -> Value:
    dtype, (x, y) = promote(self, target)  # in steps
    grad = hlo.convert(grad_output, dtype) * (x - y) / hlo.maximum((1.0 - x) * x, 1e-12)
    if weight is not None:
        grad = grad * hlo.convert(weight, dtype)
    return apply(lambda v: v / float(self.numel), grad) if reduction == MEAN else grad


@lower("aten::binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    self: Value,
    target: Value,
    weight: Value | None = None,
    pos_weight: Value | None = None,
    reduction: int = MEAN,
) -> Value:
    present = [v for v in (weight, pos_weight) if v is not None]
    dtype, (x, y, *rest) = promote(self, target, *present)  # in steps
    log_sigmoid = apply(lambda v: hlo.minimum(v, 0.0) - hlo.log1p(hlo.exponential(-hlo.abs_(v))), x)
    if pos_weight is not None:
        log_sigmoid = log_sigmoid * ((rest[-1] - 1.0) * y + 1.0)
    loss = (1.0 - y) * x - log_sigmoid
    return reduced(loss if weight is None else loss * rest[0], reduction, dtype)


def _exp_of_minus_margin(x: Value, y: Value) -> Value:
    """Rounded at each step, as the CPU's sequence of ops is: in float16 it is infinite from 11.1 on."""
    return apply(hlo.exponential, apply(lambda a, b: -a * b, x, y))


@lower("aten::soft_margin_loss")
def soft_margin_loss(self: Value, target: Value, reduction: int = MEAN) -> Value:
    z = _exp_of_minus_margin(self, target)
    return reduced(hlo.convert(apply(hlo.log1p, z), compute_dtype(z.dtype)), reduction, z.dtype)


@lower("aten::soft_margin_loss_backward")
def soft_margin_loss_backward(grad_output: Value, self: Value, target: Value, reduction: int) -> Value:
    z = _exp_of_minus_margin(self, target)
    slope = apply(hlo.multiply, target, z)
    slope = apply(hlo.multiply, slope, _share(self.numel, reduction, z.dtype, -1.0))
    slope = apply(hlo.divide, slope, apply(lambda v: v + 1.0, z))
    return apply(hlo.multiply, slope, grad_output)


def _gradient(slope: Value, grad_output: Value, numel: int, reduction: int, result: torch.dtype) -> Value:
    grad = slope * hlo.convert(grad_output, slope.dtype)
    return hlo.convert(grad / float(numel) if reduction == MEAN else grad, result)


def _batched(x: Value) -> Value:
    """(N, C) from (N, C), (C,) or a 0-d tensor."""
    return x if x.ndim == 2 else hlo.reshape(x, (1, x.numel))


def _multi_margin(
    self: Value, target: Value, p: int, margin: Scalar, weight: Value | None, build: Callable[..., Value]
) -> Value:
    """build(hinge, wrong, x, one_hot, scale) over (N, C): wrong marks classes other than the target."""
    x = _batched(hlo.convert(self, compute_dtype(self.dtype)))
    n, c = x.shape
    t = hlo.reshape(hlo.convert(target, torch.int64), (n, 1))
    require(hlo.all_(hlo.ge(t, 0) & hlo.lt(t, c)), "RuntimeError", "target out of range")
    hot = hlo.eq(hlo.iota((n, c), 1), t)
    at_target = hlo.sum_(hlo.select(hot, x, 0.0), 1, True)
    hinge = hlo.maximum(number(margin, x.dtype) - at_target + x, 0.0)
    hinge = hlo.select(hot, 0.0, hinge)
    scale = hlo.full((n, 1), 1.0 / c if c else 0.0, x.dtype)
    if weight is not None:
        w = hlo.reshape(hlo.convert(weight, x.dtype), (1, c))
        scale = scale * hlo.sum_(hlo.select(hot, w, 0.0), 1, True)
    return build(hinge, hot, scale)


@lower("aten::multi_margin_loss", attributes=["p"])
def multi_margin_loss(
    self: Value,
    target: Value,
    p: int = 1,
    margin: Scalar = 1,
    weight: Value | None = None,
    reduction: int = MEAN,
) -> Value:
    def build(hinge: Value, hot: Value, scale: Value) -> Value:
        loss = hlo.sum_((hinge if int(p) == 1 else hinge * hinge) * scale, 1)
        return reduced(loss if reduction != NONE else hlo.reshape(loss, target.shape), reduction, self.dtype)

    return _multi_margin(self, target, p, margin, weight, build)


@lower("aten::multi_margin_loss_backward", attributes=["p"])
def multi_margin_loss_backward(
    grad_output: Value,
    self: Value,
    target: Value,
    p: int,
    margin: Scalar,
    weight: Value | None = None,
    reduction: int = MEAN,
) -> Value:
    def build(hinge: Value, hot: Value, scale: Value) -> Value:
        slope = hlo.convert(hlo.gt(hinge, 0.0), hinge.dtype) if int(p) == 1 else 2.0 * hinge
        slope = slope * scale
        slope = hlo.select(hot, -hlo.sum_(slope, 1, True), slope)
        n = slope.shape[0]
        g = hlo.convert(grad_output, slope.dtype)
        g = hlo.reshape(g, (n, 1)) if reduction == NONE else hlo.reshape(g, (1, 1))
        return hlo.reshape(_gradient(slope, g, n, reduction, self.dtype), self.shape)

    return _multi_margin(self, target, p, margin, weight, build)


def _listed(target: Value, c: int) -> tuple[Value, Value]:
    """(bool (N, T): entry t names a target, bool (N, C): class c is a target); a negative entry ends a row."""
    n, t = target.shape
    require(hlo.all_(hlo.ge(target, -1) & hlo.lt(target, c)), "RuntimeError", "argument #2 'target' is out of range")
    ended = hlo.cumulative([hlo.lt(target, 0)], [False], 1, lambda a, b: [a | b])[0]
    named = hlo.not_(ended)
    hits = hlo.eq(hlo.reshape(target, (n, t, 1)), hlo.iota((n, t, c), 2)) & hlo.reshape(named, (n, t, 1))
    return named, hlo.any_(hits, 1)


def _pairs(x: Value, target: Value, named: Value, is_target: Value) -> tuple[Value, Value]:
    """((N, T, C) hinge 1 - x[target t] + x[c] where t is named and c is no target, x's one-hot of target t)."""
    n, c = x.shape
    t = target.shape[1]
    hot = hlo.eq(hlo.reshape(target, (n, t, 1)), hlo.iota((n, t, c), 2))
    at_target = hlo.sum_(hlo.select(hot, hlo.reshape(x, (n, 1, c)), 0.0), 2, True)
    hinge = hlo.maximum(1.0 - at_target + hlo.reshape(x, (n, 1, c)), 0.0)
    counts = hlo.reshape(named, (n, t, 1)) & hlo.not_(hlo.reshape(is_target, (n, 1, c)))
    return hlo.select(counts, hinge, 0.0), hot


@lower("aten::multilabel_margin_loss_forward")
def multilabel_margin_loss(self: Value, target: Value, reduction: int) -> tuple[Value, Value]:
    x, labels = _batched(hlo.convert(self, compute_dtype(self.dtype))), _batched(target)
    c = x.shape[1]
    named, is_target = _listed(labels, c)
    hinge, _ = _pairs(x, labels, named, is_target)
    loss = hlo.sum_(hinge, [1, 2]) / float(c)
    if self.ndim < 2:
        loss = hlo.reshape(loss, ())
    return reduced(loss, reduction, self.dtype), hlo.reshape(hlo.convert(is_target, self.dtype), target.shape)


@lower("aten::multilabel_margin_loss_backward")
def multilabel_margin_loss_backward(
    grad_output: Value, self: Value, target: Value, reduction: int, is_target: Value
) -> Value:
    x, labels = _batched(hlo.convert(self, compute_dtype(self.dtype))), _batched(target)
    n, c = x.shape
    named, members = _listed(labels, c)
    hinge, hot = _pairs(x, labels, named, members)
    active = hlo.convert(hlo.gt(hinge, 0.0), x.dtype)
    pushed = hlo.select(hot, -hlo.sum_(active, 2, True), 0.0)
    slope = hlo.sum_(active + pushed, 1) / float(c)
    g = hlo.convert(grad_output, x.dtype)
    g = hlo.reshape(g, (n, 1)) if reduction == NONE else hlo.reshape(g, (1, 1))
    return hlo.reshape(_gradient(slope, g, n, reduction, self.dtype), self.shape)
