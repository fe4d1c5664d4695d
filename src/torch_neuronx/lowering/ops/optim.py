"""Fused optimizer steps: one elementwise update per parameter, written in place.

Hyper-parameters are run-time operands, computed in float64 and rounded to the update's dtype as
torch's CPU kernels do. With `found_inf` set nothing changes; with `grad_scale` the gradients are
unscaled in place too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.table import Writes, lower
from torch_neuronx.lowering.value import Scalar, Value

Lists = Sequence[Value]


def _double(x: Scalar) -> Value:
    return hlo.convert(hlo.as_value(x), torch.float64)


def _caster(like: Value) -> Callable[[Value], Value]:
    return lambda x: hlo.convert(x, like.dtype)


def _scalar(x: Value) -> Value:
    """A one-element tensor (step, scale, found_inf) as rank 0."""
    return hlo.reshape(x, ())


@dataclass(frozen=True)
class _Step:
    """What all fused optimizers do around the update of one parameter."""

    grad_scale: Value | None
    found_inf: Value | None
    maximize: bool

    def gradient(self, grad: Value, dtype: torch.dtype) -> tuple[Value, Value]:
        """(unscaled gradient to write back, gradient to descend)."""
        g = hlo.convert(grad, dtype)
        if self.grad_scale is not None:
            g = hlo.divide(g, hlo.convert(_scalar(self.grad_scale), dtype))
        return g, -g if self.maximize else g

    def kept(self, new: Value, old: Value) -> Value:
        """`new` in old's dtype, or `old` when the gradients overflowed."""
        new = hlo.convert(new, old.dtype)
        if self.found_inf is None:
            return new
        return hlo.select(hlo.eq(_scalar(self.found_inf), 1), old, new)

    def run(self, names: Sequence[str], update: Callable[..., Sequence[Value]], *lists: Lists) -> Writes:
        """Applies update(i, gradient, param, *state) to every parameter; `names` are the lists written.

        lists[0] are the parameters, lists[1] the gradients, the rest the state it changes.
        """
        writes: dict[str, list[Value]] = {n: [] for n in names}
        if self.grad_scale is not None:
            writes["grads"] = []
        for i, (param, grad, *state) in enumerate(zip(*lists, strict=True)):
            dtype, shape = compute_dtype(param.dtype), param.shape
            grad, *old = _as_they_lie([grad, param, *state])
            unscaled, g = self.gradient(grad, dtype)
            new = update(i, g, *(hlo.convert(x, dtype) for x in old))
            for n, a, b in zip(names, new, old, strict=True):
                writes[n].append(hlo.reshape(self.kept(a, b), shape))
            if self.grad_scale is not None:
                writes["grads"].append(hlo.reshape(self.kept(unscaled, grad), shape))
        return Writes((), dict(writes))


def _as_they_lie(xs: list[Value]) -> list[Value]:
    """Flat, when all are contiguous: what is written is then the value that others read.

    Behind a reshape the compiler takes them for two, computes the state twice, and copies what it overwrites first.
    """
    return [hlo.flatten(x) for x in xs] if all(x.row_major and x.shape == xs[0].shape for x in xs) else xs


def _decayed(grad: Value, param: Value, weight_decay: Scalar) -> Value:
    """grad + weight_decay * param; a zero decay does not look at param, which may be inf."""
    factor = hlo.convert(_double(weight_decay), grad.dtype)
    return hlo.select(hlo.ne(factor, 0), grad + factor * param, grad)


def _lerp(start: Value, end: Value, weight: Value) -> Value:
    """at::lerp's two-sided formula."""
    low = start + weight * (end - start)
    high = end - (end - start) * (1 - weight)
    return hlo.select(hlo.lt(hlo.abs_(weight), 0.5), low, high)


def _adam(
    params: Lists,
    grads: Lists,
    exp_avgs: Lists,
    exp_avg_sqs: Lists,
    max_exp_avg_sqs: Lists,
    state_steps: Lists,
    *,
    lr: Scalar,
    beta1: Scalar,
    beta2: Scalar,
    weight_decay: Scalar,
    eps: Scalar,
    amsgrad: bool,
    maximize: bool,
    grad_scale: Value | None,
    found_inf: Value | None,
    decoupled: bool,
) -> Writes:
    rate, b1, b2 = _scalar(_double(lr)), _double(beta1), _double(beta2)

    def update(i: int, g: Value, param: Value, avg: Value, sq: Value, *largest: Value) -> list[Value]:
        cast = _caster(g)
        step = hlo.convert(_scalar(state_steps[i]), torch.float64)
        step_size = cast(hlo.divide(rate, 1 - hlo.power(b1, step)))
        correction = cast(hlo.sqrt(1 - hlo.power(b2, step)))
        if decoupled:
            param = param * cast(1 - rate * _double(weight_decay))
        else:
            g = _decayed(g, param, weight_decay)
        avg = _lerp(avg, g, cast(1 - b1))
        sq = sq * cast(b2) + cast(1 - b2) * g * g
        largest = tuple(hlo.maximum(x, sq) for x in largest)
        second = largest[0] if largest else sq
        denominator = hlo.divide(hlo.sqrt(second), correction) + cast(_double(eps))
        param = param - step_size * hlo.divide(avg, denominator)
        return [param, avg, sq, *largest]

    names = ["self", "exp_avgs", "exp_avg_sqs"]
    lists = [params, grads, exp_avgs, exp_avg_sqs]
    if amsgrad:
        names, lists = [*names, "max_exp_avg_sqs"], [*lists, max_exp_avg_sqs]
    return _Step(grad_scale, found_inf, maximize).run(names, update, *lists)


for _name, _decoupled in (("adam", False), ("adamw", True)):
    lower(f"aten::_fused_{_name}_", f"aten::_fused_{_name}_.tensor_lr", listwise=True)(
        partial(_adam, decoupled=_decoupled)
    )


@lower("aten::_fused_sgd_", "aten::_fused_sgd_.tensor_lr", listwise=True)
def fused_sgd(
    self: Lists,
    grads: Lists,
    momentum_buffer_list: Lists,
    *,
    weight_decay: Scalar,
    momentum: Scalar,
    lr: Scalar,
    dampening: Scalar,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Value | None,
    found_inf: Value | None,
) -> Writes:
    rate = _scalar(_double(lr))

    def update(i: int, g: Value, param: Value, *buffers: Value) -> list[Value]:
        cast = _caster(g)
        descent = _decayed(g, param, weight_decay)
        if not buffers:
            return [param - cast(rate) * descent]
        factor = cast(_double(momentum))
        damped = descent * cast(1 - _double(dampening))
        buffer = descent if is_first_step else buffers[0] * factor + damped
        descent = descent + buffer * factor if nesterov else buffer
        return [param - cast(rate) * descent, buffer]

    names, lists = ["self"], [self, grads]
    if momentum_buffer_list:
        names, lists = [*names, "momentum_buffer_list"], [*lists, momentum_buffer_list]
    return _Step(grad_scale, found_inf, maximize).run(names, update, *lists)


@lower("aten::_fused_adagrad_", "aten::_fused_adagrad_.tensor_lr", listwise=True)
def fused_adagrad(
    self: Lists,
    grads: Lists,
    state_sums: Lists,
    state_steps: Lists,
    *,
    lr: Scalar,
    lr_decay: Scalar,
    weight_decay: Scalar,
    eps: Scalar,
    maximize: bool,
    grad_scale: Value | None,
    found_inf: Value | None,
) -> Writes:
    rate = _scalar(_double(lr))

    def update(i: int, g: Value, param: Value, total: Value) -> list[Value]:
        cast = _caster(g)
        step = hlo.convert(_scalar(state_steps[i]), torch.float64)
        current = cast(hlo.divide(rate, 1 + (step - 1) * _double(lr_decay)))
        descent = _decayed(g, param, weight_decay)
        total = total + descent * descent
        return [param - current * hlo.divide(descent, hlo.sqrt(total) + cast(_double(eps))), total]

    lists = [self, grads, state_sums]
    return _Step(grad_scale, found_inf, maximize).run(["self", "state_sums"], update, *lists)
