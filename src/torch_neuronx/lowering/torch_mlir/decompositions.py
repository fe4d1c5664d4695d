"""Operators that Torch-MLIR does not know, in operators that it does."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torch_neuronx.lowering.errors import Unsupported

aten = torch.ops.aten


_LACKING = (
    aten._native_batch_norm_legit,
    aten._native_batch_norm_legit_functional,
    aten._native_batch_norm_legit_no_training,
    aten.native_batch_norm,
    aten.native_batch_norm_backward,
)


def table() -> dict[Any, Any]:
    """For make_fx: what Torch-MLIR asks for, what it lacks, and this device's own operators."""
    from torch._decomp import get_decompositions
    from torch_mlir.extras.fx_decomp_util import get_decomposition_table

    own = {
        aten.max_pool2d_with_indices_backward.default: _max_pool2d_backward,
        aten.scalar_tensor.default: _scalar_tensor,
        aten._scaled_dot_product_fused_attention_overrideable.default: _attention,
        aten._scaled_dot_product_fused_attention_overrideable_backward.default: _attention_backward,
    }
    return {**get_decompositions(_LACKING), **get_decomposition_table(), **own}


def _scalar_tensor(value: float, **like: Any) -> Tensor:
    return torch.full((), value, **like)


def _max_pool2d_backward(
    grad: Tensor,
    x: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Each result's gradient goes to the element it was taken from; `indices` count within an image."""
    images = math.prod(x.shape[:-2])
    flat = torch.zeros((images, x.shape[-2] * x.shape[-1]), dtype=grad.dtype, device=grad.device)
    return flat.scatter_add(1, indices.reshape(images, -1), grad.reshape(images, -1)).reshape(x.shape)


def _weights(query: Tensor, key: Tensor, bias: Tensor | None, is_causal: bool, scale: float | None) -> Tensor:
    """softmax's argument: (..., queries, keys)."""
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query, key.transpose(-2, -1)) * factor
    if is_causal:
        rows = torch.arange(query.shape[-2], device=query.device)[:, None]
        columns = torch.arange(key.shape[-2], device=query.device)[None, :]
        scores = torch.where(columns <= rows, scores, -math.inf)
    return scores if bias is None else scores + bias


def _plain(query: Tensor, key: Tensor, dropout_p: float) -> None:
    if dropout_p:
        raise Unsupported("Torch-MLIR does not draw from the device's generator, and attention with dropout needs it")
    if query.shape[-3] != key.shape[-3]:
        raise Unsupported("grouped-query attention through Torch-MLIR")


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    _plain(query, key, dropout_p)
    scores = _weights(query, key, attn_bias, is_causal, scale)
    nothing = torch.zeros((), dtype=torch.int64, device=query.device)
    logsumexp = torch.logsumexp(scores.float(), -1)
    out = torch.matmul(scores.softmax(-1), value)
    return out, logsumexp, None, None, query.shape[-2], key.shape[-2], nothing, nothing, None


def _attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    grad_input_mask: list[bool],
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    _plain(query, key, dropout_p)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    weights = torch.exp(_weights(query, key, attn_bias, is_causal, scale) - logsumexp[..., None])
    of_weights = torch.matmul(grad_out, value.transpose(-2, -1))
    of_scores = weights * (of_weights - (grad_out * out).sum(-1, keepdim=True))
    of_bias = None
    if attn_bias is not None and grad_input_mask[3]:
        of_bias = of_scores.sum_to_size(attn_bias.shape)
    return (
        torch.matmul(of_scores, key) * factor,
        torch.matmul(of_scores.transpose(-2, -1), query) * factor,
        torch.matmul(weights.transpose(-2, -1), grad_out),
        of_bias,
    )
