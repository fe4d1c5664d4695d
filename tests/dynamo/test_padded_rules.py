"""Each rule at several sizes: values and strides of CPU torch, NaN in the padding, an executable a bucket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torch_neuronx.dynamo import metrics
from torch_neuronx.lowering.padded.decomposed import without_tracing

D = "neuron"
R = torch.randn
SIZES = (9, 10, 12, 18, 20)  # n .. n + 3 lie in 16 and in 24


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCH_NEURONX_POISON_PADDING", "1")
    torch._dynamo.reset()
    metrics.clear()
    torch.manual_seed(0)


def ids(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape)


def some_nan(*shape: int) -> torch.Tensor:
    return torch.where(R(*shape) > 0, float("nan"), R(*shape).round())


def distinct(n: int, count: int, columns: int) -> torch.Tensor:
    return torch.stack([torch.randperm(n)[:count] for _ in range(columns)], 1)


def gradients(f: Callable) -> Callable:
    """The gradients of a weighted sum of what f returns, traced into one graph or two."""

    def of(*args: torch.Tensor) -> Any:
        leaves = [a.detach().requires_grad_() for a in args]
        out = f(*leaves)
        out = out if isinstance(out, tuple) else (out,)
        weights = [torch.arange(t.numel(), device=t.device).view(t.shape).sin() for t in out]
        return torch.autograd.grad(sum((t * w).sum() for t, w in zip(out, weights, strict=True)), leaves)

    return of


def batch_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    mean, var = torch.zeros(3, device=x.device), torch.ones(3, device=x.device)
    return F.batch_norm(x, mean, var, w, b, training=True), mean, var


Case = tuple[Callable, Callable[[int], list[torch.Tensor]]]
CASES: dict[str, Case] = {
    "flip": (lambda x: (x.flip(0), x.flip(1, 0)), lambda n: [R(n, 4)]),
    "roll": (lambda x: (x.roll(1, 0), x.roll((-2, 5), (0, 1)), x.roll(x.shape[0] // 2, 1)), lambda n: [R(n, n + 1)]),
    "sort": (lambda x: (x.sort(0), x.sort(0, descending=True), x.argsort(1)), lambda n: [R(n, n + 1)]),
    "sort of NaN": (
        lambda x: (x.sort(dim=0, stable=True), x.sort(dim=0, stable=True, descending=True)),
        lambda n: [some_nan(n, 4)],
    ),
    "sort of integers": (
        lambda x: (x.sort(dim=0, stable=True), x.sort(dim=0, descending=True, stable=True)),
        lambda n: [ids(4, n, 5) - 2],
    ),
    "topk": (
        lambda x: (x.topk(2, 0), x.topk(3, 1, largest=False), x.topk(x.shape[1] // 2, 1)),
        lambda n: [R(n, n + 1)],
    ),
    "ranks": (
        lambda x: (x.median(0), x.median(), x.nanmedian(1), x.kthvalue(2, 0), x.median(1, keepdim=True)),
        lambda n: [R(n, n + 1)],
    ),
    "median of NaN": (lambda x: (x.median(0).values, x.nanmedian(0).values), lambda n: [some_nan(n, 4)]),
    "quantile": (lambda x: x.quantile(0.3, dim=1), lambda n: [R(n, n + 1)]),
    "scans": (
        lambda x: (x.flip(0).cumsum(0).flip(0), x.logcumsumexp(0), x.cummax(0)),
        lambda n: [R(n, n + 1)],
    ),
    "index_select": (lambda x, i: (x.index_select(0, i), x.index_select(1, i)), lambda n: [R(n, n + 1), ids(n, n + 2)]),
    "gather": (lambda x, i: (x.gather(0, i), x.gather(1, i)), lambda n: [R(n, n + 1), ids(n, n, 3)]),
    "index": (lambda x, i: (x[i], x[:, i], x[i, i], x[i - 1]), lambda n: [R(n, n + 1), ids(n, n + 2, 3)]),
    "scatter": (
        lambda x, i, s: (x.scatter(0, i, s), x.scatter(1, i, 2.0), x.scatter_add(0, i, s)),
        lambda n: [R(n, n + 1), distinct(n, n, 3), R(n, n + 1)],
    ),
    "scatter_reduce": (
        lambda x, i, s: (
            x.scatter_reduce(0, i, s, "amax"),
            x.scatter_reduce(1, i, s, "mean"),
            x.scatter_reduce(1, i, s, "prod", include_self=False),
        ),
        lambda n: [R(n, n + 1), ids(n, n, 3), R(n, n + 1)],
    ),
    "rows by index": (
        lambda x, i, s: (x.index_add(0, i, s), x.index_copy(0, i, s), x.index_fill(1, i, 5.0)),
        lambda n: [R(n + 1, n + 2), torch.randperm(n + 1)[:n], R(n, n + 2)],
    ),
    "rows of a fixed tensor": (lambda x, i, s: x.index_copy(0, i, s), lambda n: [R(30, 4), torch.randperm(n), R(n, 4)]),
    "index_put": (
        lambda x, i, s: (x.index_put((i,), s), x.index_put((i, i), torch.ones_like(s[:, 0]), accumulate=True)),
        lambda n: [R(n + 1, n + 2), torch.randperm(n + 1)[:n], R(n, n + 2)],
    ),
    "a choice by a mask": (
        lambda x: x.index_put((x > 0,), torch.zeros((), device=x.device)),
        lambda n: [R(n, n + 1)],
    ),
    "take and put": (
        lambda x, i: (x.take(i), x.put(i[:, 0], i[:, 0] * 1.0)),
        lambda n: [R(n, n + 1), distinct(n * (n + 1), n, 2)],
    ),
    "a table of varying size": (lambda w, i: F.embedding(i, w), lambda n: [R(n, 4), ids(n, 2, n)]),
    "slices with steps": (lambda x: (x[::2] * 1, x[1::3] * 1, x[:, 1:-1:2] * 1), lambda n: [R(n, n + 1)]),
    "slices that are written": (
        lambda x, y: (x.slice_scatter(y, 0, 1, -1), x.select_scatter(y[0], 0, -1)),
        lambda n: [R(n + 2, 4), R(n, 4)],
    ),
    "parts": (
        lambda x: tuple(p * 1 for p in (*x.split([2, x.shape[0] - 2]), *x.chunk(2, 1))),
        lambda n: [R(n, 2 * n)],
    ),
    "diagonals": (
        lambda x: (x.diagonal() * 1, x.diagonal(1) * 1, x.diagonal(-1, 1, 0) * 1, x.trace()),
        lambda n: [R(n, n + 1)],
    ),
    "constant padding": (lambda x: (F.pad(x, (1, 2)), F.pad(x, (-1, 3, 2, 0), value=7.0)), lambda n: [R(n, n + 1)]),
    "padding by edges": (
        lambda x: (F.pad(x[None], (1, 2), "reflect"), F.pad(x[None], (1, 2), "replicate")),
        lambda n: [R(n, n + 1)],
    ),
    "unfold": (lambda x: (x.unfold(0, 2, 1) * 1, x.unfold(1, 3, 2) * 1), lambda n: [R(n, n + 1)]),
    "ranges": (
        lambda x: (
            torch.arange(0.5, x.shape[0], device=x.device),
            torch.arange(x.shape[0], device=x.device, dtype=torch.float64),
            torch.arange(x.shape[0], 0, -2, device=x.device) + 0 * x[0, 0],
        ),
        lambda n: [R(n, 4)],
    ),
    "max pooling": (lambda x: (F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 2, 1)), lambda n: [R(2, 3, n, n + 3)]),
    "positions of the largest": (
        lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)[1],
        lambda n: [R(2, 3, n, n + 3)],
    ),
    "average pooling": (
        lambda x: (F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
        lambda n: [R(2, 3, n, n + 3)],
    ),
    "adaptive pooling": (
        lambda x: (F.adaptive_avg_pool2d(x, (2, 3)), F.adaptive_avg_pool2d(x, 1)),
        lambda n: [R(2, 3, n, n + 3)],
    ),
    "batch norm in training": (batch_norm, lambda n: [R(n, 3, n + 2, 5), R(3), R(3)]),
    "instance norm": (lambda x: F.instance_norm(x), lambda n: [R(n, 3, n + 2, 5)]),
    "layer norm over what varies": (lambda x: F.layer_norm(x, x.shape[1:]), lambda n: [R(4, n, n + 1)]),
    "interpolation": (
        lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x, (7, 9), mode="bilinear", align_corners=True)),
        lambda n: [R(2, 3, n, n + 3)],
    ),
    "repetitions": (lambda x: (x.repeat(2, 3), x.repeat(2, 1, 2), x.repeat(x.shape[0], 1)), lambda n: [R(n, n + 1)]),
    "the place of the smallest": (lambda x: (x.argmin(), x.argmax(), x.argmin(1)), lambda n: [R(n, n + 1)]),
    "losses": (
        lambda x, y: (F.mse_loss(x, y), F.smooth_l1_loss(x, y), F.huber_loss(x, y, reduction="sum")),
        lambda n: [R(n, 4), R(n, 4)],
    ),
    "norms": (lambda x: (x.norm(), x.norm(dim=0), x.norm(p=1, dim=1), x.norm(p=float("inf"))), lambda n: [R(n, 3)]),
    "division of integers": (lambda x, y: (x // y, x % y), lambda n: [ids(90, n, 4), ids(9, n, 4) + 1]),
    "a size as a factor": (lambda x, y: torch.addmm(x, y, y, beta=y.shape[0], alpha=2), lambda n: [R(n, n), R(n, n)]),
}
for name in (
    "max pooling",
    "average pooling",
    "adaptive pooling",
    "batch norm in training",
    "constant padding",
    "unfold",
):
    CASES[f"gradients of {name}"] = (gradients(CASES[name][0]), CASES[name][1])
CASES["gradients of batch norm in training"] = (
    gradients(lambda *args: batch_norm(*args)[0]),
    CASES["batch norm in training"][1],
)


@pytest.mark.parametrize("name", CASES)
def test_equals_eager_with_an_executable_a_bucket(name: str) -> None:
    f, make = CASES[name]
    call = torch.compile(f, backend="neuron", dynamic=True)
    for n in SIZES:
        args = make(n)
        there, here = call(*(a.to(D) for a in args)), f(*args)
        for a, b in zip(torch.utils._pytree.tree_leaves(there), torch.utils._pytree.tree_leaves(here), strict=True):
            assert a.stride() == b.stride()
            torch.testing.assert_close(a.cpu(), b, rtol=1e-5, atol=1e-5, equal_nan=True)
    for record in metrics.get_dynamo_metrics():
        assert record["varying"]
        assert record["exact_because"] is None
        assert record["executables"] == 2


RANDOM: dict[str, Case] = {
    "dropout": (lambda x: F.dropout(x, 0.3), lambda n: [R(4, n)]),
    "several draws": (
        lambda x: (
            torch.randn_like(x),
            torch.rand(x.shape[1], device=x.device),
            torch.randn(3, device=x.device),
        ),
        lambda n: [R(4, n)],
    ),
    "doubles": (lambda x: torch.randn_like(x, dtype=torch.float64), lambda n: [R(n, 4)]),
    "bernoulli": (lambda x: torch.bernoulli(x), lambda n: [torch.rand(4, n)]),
    "two dimensions as one": (lambda x: F.dropout(x.view(-1, 4)).view(x.shape), lambda n: [R(n, n + 1, 4)]),
    "integers": (lambda x: torch.randint(0, 9, (x.shape[0], 2), device=x.device), lambda n: [R(n, 4)]),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_those_of_eager_mode(name: str) -> None:
    """Two calls each: the generator is left where eager mode leaves it."""
    f, make = RANDOM[name]
    call = torch.compile(f, backend="neuron", dynamic=True)
    for n in SIZES:
        args = [a.to(D) for a in make(n)]
        torch.manual_seed(5)
        here = [f(*args), f(*args)]
        torch.manual_seed(5)
        there = [call(*args), call(*args)]
        for a, b in zip(torch.utils._pytree.tree_leaves(there), torch.utils._pytree.tree_leaves(here), strict=True):
            assert torch.equal(a.cpu(), b.cpu())
    for record in metrics.get_dynamo_metrics():
        assert (record["exact_because"], record["executables"]) == (None, 2)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_drops_what_eager_mode_drops(causal: bool) -> None:
    """Forward and backward: the second draws the first's numbers again."""

    def f(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.4, is_causal=causal)

    call = torch.compile(f, backend="neuron", dynamic=True)
    for n in SIZES:
        m = n if causal else n + 2
        inputs = [R(2, 2, n, 8), R(2, 2, m, 8), R(2, 2, m, 8)]
        weight, seen = R(2, 2, n, 8, device=D), []
        for g in (f, call):
            args = [a.to(D).requires_grad_() for a in inputs]
            torch.manual_seed(5)
            outs = [g(*args), g(*args)]
            (outs[0] * weight + outs[1]).sum().backward()
            seen.append([t.detach().cpu() for t in (*outs, *(a.grad for a in args if a.grad is not None))])
        assert not torch.equal(seen[0][0], seen[0][1])
        assert len(seen[0]) == 5
        for a, b in zip(*seen, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    for record in metrics.get_dynamo_metrics():
        assert record["exact_because"] is None


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y)
    return x * 2


def append(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x.index_copy_(0, i, y)
    return x.sum(0)


def assign(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[1:-1] = y[1:-1]
    x[:, 0] = 0
    return x + 1


@pytest.mark.parametrize(
    ("f", "make"),
    [
        (add, lambda n: [R(n, 4), R(n, 4)]),
        (append, lambda n: [R(n + 1, 4), R(n, 4), torch.randperm(n + 1)[:n]]),
        (assign, lambda n: [R(n, 4), R(n, 4)]),
    ],
)
def test_a_write_to_an_input_of_varying_size(f: Callable, make: Callable) -> None:
    call = torch.compile(f, backend="neuron", dynamic=True)
    for n in SIZES:
        args = make(n)
        there = [a.to(D) for a in args]
        torch.testing.assert_close(call(*there).cpu(), f(*args))
        torch.testing.assert_close(there[0].cpu(), args[0])
    (record,) = metrics.get_dynamo_metrics()
    assert (record["exact_because"], record["executables"]) == (None, 2)


def test_views_of_inputs_and_of_results_stay_views() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.sin()
        return x[:, ::2], x.t(), x.expand(3, *x.shape), y[:, ::2], y[1:], y

    call = torch.compile(f, backend="neuron", dynamic=True)
    for n in SIZES:
        here = R(n, 5, requires_grad=True)
        there = here.detach().to(D).requires_grad_()
        want, got = f(here), call(there)
        for a, b in zip(got, want, strict=True):
            assert a.stride() == b.stride()
            torch.testing.assert_close(a.cpu(), b)
        assert got[0].untyped_storage().data_ptr() == there.untyped_storage().data_ptr()
        sum(t.square().sum() for t in want).backward()
        sum(t.square().sum() for t in got).backward()
        torch.testing.assert_close(there.grad.cpu(), here.grad)


def test_an_index_that_only_padding_would_hold_is_refused() -> None:
    call = torch.compile(lambda x, i: x.index_select(0, i), backend="neuron", dynamic=True)
    call(R(9, 4, device=D), ids(9, 5).to(D))
    torch.neuron.synchronize()
    with pytest.raises(IndexError):
        call(R(9, 4, device=D), torch.tensor([9, 0, 0, 0, 0], device=D))
        torch.neuron.synchronize()


def test_an_empty_dimension_beside_a_varying_one() -> None:
    call = torch.compile(lambda x: (x.cos(), x.sum(0), x.view(-1)), backend="neuron", dynamic=True)
    for n in SIZES:
        for a, b in zip(
            call(R(1, 0, n, device=D)), (torch.empty(1, 0, n), torch.empty(0, n), torch.empty(0)), strict=True
        ):
            assert a.shape == b.shape


def test_a_window_on_an_input_begins_where_it_was_asked_to() -> None:
    call = torch.compile(lambda x, at: x.as_strided((2, 2), (1, 2), at), backend="neuron", dynamic=True)
    x = torch.arange(16)
    for at in (7, 3, 5):
        assert torch.equal(call(x.to(D), at).cpu(), x.as_strided((2, 2), (1, 2), at))


def test_in_the_background_nothing_is_traced() -> None:
    """A trace shows in all threads; a bucket made ahead that would need one is not made, and here that means exact."""
    call = torch.compile(lambda x, y: F.huber_loss(x, y), backend="neuron", dynamic=True)
    x, y = R(9, 4), R(9, 4)
    with without_tracing():
        torch.testing.assert_close(call(x.to(D), y.to(D)).cpu(), F.huber_loss(x, y))
    (record,) = metrics.get_dynamo_metrics()
    assert record["exact_because"] == "aten.huber_loss.default is to be traced first"


def test_equal_graphs_of_which_different_things_are_known() -> None:
    """One graph for all orders of a norm, taken apart by what is known of the order: not one program on disk."""
    call = torch.compile(lambda x, p: x.norm(p), backend="neuron", dynamic=True)
    x = R(5, 5)
    for p in (2, 0, 1, 3, -1, -2):
        torch.testing.assert_close(call(x.to(D), p).cpu(), x.norm(p))
