"""Scaled dot-product attention, forward and backward, and the fast paths of the transformer modules.

Query heads that share a key head (grouped queries) become more rows of that head's matrix product,
so keys and values are never repeated. Everything is computed in float32 below 32 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.module import current, rng_state
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value

NEGATIVE_INFINITY = float("-inf")


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
            allowed = hlo.le(hlo.iota(s.shape[2:], 1, torch.int32), hlo.iota(s.shape[2:], 0, torch.int32))
            s = hlo.select(allowed, s, NEGATIVE_INFINITY)
        return s

    def kept(self, uniform: Value) -> Value:
        """The dropout mask times its scale."""
        scale = 1 / (1 - self.dropout) if self.dropout < 1 else 0.0
        return hlo.select(hlo.ge(uniform, self.dropout), hlo.constant(scale, self.inner), 0)


def _product(p: _Problem, weights: Value) -> Value:
    """weights (batch, heads, L, S) times the values: (batch, heads, L, D_v)."""
    w = hlo.reshape(weights, (p.key.shape[0] * p.key.shape[1], -1, p.key.shape[2]))
    out = hlo.dot_general(w, p.columns(p.value), ([2], [1]), ([0], [0]))
    return hlo.reshape(out, (*p.query.shape[:3], p.value.shape[3]))


def _attend(p: _Problem, uniform: Value | None) -> tuple[Value, Value]:
    """(output, log-sum-exp of each row); a row that sees nothing gives zeros."""
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
    out = hlo.select(seen, hlo.divide(_product(p, weights), hlo.select(seen, total, 1)), 0)
    return hlo.convert(out, p.query.dtype), logsumexp


def _gradients(
    p: _Problem, grad: Value, out: Value, logsumexp: Value, uniform: Value | None
) -> tuple[Value, Value, Value, Value]:
    """Gradients of query, key, value and of the scores."""
    g, b = hlo.convert(grad, p.inner), p.key.shape[0] * p.key.shape[1]
    s = p.scores()
    lse = hlo.unsqueeze(hlo.convert(logsumexp, p.inner), 3)
    weights = hlo.exponential(s - hlo.select(hlo.eq(lse, NEGATIVE_INFINITY), 0, lse))
    kept = p.kept(uniform) if uniform is not None else None
    dropped = weights if kept is None else weights * kept

    def as_rows(x: Value) -> Value:
        return hlo.reshape(x, (b, -1, x.shape[3]))

    d_value = hlo.dot_general(as_rows(dropped), p.rows(g), ([1], [1]), ([0], [0]))
    d_weights = hlo.dot_general(p.rows(g), p.columns(p.value), ([2], [2]), ([0], [0]))
    d_weights = hlo.reshape(d_weights, s.shape)
    if kept is not None:
        d_weights = d_weights * kept
    inner = hlo.sum_(g * hlo.convert(out, p.inner), 3, keepdim=True)
    d_scores = weights * (d_weights - inner)
    scaled = as_rows(d_scores * p.factor())
    d_query = hlo.dot_general(scaled, p.columns(p.key), ([2], [1]), ([0], [0]))
    d_key = hlo.dot_general(scaled, p.rows(p.query), ([1], [1]), ([0], [0]))
    shaped = zip((d_query, d_key, d_value), (p.query, p.key, p.value), strict=True)
    d_query, d_key, d_value = (hlo.convert(hlo.reshape(x, y.shape), y.dtype) for x, y in shaped)
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
    from torch_neuronx.lowering import philox

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
    seed, offset = rng_state()
    offset = offset + current().rng_blocks
    uniform = _uniform(p) if dropout_p else None
    out, logsumexp = _attend(p, uniform)
    out = hlo.reshape(out, (*query.shape[:-1], value.shape[-1]))
    logsumexp = hlo.convert(logsumexp, torch.float32)
    return out, logsumexp, None, None, q.shape[2], k.shape[2], seed, offset, None


@lower("aten::_scaled_dot_product_fused_attention_overrideable_backward", attributes=["dropout_p"])
def fused_attention_backward(
    grad_out: Value,
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
    p = _Problem(_four(query), _four(key), _four(value), attn_bias, is_causal, scale, dropout_p)
    noise = _noise(p, philox_seed, philox_offset)
    dq, dk, dv, d_scores = _gradients(p, _four(grad_out), _four(out), logsumexp, noise)
    d_bias = None if attn_bias is None else _summed_to(d_scores, attn_bias)
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
