"""torch.autograd.forward_ad: tangents of operators, modules, views and writes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.databases.both import equal
from tests.functorch.compare import D, same

F = torch.nn.functional


def _dual(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor, torch.Tensor], list[torch.Tensor]]:
    """The parts of what the function gives for a dual number."""

    def run(x: torch.Tensor, tangent: torch.Tensor) -> list[torch.Tensor]:
        with forward_ad.dual_level():
            out = function(forward_ad.make_dual(x, tangent))
            parts = [forward_ad.unpack_dual(t) for t in (out if isinstance(out, tuple) else (out,))]
            return [t for part in parts for t in part if t is not None]

    return run


def _put(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    y[:, 1:] = x[:, :-1]
    y.t()[0].mul_(x[:, 2])
    return y


CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "elementwise": lambda x: x.sin() * x.exp() / (1 + x * x),
    "views": lambda x: x.view(2, 2, 3, 6)[..., ::2].transpose(1, 2),
    "writes": _put,
    "matmul": lambda x: x @ x.t(),
    "sums": lambda x: (x.sum(0), x.mean(), x.var(1), x.logsumexp(1), x.norm()),
    "choices": lambda x: (x.max(1).values, x.sort(1).values, x.median(1).values, x.topk(2, 1).values),
    "softmax": lambda x: (x.softmax(1), x.log_softmax(0)),
    "scans": lambda x: (x.cumsum(1), x.cumprod(0), x.logcumsumexp(1)),
    "indices": lambda x: (x[:, [0, 2]], x.index_select(0, torch.tensor([1, 1], device=x.device)), x.roll(1, 0)),
    "activations": lambda x: (F.gelu(x), F.silu(x), F.softplus(x), F.elu(x), F.hardswish(x), F.leaky_relu(x)),
    "conv2d": lambda x: F.conv2d(x.view(1, 2, 6, 6), x.view(-1)[:36].view(2, 2, 3, 3), padding=1),
    "conv_transpose1d": lambda x: F.conv_transpose1d(x.view(2, 3, 12), x.view(-1)[:18].view(3, 2, 3), stride=2),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[1],)),
    "group_norm": lambda x: F.group_norm(x.view(2, 4, 9), 2),
    "pools": lambda x: (F.max_pool2d(x.view(1, 2, 6, 6), 2), F.avg_pool2d(x.view(1, 2, 6, 6), 2)),
    "interpolation": lambda x: F.interpolate(x.view(1, 2, 6, 6), scale_factor=2, mode="bilinear"),
    "losses": lambda x: (F.mse_loss(x, x.cos()), F.cross_entropy(x, torch.tensor([0, 3, 1, 17], device=x.device))),
    "linalg": lambda x: (torch.linalg.inv(_square(x)), torch.linalg.det(_square(x)), torch.linalg.svdvals(x)),
    "cholesky": lambda x: torch.linalg.cholesky(_square(x)),
    "eigvalsh": lambda x: torch.linalg.eigvalsh(_square(x)),
    "solve": lambda x: torch.linalg.solve(_square(x), x),
    "complex": lambda x: torch.view_as_real(torch.fft.fft(torch.complex(x, x.cos())) * 1j),
    "no tangent": lambda x: (x > 0, x.round().long()),
    "detached": lambda x: x.detach() * 2,
    "out of a random mask": lambda x: F.dropout(x, 0.0),
    "attention": lambda x: _attention(x.view(1, 2, 4, 9)),
}


def _attention(x: torch.Tensor) -> torch.Tensor:
    with sdpa_kernel(SDPBackend.MATH):  # torch has no tangent of fused attention on any device
        return F.scaled_dot_product_attention(x, x.sin(), x)


def _square(x: torch.Tensor) -> torch.Tensor:
    return x @ x.t() + torch.eye(4, dtype=x.dtype, device=x.device)


@pytest.mark.parametrize("name", CALLS)
def test_call(name: str) -> None:
    x, tangent = torch.randn(2, 4, 18, dtype=torch.float64).unbind()
    same(_dual(CALLS[name]), x, tangent)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_dtypes(dtype: torch.dtype) -> None:
    x, tangent = torch.randn(2, 4, 6).to(dtype).unbind()
    got = same(_dual(lambda t: (t * t).sum(1)), x, tangent)
    assert got[1].dtype is dtype


def test_a_tangent_of_another_layout() -> None:
    x, tangent = torch.randn(3, 4), torch.randn(4, 3)
    same(_dual(lambda t: t.t() * 2), x, tangent.t())
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="different size"):
        forward_ad.make_dual(x.to(D), tangent.to(D))


def test_a_tangent_crosses_devices() -> None:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(3), torch.tensor([1.0, 2.0, 3.0]))
        _, tangent = forward_ad.unpack_dual(dual.to(D) * 2)
        assert tangent.device.type == D and tangent.tolist() == [2.0, 4.0, 6.0]
        assert forward_ad.unpack_dual((dual.to(D) * 2).cpu()).tangent.tolist() == [2.0, 4.0, 6.0]


def test_parameters_of_a_module() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2)).double()
    tangents = {k: torch.randn_like(v) for k, v in model.named_parameters()}

    def run(model: torch.nn.Module, tangents: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        with forward_ad.dual_level():
            duals = {k: forward_ad.make_dual(p.detach(), tangents[k]) for k, p in model.named_parameters()}
            return forward_ad.unpack_dual(torch.func.functional_call(model, duals, (x,))).tangent

    x = torch.randn(3, 4, dtype=torch.float64)
    want = run(model, tangents, x)
    got = run(copy.deepcopy(model).to(D), {k: v.to(D) for k, v in tangents.items()}, x.to(D))
    equal(got, want, "the tangent")


def test_forward_over_reverse() -> None:
    def run(x: torch.Tensor, tangent: torch.Tensor) -> torch.Tensor:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x.requires_grad_(), tangent)
            (gradient,) = torch.autograd.grad((dual.exp() * dual.flip(0)).sum(), dual, create_graph=True)
            return forward_ad.unpack_dual(gradient).tangent

    same(run, *torch.randn(2, 5, dtype=torch.float64).unbind())


def test_gradients_through_tangents() -> None:
    def run(x: torch.Tensor, tangent: torch.Tensor) -> torch.Tensor:
        x.requires_grad_()
        with forward_ad.dual_level():
            out = forward_ad.unpack_dual(forward_ad.make_dual(x, tangent).sin().prod()).tangent
        return torch.autograd.grad(out, x)[0]

    same(run, *torch.randn(2, 5, dtype=torch.float64).unbind())
