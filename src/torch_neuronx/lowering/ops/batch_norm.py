"""Batch normalisation, local and synchronised."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.axes import extent
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.ops.norm import Gradients, inverse_std, saved_dtype
from torch_neuronx.lowering.ops.reduce import moments
from torch_neuronx.lowering.table import Writes, lower
from torch_neuronx.lowering.value import Scalar, Value


def _over(x: Value) -> list[int]:
    return [d for d in range(x.ndim) if d != 1]


def per_channel(v: Value, x: Value) -> Value:
    """A (C,) vector in x's dtype, shaped against (N, C, ...)."""
    shape = [1] * x.ndim
    shape[1] = x.shape[1]
    return hlo.reshape(hlo.convert(v, x.dtype), shape)


def applied(x: Value, mean: Value, invstd: Value, weight: Value | None, bias: Value | None) -> Value:
    out = (x - per_channel(mean, x)) * per_channel(invstd, x)
    if weight is not None:
        out = out * per_channel(weight, x)
    return out if bias is None else out + per_channel(bias, x)


def _statistics(x: Value) -> tuple[Value, Value]:
    """(mean, biased variance) per channel."""
    var, mean = moments(x, _over(x), 0)
    return hlo.flatten(mean), hlo.flatten(var)


def blended(running: Value | None, batch: Value, momentum: Scalar) -> Value | None:
    if running is None:
        return None
    m = hlo.convert(hlo.as_value(momentum), batch.dtype)
    return hlo.convert(hlo.convert(running, batch.dtype) * (1.0 - m) + batch * m, running.dtype)


def _forward(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: Scalar,
    eps: Scalar,
) -> tuple[Value, Value, Value, Value | None, Value | None]:
    """(output, saved mean, saved 1/std, new running mean, new running variance)."""
    x = hlo.convert(input, compute_dtype(input.dtype))
    if training:
        mean, var = _statistics(x)
        n = extent(x, _over(x))
        unbiased = var * (n / (n - 1)) if n > 1 else var / 0.0
        new_mean, new_var = blended(running_mean, mean, momentum), blended(running_var, unbiased, momentum)
    else:
        assert running_mean is not None and running_var is not None
        mean, var = hlo.convert(running_mean, x.dtype), hlo.convert(running_var, x.dtype)
        new_mean, new_var = running_mean, running_var
    invstd = inverse_std(var, eps)
    saved = saved_dtype(input, weight, bias, running_mean, running_var)
    if training:  # the CPU normalises with what it saves
        mean, invstd = hlo.convert(mean, saved), hlo.convert(invstd, saved)
    out = hlo.convert(applied(x, mean, invstd, weight, bias), input.dtype)
    if not training:  # nothing to save, as on the CPU: the backward pass reads the running statistics
        mean = invstd = hlo.full((0,), 0, saved)
    return out, mean, invstd, new_mean, new_var


def _writing(returns: Sequence[Value], training: bool, new_mean: Value | None, new_var: Value | None) -> Writes:
    new = {"running_mean": new_mean, "running_var": new_var} if training else {}
    return Writes(tuple(returns), {name: v for name, v in new.items() if v is not None})


@lower("aten::native_batch_norm", "aten::_native_batch_norm_legit")
def batch_norm(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: Scalar,
    eps: Scalar,
) -> Writes:
    out, mean, invstd, new_mean, new_var = _forward(
        input, weight, bias, running_mean, running_var, training, momentum, eps
    )
    return _writing((out, mean, invstd), training, new_mean, new_var)


@lower("aten::_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    input: Value, weight: Value | None, bias: Value | None, training: bool, momentum: Scalar, eps: Scalar
) -> tuple[Value, Value, Value]:
    return _forward(input, weight, bias, None, None, True, momentum, eps)[:3]


@lower("aten::_native_batch_norm_legit_functional")
def batch_norm_functional(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: Scalar,
    eps: Scalar,
) -> tuple[Value | None, ...]:
    return _forward(input, weight, bias, running_mean, running_var, training, momentum, eps)


@lower("aten::_native_batch_norm_legit_no_training")
def batch_norm_no_training(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: Scalar,
    eps: Scalar,
) -> tuple[Value, Value, Value]:
    return _forward(input, weight, bias, running_mean, running_var, False, momentum, eps)[:3]


def _no_reserve() -> Value:
    return hlo.full((0,), 0, torch.uint8)


@lower("aten::_batch_norm_with_update")
def batch_norm_with_update(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: Scalar,
    eps: Scalar,
) -> Writes:
    out, mean, invstd, new_mean, new_var = _forward(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return _writing((out, mean, invstd, _no_reserve()), True, new_mean, new_var)


@lower("aten::_batch_norm_with_update_functional")
def batch_norm_with_update_functional(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: Scalar,
    eps: Scalar,
) -> tuple[Value | None, ...]:
    out, mean, invstd, new_mean, new_var = _forward(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return out, mean, invstd, _no_reserve(), new_mean, new_var


@lower("aten::_batch_norm_no_update")
def batch_norm_no_update(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    momentum: Scalar,
    eps: Scalar,
) -> tuple[Value, ...]:
    out = _forward(input, weight, bias, running_mean, running_var, False, momentum, eps)
    return *out[:3], _no_reserve()


@lower("aten::native_batch_norm_backward")
def batch_norm_backward(
    grad_out: Value,
    input: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    save_mean: Value | None,
    save_invstd: Value | None,
    train: bool,
    eps: Scalar,
    output_mask: Sequence[bool],
) -> Gradients:
    count = float(extent(input, _over(input)))
    return gradients(
        grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask, count
    )


def gradients(
    grad_out: Value,
    input: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    save_mean: Value | None,
    save_invstd: Value | None,
    train: bool,
    eps: Scalar,
    output_mask: Sequence[bool],
    count: Scalar,
) -> Gradients:
    """The backward pass of statistics over `count` elements a channel."""
    inner = compute_dtype(input.dtype)
    g, x = hlo.convert(grad_out, inner), hlo.convert(input, inner)
    if train:
        assert save_mean is not None and save_invstd is not None
        mean, invstd = save_mean, save_invstd
    else:
        assert running_mean is not None and running_var is not None
        mean, invstd = running_mean, inverse_std(hlo.convert(running_var, inner), eps)
    over, n = _over(x), hlo.convert(hlo.as_value(count), inner)
    x_hat = (x - per_channel(mean, x)) * per_channel(invstd, x)
    sum_g, sum_gx = hlo.sum_(g, over), hlo.sum_(g * x_hat, over)
    grad_input = grad_weight = grad_bias = None
    like = input.dtype if weight is None else weight.dtype
    if output_mask[0]:
        if train:
            g = g - per_channel(sum_g, x) / n - x_hat * (per_channel(sum_gx, x) / n)
        scale = per_channel(invstd, x)
        scale = scale if weight is None else scale * per_channel(weight, x)
        grad_input = hlo.convert(g * scale, input.dtype)
    if output_mask[1]:
        grad_weight = hlo.convert(sum_gx, like)
    if output_mask[2]:
        grad_bias = hlo.convert(sum_g, like)
    return grad_input, grad_weight, grad_bias


@lower("aten::batch_norm_backward")
def batch_norm_backward_reserved(
    grad_out: Value,
    input: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    save_mean: Value | None,
    save_var: Value | None,
    update: bool,
    eps: Scalar,
    output_mask: Sequence[bool],
    reserve: Value,
) -> Gradients:
    return batch_norm_backward(
        grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask
    )


@lower("aten::batch_norm_stats")
def batch_norm_stats(input: Value, eps: Scalar) -> tuple[Value, Value]:
    mean, var = _statistics(hlo.convert(input, compute_dtype(input.dtype)))
    return mean, inverse_std(var, eps)


@lower("aten::batch_norm_update_stats")
def batch_norm_update_stats(
    input: Value, running_mean: Value | None, running_var: Value | None, momentum: Scalar
) -> Writes:
    x = hlo.convert(input, compute_dtype(input.dtype))
    n = extent(x, _over(x))
    mean, var = _statistics(x)
    unbiased = var * (n / (n - 1)) if n > 1 else var / 0.0
    new_mean, new_var = blended(running_mean, mean, momentum), blended(running_var, unbiased, momentum)
    saved = saved_dtype(input, running_mean, running_var)
    return _writing((hlo.convert(mean, saved), hlo.convert(var, saved)), True, new_mean, new_var)


@lower("aten::batch_norm_elemt")
def batch_norm_elemt(
    input: Value, weight: Value | None, bias: Value | None, mean: Value, invstd: Value, eps: Scalar
) -> Value:
    x = hlo.convert(input, compute_dtype(input.dtype))
    return hlo.convert(applied(x, mean, invstd, weight, bias), input.dtype)


@lower("aten::batch_norm_gather_stats_with_counts")
def batch_norm_gather_stats(
    input: Value,
    mean: Value,
    invstd: Value,
    running_mean: Value | None,
    running_var: Value | None,
    momentum: Scalar,
    eps: Scalar,
    counts: Value,
) -> Writes:
    """Joins per-process statistics (rows of mean and invstd) weighted by their element counts."""
    dtype = mean.dtype
    e = hlo.convert(hlo.as_value(eps), dtype)
    n = hlo.reshape(hlo.convert(counts, dtype), (mean.shape[0], 1))
    total = hlo.sum_(n)
    joint = hlo.sum_(mean * n, 0) / total
    apart = mean - joint
    squares = hlo.sum_(((1.0 / (invstd * invstd)) - e + apart * apart) * n, 0)
    new_mean = blended(running_mean, joint, momentum)
    new_var = blended(running_var, squares / (total - 1.0), momentum)
    return _writing((joint, inverse_std(squares / total, eps)), True, new_mean, new_var)


@lower("aten::batch_norm_gather_stats")
def batch_norm_gather_stats_equal(
    input: Value,
    mean: Value,
    invstd: Value,
    running_mean: Value | None,
    running_var: Value | None,
    momentum: Scalar,
    eps: Scalar,
    count: int,
) -> Writes:
    counts = hlo.full((mean.shape[0],), float(count), mean.dtype)
    return batch_norm_gather_stats(input, mean, invstd, running_mean, running_var, momentum, eps, counts)


@lower("aten::batch_norm_backward_reduce")
def batch_norm_backward_reduce(
    grad_out: Value,
    input: Value,
    mean: Value,
    invstd: Value,
    weight: Value | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Value | None, ...]:
    """(sum of dy, sum of dy * (x - mean), gradient of weight, gradient of bias)."""
    inner = compute_dtype(input.dtype)
    g, x = hlo.convert(grad_out, inner), hlo.convert(input, inner)
    sum_g = hlo.sum_(g, _over(x))
    sum_gx = hlo.sum_(g * (x - per_channel(mean, x)), _over(x))
    like = input.dtype if weight is None else weight.dtype
    return (
        sum_g if input_g else None,
        sum_gx if input_g else None,
        hlo.convert(sum_gx * hlo.convert(invstd, inner), like) if weight_g else None,
        hlo.convert(sum_g, like) if bias_g else None,
    )


@lower("aten::batch_norm_backward_elemt")
def batch_norm_backward_elemt(
    grad_out: Value,
    input: Value,
    mean: Value,
    invstd: Value,
    weight: Value | None,
    sum_dy: Value,
    sum_dy_xmu: Value,
    count: Value,
) -> Value:
    inner = compute_dtype(input.dtype)
    g, x = hlo.convert(grad_out, inner), hlo.convert(input, inner)
    n = hlo.sum_(hlo.convert(count, inner))
    r = hlo.convert(invstd, inner)
    mean_gx = per_channel(hlo.convert(sum_dy_xmu, inner) * r * r / n, x)
    out = g - per_channel(hlo.convert(sum_dy, inner) / n, x) - (x - per_channel(mean, x)) * mean_gx
    scale = per_channel(r, x)
    scale = scale if weight is None else scale * per_channel(weight, x)
    return hlo.convert(out * scale, input.dtype)
