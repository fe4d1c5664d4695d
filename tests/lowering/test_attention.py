"""Fused attention against the explicit formula, its gradients and dropout, and the transformer fast paths."""

from __future__ import annotations

import emulate
import pytest
import torch
from emulate import Lowered, compare
from torch.nn.functional import scaled_dot_product_attention

aten = torch.ops.aten
FORWARD = aten._scaled_dot_product_fused_attention_overrideable.default
BACKWARD = aten._scaled_dot_product_fused_attention_overrideable_backward.default
INFINITY = float("inf")


def _bias(kind):
    if kind == "none":
        return None
    bias = torch.randn(2, 1, 5, 7) if kind == "batch" else torch.randn(5, 7)
    if kind == "hidden row":
        bias[1] = -INFINITY
    return bias


def _reference(q, k, v, bias, causal):
    groups = q.shape[-3] // k.shape[-3]
    k, v = (t.repeat_interleave(groups, -3) for t in (k, v))
    return scaled_dot_product_attention(q, k, v, bias, 0.0, causal, scale=0.3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    ("key_heads", "bias", "causal"),
    [(4, "none", False), (2, "none", True), (4, "batch", False), (2, "shared", False), (4, "hidden row", False)],
)
def test_forward_and_gradients(key_heads, bias, causal, dtype):
    q = torch.randn(2, 5, 4, 8).transpose(1, 2).to(dtype)
    k, v = torch.randn(2, key_heads, 7, 8).to(dtype), torch.randn(2, key_heads, 7, 6).to(dtype)
    m = _bias(bias)
    m = None if m is None else m.to(dtype)
    exact = [None if t is None else t.double().requires_grad_() for t in (q, k, v, m)]
    want = _reference(*exact, causal)
    out = emulate.run(FORWARD, (q, k, v, m, 0.0, causal), {"scale": 0.3})
    assert out[4:6] == (5, 7)
    tolerance = {torch.bfloat16: 3e-2, torch.float32: 1e-4, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(out[0].double(), want, rtol=tolerance, atol=tolerance)
    g = torch.randn(want.shape).to(dtype)
    wanted = torch.autograd.grad(want, [t for t in exact if t is not None], g.double())
    saved = (out[0], out[1], None, None, 5, 7, 0.0, causal, out[6], out[7])
    got = emulate.run(BACKWARD, (g, q, k, v, m, [True] * 4, *saved), {"scale": 0.3})
    for a, e in zip([x for x in got if x is not None], wanted, strict=True):
        torch.testing.assert_close(a.double(), e, rtol=3 * tolerance, atol=3 * tolerance)


def test_dropout_is_drawn_again_in_the_gradient():
    q, k = torch.randn(2, 4, 64, 8), torch.randn(2, 4, 64, 8)
    identity = torch.eye(64).expand(2, 4, 64, 64).contiguous()
    out = emulate.run(FORWARD, (q, k, identity, None, 0.25, False), {})
    exact = [t.clone().requires_grad_() for t in (q, k)]
    weights = torch.softmax(exact[0] @ exact[1].transpose(-1, -2) / 8**0.5, -1)
    kept = out[0] != 0
    assert abs(kept.float().mean() - 0.75) < 0.02
    torch.testing.assert_close(out[0], (weights * kept / 0.75).detach())
    g = torch.randn(2, 4, 64, 64)
    saved = (out[0], out[1], None, None, 64, 64, 0.25, False, out[6], out[7])
    got = emulate.run(BACKWARD, (g, q, k, identity, None, [True] * 4, *saved), {})
    for a, e in zip(got, torch.autograd.grad(weights * kept / 0.75, exact, g), strict=False):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_blocks_of_queries(causal, monkeypatch):
    from torch_neuronx.lowering.ops import attention

    monkeypatch.setattr(attention, "LARGE_SCORES", 1 << 10)
    monkeypatch.setattr(attention, "BLOCK_SCORES", 1 << 8)
    q, k, v = (torch.randn(1, h, 24, 8, requires_grad=True) for h in (4, 2, 2))
    want = scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    out = emulate.run(FORWARD, (q.detach(), k.detach(), v.detach(), None, 0.0, causal), {})
    torch.testing.assert_close(out[0], want.detach(), rtol=1e-4, atol=1e-5)
    g = torch.randn(want.shape)
    saved = (out[0], out[1], None, None, 24, 24, 0.0, causal, out[6], out[7])
    got = emulate.run(BACKWARD, (g, q.detach(), k.detach(), v.detach(), None, [True] * 4, *saved), {})
    for a, e in zip(got, torch.autograd.grad(want, [q, k, v], g), strict=False):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": torch.randn(16, 16)}])
def test_flash_attention_for_cpu(options):
    q, k, v = (torch.randn(2, 4, 16, 8, requires_grad=True) for _ in range(3))
    want = scaled_dot_product_attention(q, k, v, **options)
    g = torch.randn(want.shape)
    with Lowered(strict=True):
        got = scaled_dot_product_attention(q, k, v, **options)
        grads = torch.autograd.grad(got, [q, k, v], g)
    compare((got, grads), (want, torch.autograd.grad(want, [q, k, v], g)), 1e-4, 1e-5)


PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
CAUSAL = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)


@pytest.mark.parametrize("options", [{}, {"norm_first": True, "activation": "gelu"}])
@pytest.mark.parametrize("masks", [{}, {"src_key_padding_mask": PADDING}, {"src_mask": CAUSAL}])
def test_encoder_layer(options, masks):
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, **options).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        want = layer(x, **masks)
        with Lowered(strict=True) as mode:
            got = layer(x, **masks)
    compare(got, want, 1e-4, 1e-5)
    assert mode.native["aten::_transformer_encoder_layer_fwd"] == 1


@pytest.mark.parametrize(
    "masks",
    [{}, {"key_padding_mask": PADDING}, {"attn_mask": CAUSAL, "average_attn_weights": False},
     {"key_padding_mask": PADDING, "attn_mask": CAUSAL}, {"need_weights": False}],
)  # fmt: skip
def test_multihead_attention(masks):
    layer = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        want = layer(x, x, x, **masks)
        with Lowered(strict=True) as mode:
            got = layer(x, x, x, **masks)
    compare(got, want, 1e-4, 1e-5)
    assert mode.native["aten::_native_multi_head_attention"] == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_weights_are_rounded_as_the_cpus_flash_attention_does(causal, dtype):
    generator = torch.Generator().manual_seed(0)
    q, k, v, g = (torch.randn(2, 4, n, 8, generator=generator).to(dtype) for n in (3, 6, 6, 3))
    out, lse = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    got = emulate.run(FORWARD, (q, k, v, None, 0.0, causal), {})
    same = [(got[0], out)]
    wanted = aten._scaled_dot_product_flash_attention_for_cpu_backward(g, q, k, v, out, lse, 0.0, causal)
    saved = (got[0], got[1], None, None, 3, 6, 0.0, causal, got[6], got[7])
    same += zip(emulate.run(BACKWARD, (g, q, k, v, None, [True, True, True, False], *saved), {}), wanted, strict=False)
    for a, e in same:
        assert (a == e).float().mean() > 0.9  # sums in float32 may differ in their last bit; unrounded: 0.6 to 0.85
