"""Scaled dot-product attention, forward and backward, and the fast paths of the transformer modules.

Query heads that share a key head (grouped queries) become more rows of that head's matrix product,
so keys and values are never repeated. Everything is computed in float32 below 32 bits. A score
matrix too large to write out is made for a block of queries at a time, in a loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from torch_neuronx.lowering import hlo, philox
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.module import current, rng_state
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value

NEGATIVE_INFINITY = float("-inf")
LARGE_SCORES = 1 << 24  # elements above which the scores are made in blocks
BLOCK_SCORES = 1 << 22


@dataclass(frozen=True)
class _Problem:
    """query (batch, heads, L, D) against key and value (batch, key heads, S, D or D_v)."""

    query: Value
    key: Value
    value: Value
    bias: Value | None
    is_causal: bool
    scale: Scalar | None
    dropout: float
    first_row: Value | None = None  # position of query row 0 when this is a block of a larger problem

    @property
    def groups(self) -> int:
        heads, key_heads = self.query.shape[1], self.key.shape[1]
        if key_heads == 0 or heads % key_heads:
            raise Unsupported(f"{heads} query heads do not divide into {key_heads} key heads")
        return heads // key_heads

    @property
    def inner(self) -> torch.dtype:
        return compute_dtype(self.query.dtype)

    @property
    def score_shape(self) -> tuple[int, ...]:
        return (*self.query.shape[:3], self.key.shape[2])

    def rows(self, x: Value) -> Value:
        """(batch * key heads, groups * L, D): query heads as rows of their key head."""
        b, h, n, d = x.shape
        return hlo.reshape(hlo.convert(x, self.inner), (b * (h // self.groups), self.groups * n, d))

    def columns(self, x: Value) -> Value:
        """(batch * key heads, S, D)."""
        b, h, n, d = x.shape
        return hlo.reshape(hlo.convert(x, self.inner), (b * h, n, d))

    def factor(self) -> Value:
        if self.scale is None:
            depth = self.query.shape[3]
            return hlo.constant(1 / math.sqrt(depth) if depth else 1.0, self.inner)
        return hlo.convert(hlo.as_value(self.scale), self.inner)

    def scores(self) -> Value:
        """(batch, heads, L, S), scaled, biased and masked."""
        q = self.rows(self.query) * self.factor()
        s = hlo.dot_general(q, self.columns(self.key), ([2], [2]), ([0], [0]))
        s = hlo.reshape(s, self.score_shape)
        if self.bias is not None:
            if self.bias.dtype is torch.bool:
                s = hlo.select(self.bias, s, NEGATIVE_INFINITY)
            else:
                s = s + hlo.convert(self.bias, self.inner)
        if self.is_causal:
            row = hlo.iota(s.shape[2:], 0)
            row = row if self.first_row is None else row + self.first_row
            s = hlo.select(hlo.le(hlo.iota(s.shape[2:], 1), row), s, NEGATIVE_INFINITY)
        return s

    def kept(self, uniform: Value) -> Value:
        """The dropout mask times its scale."""
        scale = 1 / (1 - self.dropout) if self.dropout < 1 else 0.0
        return hlo.select(hlo.ge(uniform, self.dropout), hlo.constant(scale, self.inner), 0)

    def block_rows(self) -> int | None:
        """Query rows per block, or None when the scores are made at once."""
        rows, size = self.query.shape[2], math.prod(self.score_shape)
        if size <= LARGE_SCORES or self.dropout:
            return None
        block = rows
        while block % 2 == 0 and size * block // rows > BLOCK_SCORES:
            block //= 2
        return block if block < rows else None

    def block(self, start: Value, rows: int) -> _Problem:
        """The same problem for query rows start, start + 1, ..."""
        bias = self.bias
        if bias is not None and bias.ndim > 1 and bias.shape[-2] != 1:
            bias = _rows_from(bias, start, rows, bias.ndim - 2)
        return replace(self, query=_rows_from(self.query, start, rows, 2), bias=bias, first_row=start)


def _rows_from(x: Value, start: Value, rows: int, dim: int) -> Value:
    starts: list[Scalar] = [0] * x.ndim
    starts[dim] = start
    return hlo.dynamic_slice(x, starts, [rows if d == dim else n for d, n in enumerate(x.shape)])


def _put_rows(x: Value, rows: Value, start: Value) -> Value:
    return hlo.dynamic_update_slice(x, rows, [start if d == 2 else 0 for d in range(x.ndim)])


def _product(p: _Problem, weights: Value) -> Value:
    """weights (batch, heads, L, S) times the values: (batch, heads, L, D_v)."""
    w = hlo.reshape(weights, (p.key.shape[0] * p.key.shape[1], -1, p.key.shape[2]))
    out = hlo.dot_general(w, p.columns(p.value), ([2], [1]), ([0], [0]))
    return hlo.reshape(out, (*p.query.shape[:3], p.value.shape[3]))


def _attend(p: _Problem, uniform: Value | None) -> tuple[Value, Value]:
    """(output, log-sum-exp of each row); a row that sees nothing gives zeros."""
    rows = p.block_rows()
    if rows is None:
        return _attend_at_once(p, uniform)

    def body(start: Value, out: Value, logsumexp: Value) -> list[Value]:
        part, lse = _attend_at_once(p.block(start, rows), None)
        return [start + rows, _put_rows(out, part, start), _put_rows(logsumexp, lse, start)]

    total, shape = p.query.shape[2], p.query.shape[:3]
    out, logsumexp = hlo.full((*shape, p.value.shape[3]), 0, p.query.dtype), hlo.full(shape, 0, p.inner)
    start = hlo.constant(0, torch.int64)
    _, out, logsumexp = hlo.while_loop([start, out, logsumexp], lambda i, *_: hlo.lt(i, total), body)
    return out, logsumexp


def _attend_at_once(p: _Problem, uniform: Value | None) -> tuple[Value, Value]:
    s = p.scores()
    if 0 in s.shape:
        return hlo.full((*s.shape[:3], p.value.shape[3]), 0, p.query.dtype), hlo.full(s.shape[:3], 0, p.inner)
    peak = hlo.reduce_max(s, 3, keepdim=True)
    peak = hlo.select(hlo.eq(peak, NEGATIVE_INFINITY), 0, peak)
    weights = hlo.exponential(s - peak)
    total = hlo.sum_(weights, 3, keepdim=True)
    logsumexp = hlo.squeeze(hlo.log(total) + peak, 3)
    if uniform is not None:
        weights = weights * p.kept(uniform)
    seen = hlo.ne(total, 0)
    out = hlo.select(seen, hlo.divide(_product(p, _as_factor(p, weights)), hlo.select(seen, total, 1)), 0)
    return hlo.convert(out, p.query.dtype), logsumexp


def _log_sum_exp(s: Value) -> Value:
    """(batch, heads, L, 1)."""
    peak = hlo.reduce_max(s, 3, keepdim=True)
    peak = hlo.select(hlo.eq(peak, NEGATIVE_INFINITY), 0, peak)
    return hlo.log(hlo.sum_(hlo.exponential(s - peak), 3, keepdim=True)) + peak


def _as_factor(p: _Problem, x: Value) -> Value:
    """Factors of a matrix product have the tensors' precision, as in every flash attention."""
    return hlo.convert(hlo.convert(x, p.query.dtype), p.inner)


def _gradients(
    p: _Problem, grad: Value, out: Value, logsumexp: Value, uniform: Value | None
) -> tuple[Value, Value, Value, Value | None]:
    """Gradients of query, key, value and, when there is a bias, of the scores."""
    rows = p.block_rows()
    if rows is None or p.bias is not None:
        grads: tuple[Value, Value, Value, Value | None] = _gradients_at_once(p, grad, out, logsumexp, uniform)
    else:
        grads = _gradients_in_blocks(p, grad, out, logsumexp, rows)
    d_query, d_key, d_value = (
        hlo.convert(hlo.reshape(x, y.shape), y.dtype) for x, y in zip(grads[:3], (p.query, p.key, p.value), strict=True)
    )
    return d_query, d_key, d_value, grads[3]


def _gradients_in_blocks(
    p: _Problem, grad: Value, out: Value, logsumexp: Value, rows: int
) -> tuple[Value, Value, Value, Value | None]:
    def body(start: Value, d_query: Value, d_key: Value, d_value: Value) -> list[Value]:
        grad_rows, out_rows, sums = (_rows_from(x, start, rows, 2) for x in (grad, out, logsumexp))
        block = p.block(start, rows)
        dq, dk, dv, _ = _gradients_at_once(block, grad_rows, out_rows, sums, None)
        dq = hlo.reshape(dq, block.query.shape)
        return [start + rows, _put_rows(d_query, dq, start), d_key + dk, d_value + dv]

    total, start = p.query.shape[2], hlo.constant(0, torch.int64)
    zeros = [hlo.full(s, 0, p.inner) for s in (p.query.shape, p.columns(p.key).shape, p.columns(p.value).shape)]
    _, d_query, d_key, d_value = hlo.while_loop([start, *zeros], lambda i, *_: hlo.lt(i, total), body)
    return d_query, d_key, d_value, None


def _gradients_at_once(
    p: _Problem, grad: Value, out: Value, logsumexp: Value, uniform: Value | None
) -> tuple[Value, Value, Value, Value]:
    """In the compute dtype and, for query, key and value, in the layout of the matrix products."""
    g, b = hlo.convert(grad, p.inner), p.key.shape[0] * p.key.shape[1]
    s = p.scores()
    coarse = p.inner is torch.float64  # torch keeps the log-sum-exp in float32
    lse = _log_sum_exp(s) if coarse else hlo.unsqueeze(hlo.convert(logsumexp, p.inner), 3)
    weights = hlo.exponential(s - hlo.select(hlo.eq(lse, NEGATIVE_INFINITY), 0, lse))
    kept = p.kept(uniform) if uniform is not None else None
    dropped = weights if kept is None else weights * kept

    def as_rows(x: Value) -> Value:
        return hlo.reshape(x, (b, -1, x.shape[3]))

    d_value = hlo.dot_general(as_rows(_as_factor(p, dropped)), p.rows(g), ([1], [1]), ([0], [0]))
    d_weights = hlo.dot_general(p.rows(g), p.columns(p.value), ([2], [2]), ([0], [0]))
    d_weights = hlo.reshape(d_weights, s.shape)
    if kept is not None:
        d_weights = d_weights * kept
    inner = hlo.sum_(g * hlo.convert(out, p.inner), 3, keepdim=True)
    d_scores = weights * (d_weights - inner)
    scaled = as_rows(_as_factor(p, d_scores) * p.factor())
    d_query = hlo.dot_general(scaled, p.columns(p.key), ([2], [1]), ([0], [0]))
    d_key = hlo.dot_general(scaled, p.rows(p.query), ([1], [1]), ([0], [0]))
    return d_query, d_key, d_value, d_scores


def _summed_to(x: Value, like: Value) -> Value:
    """Reduces a broadcast gradient to the shape of what was broadcast."""
    lead = x.ndim - like.ndim
    dims = [d for d in range(x.ndim) if d < lead or like.shape[d - lead] == 1]
    return hlo.convert(hlo.reshape(hlo.sum_(x, dims) if dims else x, like.shape), like.dtype)


def _four(x: Value) -> Value:
    """(heads, L, D) as one batch."""
    return hlo.unsqueeze(x, 0) if x.ndim == 3 else x


def _uniform(p: _Problem) -> Value:
    return hlo.convert(philox.uniform(p.score_shape, torch.float32), p.inner)


def _noise(p: _Problem, seed: Value, offset: Value) -> Value | None:
    """The uniform numbers of the forward pass, drawn again from its generator state."""
    if p.dropout == 0:
        return None
    program = current()
    saved = program.rng_seed, program.rng_offset, program.rng_blocks
    program.rng_seed, program.rng_offset, program.rng_blocks = hlo.reshape(seed, ()), hlo.reshape(offset, ()), 0
    try:
        return _uniform(p)
    finally:
        program.rng_seed, program.rng_offset, program.rng_blocks = saved


@lower("aten::_scaled_dot_product_fused_attention_overrideable", random=True, attributes=["dropout_p"])
def fused_attention(
    query: Value,
    key: Value,
    value: Value,
    attn_bias: Value | None,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: Scalar | None,
) -> tuple[Value | int | None, ...]:
    q, k, v = _four(query), _four(key), _four(value)
    p = _Problem(q, k, v, attn_bias, is_causal, scale, dropout_p)
    seed, offset = rng_state()[0], philox.offset_now()
    uniform = _uniform(p) if dropout_p else None
    out, logsumexp = _attend(p, uniform)
    out = hlo.reshape(out, (*query.shape[:-1], value.shape[-1]))
    logsumexp = hlo.convert(logsumexp, torch.float32)
    return out, logsumexp, None, None, q.shape[2], k.shape[2], seed, offset, None


@lower("aten::_scaled_dot_product_fused_attention_overrideable_backward", attributes=["dropout_p"])
def fused_attention_backward(
    grad_out: Value | None,
    query: Value,
    key: Value,
    value: Value,
    attn_bias: Value | None,
    grad_input_mask: Sequence[bool],
    out: Value,
    logsumexp: Value,
    cum_seq_q: Value | None,
    cum_seq_k: Value | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Value,
    philox_offset: Value,
    *,
    scale: Scalar | None,
) -> tuple[Value | None, ...]:
    if grad_out is None:  # nothing depends on the result
        return None, None, None, None
    p = _Problem(_four(query), _four(key), _four(value), attn_bias, is_causal, scale, dropout_p)
    noise = _noise(p, philox_seed, philox_offset)
    dq, dk, dv, d_scores = _gradients(p, _four(grad_out), _four(out), logsumexp, noise)
    d_bias = None if attn_bias is None or d_scores is None else _summed_to(d_scores, attn_bias)
    grads = [hlo.reshape(g, x.shape) for g, x in zip((dq, dk, dv), (query, key, value), strict=True)]
    return (*grads, d_bias)


@lower("aten::_scaled_dot_product_flash_attention_for_cpu", bind=False, attributes=["dropout_p"])
def flash_attention(
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Value | None,
    scale: Scalar | None,
) -> tuple[Value, Value]:
    if dropout_p:
        raise Unsupported("flash attention on the CPU has no dropout")
    return _attend(_Problem(query, key, value, attn_mask, is_causal, scale, 0.0), None)


@lower("aten::_scaled_dot_product_flash_attention_for_cpu_backward", bind=False, attributes=["dropout_p"])
def flash_attention_backward(
    grad_out: Value,
    query: Value,
    key: Value,
    value: Value,
    out: Value,
    logsumexp: Value,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Value | None,
    scale: Scalar | None,
) -> tuple[Value, Value, Value]:
    p = _Problem(query, key, value, attn_mask, is_causal, scale, 0.0)
    dq, dk, dv, _ = _gradients(p, grad_out, out, logsumexp, None)
    return dq, dk, dv
