"""First and second derivatives on the device against finite differences of the device's own results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.functorch.compare import D

F = torch.nn.functional


def _spd(x: torch.Tensor) -> torch.Tensor:
    return x @ x.mT + 2 * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v)


CALLS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, padding=1), ((2, 2, 5), (3, 2, 3), (3,))),
    "conv2d": (lambda x, w: F.conv2d(x, w, stride=2, dilation=1, groups=2), ((1, 4, 5, 5), (2, 2, 3, 3))),
    "conv3d": (F.conv3d, ((1, 1, 3, 3, 3), (1, 1, 2, 2, 2))),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2), ((1, 2, 3, 3), (2, 1, 2, 2))),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), ((4, 3), (3,), (3,))),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), ((3, 4), (4,), (4,))),
    "group_norm": (lambda x, w: F.group_norm(x, 2, w), ((2, 4, 3), (4,))),
    "rms_norm": (lambda x, w: F.rms_norm(x, (4,), w), ((3, 4), (4,))),
    "softmax": (lambda x: F.softmax(x, 1), ((3, 4),)),
    "log_softmax": (lambda x: F.log_softmax(x, 0), ((3, 4),)),
    "gelu": (F.gelu, ((3, 4),)),
    "silu": (F.silu, ((3, 4),)),
    "softplus": (F.softplus, ((3, 4),)),
    "tanh and sigmoid": (lambda x: x.tanh() * x.sigmoid(), ((3, 4),)),
    "linear": (F.linear, ((3, 4), (2, 4), (2,))),
    "matmul": (torch.matmul, ((2, 3, 4), (4, 2))),
    "bmm": (torch.bmm, ((2, 3, 4), (2, 4, 2))),
    "attention": (_attention, ((1, 1, 3, 4), (1, 1, 3, 4), (1, 1, 3, 4))),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), ((1, 2, 4, 4),)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), ((1, 1, 4, 4),)),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), ((1, 1, 3, 3),)),
    "embedding": (lambda w: F.embedding(torch.tensor([0, 2, 2], device=w.device), w), ((3, 4),)),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.tensor([0, 3, 1], device=x.device)), ((3, 4),)),
    "mse_loss": (F.mse_loss, ((3, 4), (3, 4))),
    "sum, mean, var, norm": (lambda x: (x.sum(0), x.mean(), x.var(1), x.norm(dim=1)), ((3, 4),)),
    "prod and cumprod": (lambda x: (x.prod(1), x.cumprod(0)), ((3, 4),)),
    "logsumexp": (lambda x: x.logsumexp(1), ((3, 4),)),
    "division and power": (lambda x, y: x / (y * y + 1) + (x * x + 1) ** y, ((3, 4), (3, 4))),
    "views and writes": (lambda x: x.t().clone()[1:].mul_(2).add_(x.t()[:-1] ** 2), ((3, 4),)),
    "gather and scatter_add": (
        lambda x: x.scatter_add(1, x.argsort(1), x * x).gather(1, x.argsort(1)),
        ((3, 4),),
    ),
    "linalg.inv": (lambda x: torch.linalg.inv(_spd(x)), ((3, 3),)),
    "linalg.det": (lambda x: torch.linalg.det(_spd(x)), ((3, 3),)),
    "linalg.slogdet": (lambda x: torch.linalg.slogdet(_spd(x)).logabsdet, ((3, 3),)),
    "linalg.cholesky": (lambda x: torch.linalg.cholesky(_spd(x)), ((3, 3),)),
    "linalg.solve": (lambda x, b: torch.linalg.solve(_spd(x), b), ((3, 3), (3, 2))),
    "linalg.eigvalsh": (lambda x: torch.linalg.eigvalsh(_spd(x)), ((3, 3),)),
    "linalg.svdvals": (torch.linalg.svdvals, ((3, 2),)),
    "linalg.solve_triangular": (
        lambda x, b: torch.linalg.solve_triangular(_spd(x).triu(), b, upper=True),
        ((3, 3), (3, 2)),
    ),
    "matrix_exp": (torch.linalg.matrix_exp, ((3, 3),)),
    "fft": (lambda x: torch.view_as_real(torch.fft.rfft(x)), ((2, 5),)),
}


@pytest.mark.parametrize("name", CALLS)
def test_derivatives(name: str) -> None:
    function, shapes = CALLS[name]
    generator = torch.Generator().manual_seed(1)
    given = [torch.randn(s, dtype=torch.float64, generator=generator).to(D).requires_grad_() for s in shapes]
    assert torch.autograd.gradcheck(function, given, fast_mode=True, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, given, fast_mode=True)


def test_fused_attention_has_first_derivatives() -> None:
    """Torch has neither a tangent nor a second derivative of it, on any device."""
    given = [torch.randn(1, 1, 3, 4, dtype=torch.float64).to(D).requires_grad_() for _ in range(3)]
    assert torch.autograd.gradcheck(F.scaled_dot_product_attention, given, fast_mode=True)
    (gradient,) = torch.autograd.grad(F.scaled_dot_product_attention(*given).sum(), given[2], create_graph=True)
    with pytest.raises(RuntimeError, match="_scaled_dot_product_fused_attention_overrideable_backward"):
        gradient.sum().backward()


def test_third_derivatives() -> None:
    def run(x: torch.Tensor) -> list[float]:
        out, found = (x.sin() * x**2).sum(), []
        for _ in range(3):
            (out,) = torch.autograd.grad(out.sum(), x, create_graph=True)
            found.append(out.sum().item())
        return found

    x = torch.linspace(-1, 1, 5, dtype=torch.float64)
    assert run(x.to(D).requires_grad_()) == pytest.approx(run(x.requires_grad_()))


def test_a_gradient_penalty() -> None:
    """As in a Wasserstein GAN: the norm of a gradient is part of the loss."""
    import copy

    def run(model: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
        x.requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        (gradient.flatten(1).norm(dim=1) - 1).square().mean().backward()
        return [p.grad.cpu() for p in model.parameters() if p.grad is not None]

    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3), torch.nn.Softplus(), torch.nn.Flatten(), torch.nn.Linear(48, 1)
    )
    x = torch.randn(2, 1, 6, 6)
    got, want = run(copy.deepcopy(model).to(D), x.to(D)), run(model, x.clone())
    assert len(got) == len(want) > 0
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)
