"""Fused recurrent cells against the formula (torch has no CPU kernel for them)."""

from __future__ import annotations

import emulate
import pytest
import torch
from emulate import compare

aten = torch.ops.aten
N, H = 3, 5


def inputs(gates, bias, dtype):
    shapes = [(N, gates * H), (N, gates * H), (N, H)] + [(gates * H,)] * 2 * bias
    return [torch.randn(s, dtype=dtype, requires_grad=True) for s in shapes]


def run(op, xs):
    given = [x.detach() for x in xs]
    return emulate.run(op, (*given, *[None] * (5 - len(given))), {})


def summed(xs):
    ig, hg, _, *biases = xs
    return (ig + biases[0], hg + biases[1]) if biases else (ig, hg)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("used", [(1, 1), (1, 0), (0, 1)])
def test_lstm(dtype, bias, used):
    xs = inputs(4, bias, dtype)
    i, f, g, o = sum(summed(xs)).chunk(4, 1)
    cy = f.sigmoid() * xs[2] + i.sigmoid() * g.tanh()
    want = (o.sigmoid() * cy.tanh(), cy)
    hy, got_cy, workspace = run(aten._thnn_fused_lstm_cell.default, xs)
    compare((hy, got_cy), (want[0].detach(), want[1].detach()))
    grads = [torch.randn_like(y) if u else None for y, u in zip(want, used, strict=True)]
    kept = [(y, g) for y, g in zip(want, grads, strict=True) if g is not None]
    wanted = torch.autograd.grad([y for y, _ in kept], xs, [g for _, g in kept])
    args = (*grads, xs[2].detach(), got_cy, workspace, bias)
    got = emulate.run(aten._thnn_fused_lstm_cell_backward_impl.default, args, {})
    compare(got[:2], (wanted[0], wanted[2]))
    assert got[2] is None if not bias else torch.allclose(got[2], wanted[3], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
def test_gru(dtype, bias):
    xs = inputs(3, bias, dtype)
    (ir, iz, i_n), (hr, hz, hn) = (x.chunk(3, 1) for x in summed(xs))
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (i_n + r * hn).tanh()
    want = n + z * (xs[2] - n)
    hy, workspace = run(aten._thnn_fused_gru_cell.default, xs)
    compare(hy, want.detach())
    g = torch.randn_like(want)
    got = emulate.run(aten._thnn_fused_gru_cell_backward.default, (g, workspace, bias), {})
    compare([x for x in got if x is not None], torch.autograd.grad(want, xs, g))
