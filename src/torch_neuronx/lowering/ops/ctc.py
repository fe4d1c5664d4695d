"""Connectionist temporal classification: the alpha and beta recursions as loops over time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value

_NEVER = -math.inf


def _log_sum(*terms: Value) -> Value:
    """log(sum(exp)) of equally shaped values; -inf when all of them are."""
    top = terms[0]
    for t in terms[1:]:
        top = hlo.maximum(top, t)
    safe = hlo.select(hlo.eq(top, _NEVER), 0.0, top)
    total = hlo.exponential(terms[0] - safe)
    for t in terms[1:]:
        total = total + hlo.exponential(t - safe)
    return hlo.log(total) + safe


def _lengths(lengths: Sequence[int] | Value) -> Value:
    if isinstance(lengths, Value):
        return hlo.convert(lengths, torch.int64)
    return hlo.table(np.asarray(lengths, np.int64), torch.int64)


def _padded(targets: Value, lengths: Value, longest: int) -> Value:
    """(N, longest) int64 targets from padded rows or from one concatenated row."""
    n = lengths.numel
    t = hlo.convert(targets, torch.int64)
    if t.ndim == 2:
        return hlo.slice_dim(t, 1, 0, longest)
    if t.numel == 0 or longest == 0:
        return hlo.full((n, longest), 0, torch.int64)
    ends = hlo.cumulative([lengths], [0], 0, lambda a, b: [a + b])[0]
    starts = hlo.reshape(ends - lengths, (n, 1))
    place = hlo.clamp(0, starts + hlo.iota((n, longest), 1), t.numel - 1)
    return hlo.take_rows(t, place)


class _Lattice:
    """What both recursions share: labels with blanks between, and their log-probabilities."""

    def __init__(
        self,
        log_probs: Value,
        targets: Value,
        input_lengths: Sequence[int] | Value,
        target_lengths: Sequence[int] | Value,
        blank: int,
        longest: int,
    ) -> None:
        self.steps, self.n, self.classes = log_probs.shape
        self.width = 2 * longest + 1
        self.input_lengths = hlo.reshape(_lengths(input_lengths), (self.n, 1))
        self.ends = hlo.reshape(_lengths(target_lengths), (self.n, 1)) * 2
        require(
            hlo.all_(hlo.ge(self.input_lengths, 0) & hlo.le(self.input_lengths, self.steps)),
            "RuntimeError",
            f"Expected input_lengths to have value at most {self.steps}",
        )
        shape = (self.n, self.width)
        self.at = hlo.iota(shape, 1)
        rows = _padded(targets, hlo.flatten(_lengths(target_lengths)), longest)
        # blank, t0, blank, t1, ..., blank
        self.labels = hlo.pad(rows, [0, 1], [0, 1], blank, [0, 1]) if longest else hlo.full(shape, blank, torch.int64)
        index = hlo.broadcast_to(hlo.clamp(0, self.labels, self.classes - 1), (self.steps, *shape))
        self.log_probs = hlo.take_along(log_probs, index, 2)
        two_on = hlo.pad(self.labels, [0, -2], [0, 2], -1) if self.width > 2 else hlo.full(shape, -1, torch.int64)
        two_back = hlo.pad(self.labels, [0, 2], [0, -2], -1) if self.width > 2 else hlo.full(shape, -1, torch.int64)
        self.skips_on, self.skips_back = hlo.ne(self.labels, two_on), hlo.ne(self.labels, two_back)

    def step(self, t: Value) -> Value:
        at_t = hlo.dynamic_slice(self.log_probs, [t, 0, 0], [1, self.n, self.width])
        return hlo.reshape(at_t, (self.n, self.width))

    def shifted(self, x: Value, by: int) -> Value:
        """x moved right by `by` (left when negative), -inf moving in."""
        if abs(by) >= self.width:
            return hlo.full_like(x, _NEVER)
        return hlo.pad(x, [0, by], [0, -by], _NEVER)


def _alphas(lattice: _Lattice) -> Value:
    """(T, N, width) log-probabilities of all label prefixes."""
    starts = hlo.le(lattice.at, 1) & hlo.le(lattice.at, lattice.ends)
    first = hlo.select(starts, lattice.step(hlo.constant(0, torch.int64)), _NEVER)
    shape = (lattice.steps, lattice.n, lattice.width)
    table = hlo.dynamic_update_slice(
        hlo.full(shape, _NEVER, first.dtype), hlo.reshape(first, (1, *first.shape)), [0, 0, 0]
    )

    def body(t: Value, alpha: Value, table: Value) -> list[Value]:
        skip = hlo.select(lattice.skips_back, lattice.shifted(alpha, 2), _NEVER)
        alpha = _log_sum(alpha, lattice.shifted(alpha, 1), skip) + lattice.step(t)
        row = hlo.reshape(alpha, (1, *alpha.shape))
        return [t + 1, alpha, hlo.dynamic_update_slice(table, row, [t, 0, 0])]

    start = [hlo.constant(1, torch.int64), first, table]
    return hlo.while_loop(start, lambda t, *_: hlo.lt(t, lattice.steps), body)[2]


def _forward(
    log_probs: Value,
    targets: Value,
    input_lengths: Sequence[int] | Value,
    target_lengths: Sequence[int] | Value,
    blank: int,
    longest: int,
) -> tuple[Value, Value]:
    lattice = _Lattice(log_probs, targets, input_lengths, target_lengths, blank, longest)
    n, width = lattice.n, lattice.width
    table = hlo.permute(_alphas(lattice), (1, 0, 2))
    last = hlo.clamp(0, lattice.input_lengths - 1, lattice.steps - 1)
    hot = hlo.eq(hlo.iota((n, lattice.steps, 1), 1), hlo.reshape(last, (n, 1, 1)))
    final = hlo.reduce_max(hlo.select(hlo.broadcast_to(hot, table.shape), table, _NEVER), 1)
    ending = hlo.eq(lattice.at, lattice.ends) | hlo.eq(lattice.at, lattice.ends - 1)
    final = hlo.select(ending, final, _NEVER)
    top = hlo.reduce_max(final, 1, True)
    top = hlo.select(hlo.eq(top, _NEVER), 0.0, top)
    total = hlo.log(hlo.sum_(hlo.exponential(final - top), 1)) + hlo.reshape(top, (n,))
    none = hlo.eq(hlo.reshape(lattice.input_lengths, (n,)), 0)
    empty = hlo.eq(hlo.reshape(lattice.ends, (n,)), 0)
    without_input = hlo.select(empty, hlo.full((n,), 0.0, total.dtype), hlo.full((n,), math.inf, total.dtype))
    return hlo.select(none, without_input, -total), hlo.reshape(table, (n, lattice.steps, width))


@lower("aten::_ctc_loss")
def ctc_loss(
    log_probs: Value,
    targets: Value,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Value, Value]:
    return _forward(log_probs, targets, input_lengths, target_lengths, blank, max(target_lengths, default=0))


@lower("aten::_ctc_loss.Tensor", host_inputs=True)
def ctc_loss_tensor(
    log_probs: Value,
    targets: Value,
    input_lengths: Value,
    target_lengths: Value,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Value, Value]:
    return _forward(log_probs, targets, input_lengths, target_lengths, blank, targets.shape[-1])


def _backward(
    grad: Value,
    log_probs: Value,
    targets: Value,
    input_lengths: Sequence[int] | Value,
    target_lengths: Sequence[int] | Value,
    neg_log_likelihood: Value,
    log_alpha: Value,
    blank: int,
    zero_infinity: bool = False,
) -> Value:
    lattice = _Lattice(log_probs, targets, input_lengths, target_lengths, blank, (log_alpha.shape[2] - 1) // 2)
    steps, n, width, classes = lattice.steps, lattice.n, lattice.width, lattice.classes
    alphas = hlo.permute(log_alpha, (1, 0, 2))
    inside = hlo.le(lattice.at, lattice.ends)
    ending = inside & hlo.ge(lattice.at, lattice.ends - 1)
    hot = hlo.eq(hlo.reshape(lattice.labels, (n, width, 1)), hlo.iota((n, width, classes), 2))
    one_hot = hlo.convert(hot & hlo.reshape(inside, (n, width, 1)), log_probs.dtype)
    scale = hlo.reshape(neg_log_likelihood, (n, 1))

    def body(t: Value, beta: Value, posterior: Value) -> list[Value]:
        here = lattice.step(t)
        skip = hlo.select(lattice.skips_on, lattice.shifted(beta, -2), _NEVER)
        on = _log_sum(beta, lattice.shifted(beta, -1), skip) + here
        begins = hlo.eq(lattice.input_lengths - 1, t)
        beta = hlo.select(begins, hlo.select(ending, here, _NEVER), on)
        beta = hlo.select(inside & hlo.lt(t, lattice.input_lengths), beta, _NEVER)
        alpha = hlo.reshape(hlo.dynamic_slice(alphas, [t, 0, 0], [1, n, width]), (n, width))
        joint = alpha + beta
        share = hlo.select(hlo.eq(joint, _NEVER) | hlo.eq(beta, _NEVER), 0.0, hlo.exponential(joint + scale - here))
        row = hlo.dot_general(share, one_hot, ((1,), (1,)), ((0,), (0,)))
        row = hlo.reshape(row, (1, n, classes))
        return [t - 1, beta, hlo.dynamic_update_slice(posterior, row, [t, 0, 0])]

    start = [
        hlo.constant(steps - 1, torch.int64),
        hlo.full((n, width), _NEVER, log_probs.dtype),
        hlo.full((steps, n, classes), 0.0, log_probs.dtype),
    ]
    posterior = hlo.while_loop(start, lambda t, *_: hlo.ge(t, 0), body)[2]
    out = (hlo.exponential(log_probs) - posterior) * hlo.reshape(hlo.convert(grad, log_probs.dtype), (1, n, 1))
    used = hlo.lt(hlo.iota((steps, n, 1), 0), hlo.reshape(lattice.input_lengths, (1, n, 1)))
    if zero_infinity:
        used = used & hlo.reshape(hlo.ne(neg_log_likelihood, math.inf), (1, n, 1))
    return hlo.select(hlo.broadcast_to(used, out.shape), out, 0.0)


lower("aten::_ctc_loss_backward")(_backward)
lower("aten::_ctc_loss_backward.Tensor", host_inputs=True)(_backward)
