"""Distributions that need a search: moments, exact probabilities of small cases, gradients."""

from __future__ import annotations

import math

import emulate
import pytest
import torch
from emulate import check

aten = torch.ops.aten
N = 20000


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(4321)


def close(x, mean, std):
    x = x.double()
    assert abs(x.mean() - mean) <= 5 * std / math.sqrt(x.numel()) + 1e-6
    assert abs(x.std() - std) <= 0.08 * std + 1e-6


@pytest.mark.parametrize("rate", [0.5, 3.0, 9.9, 10.1, 60.0, 1e4])
def test_poisson(rate):
    close(emulate.run(aten.poisson.default, (torch.full((N,), rate),), {}), rate, math.sqrt(rate))


def test_poisson_mixes_rates():
    rates = torch.tensor([0.0, 0.1, 5.0, 50.0]).repeat(N // 4)
    out = emulate.run(aten.poisson.default, (rates,), {}).reshape(-1, 4)
    assert not out[:, 0].any()
    assert abs(out[:, 1].mean() - 0.1) < 0.03
    assert abs(out[:, 3].mean() - 50) < 1
    with pytest.raises(RuntimeError, match="non-negative"):
        emulate.run(aten.poisson.default, (torch.tensor([-1.0]),), {})


@pytest.mark.parametrize(
    ("n", "p"), [(10, 0.3), (10, 0.9), (1000, 0.002), (1000, 0.3), (100000, 0.7), (5, 1.0), (5, 0.0)]
)
def test_binomial(n, p):
    out = emulate.run(aten.binomial.default, (torch.full((N,), float(n)), torch.tensor(p)), {})
    close(out, n * p, math.sqrt(n * p * (1 - p)))
    assert out.min() >= 0
    assert out.max() <= n


@pytest.mark.parametrize("alpha", [0.05, 0.5, 1.0, 3.0, 100.0])
def test_gamma(alpha):
    out = emulate.run(aten._standard_gamma.default, (torch.full((N,), alpha),), {})
    close(out, alpha, math.sqrt(alpha))
    assert (out > 0).all()


def test_dirichlet():
    alpha = torch.tensor([0.5, 1.0, 2.0]).expand(N, 3).contiguous()
    out = emulate.run(aten._sample_dirichlet.default, (alpha,), {})
    assert torch.allclose(out.sum(1), torch.ones(N), atol=1e-5)
    assert torch.allclose(out.mean(0), alpha[0] / 3.5, atol=0.01)


def test_multinomial():
    weights = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, 3.0]])
    out = emulate.run(aten.multinomial.default, (weights, N, True), {})
    for row, weight in zip(out, weights, strict=True):
        share = torch.bincount(row, minlength=4) / N
        assert torch.allclose(share, weight / weight.sum(), atol=0.02)
        assert not share[weight == 0].any()


def test_multinomial_without_replacement():
    weights = torch.tensor([0.1, 0.2, 0.7]).expand(N, 3).contiguous()
    out = emulate.run(aten.multinomial.default, (weights, 3, False), {})
    assert torch.equal(out.sort(1)[0], torch.arange(3).expand(N, 3))
    assert torch.allclose(torch.bincount(out[:, 0], minlength=3) / N, weights[0], atol=0.02)
    first = emulate.run(aten.multinomial.default, (weights, 1, False), {})
    assert torch.allclose(torch.bincount(first[:, 0], minlength=3) / N, weights[0], atol=0.02)


@pytest.mark.parametrize("weights", [[1.0, -1.0], [float("nan"), 1.0], [0.0, 0.0], [float("inf"), 1.0]])
def test_multinomial_refuses(weights):
    with pytest.raises(RuntimeError, match=r"probability tensor|invalid multinomial"):
        emulate.run(aten.multinomial.default, (torch.tensor(weights), 1, True), {})


def test_gamma_gradient():
    alpha = torch.tensor([0.05, 0.3, 1.0, 2.0, 5.0, 7.9, 8.5, 20.0, 100.0], dtype=torch.float64)[:, None]
    x = torch.tensor([1e-3, 0.1, 0.5, 0.79, 0.81, 1.5, 4.0, 9.0, 19.0, 21.0, 95.0, 130.0], dtype=torch.float64)
    alpha, x = (t.contiguous() for t in torch.broadcast_tensors(alpha, x))
    check(aten._standard_gamma_grad.default, alpha, x, rtol=1e-5, atol=1e-8)


def test_dirichlet_gradient():
    x = torch.tensor([0.001, 0.1, 0.3, 0.5, 0.7, 0.95, 0.999], dtype=torch.float64)[:, None, None]
    a = torch.tensor([0.1, 0.5, 1.0, 3.0, 7.0, 30.0], dtype=torch.float64)
    x, a, b = (t.contiguous() for t in torch.broadcast_tensors(x, a[:, None], a))
    check(aten._dirichlet_grad.default, x, a, a + b, rtol=1e-5, atol=1e-8)
