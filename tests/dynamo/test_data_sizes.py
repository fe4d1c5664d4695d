"""Sizes that data decide, inside one graph: padded to the most they can be, and never looked at before the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torch_neuronx.dynamo import metrics
from torch_neuronx.dynamo.graph import CompilationError

D = "neuron"
R = torch.randn


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCH_NEURONX_POISON_PADDING", "1")
    torch._dynamo.reset()
    metrics.clear()
    torch.manual_seed(0)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield


def _same(got: Any, want: Any) -> None:
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for x, y in zip(got, want, strict=True):
            _same(x, y)
    elif isinstance(want, torch.Tensor):
        assert got.shape == want.shape
        torch.testing.assert_close(got.cpu(), want, equal_nan=True)
    else:
        assert got == want


def _rows(x: torch.Tensor, keep: torch.Tensor) -> Any:
    picked = x[keep]
    return picked, picked.sum(0), picked.shape[0] * 2


CASES: dict[str, tuple[Callable[..., Any], Callable[[int], list[torch.Tensor]]]] = {
    "a sum": (lambda x: x[x > 0].sum(), lambda n: [R(n, 4)]),
    "what a mask chooses": (lambda x: x[x > 0], lambda n: [R(n, 4)]),
    "rows": (_rows, lambda n: [R(n, 3), torch.rand(n) > 0.5]),
    "rows of more": (lambda x, m: x[m].softmax(-1), lambda n: [R(n, 2, 3), torch.rand(n, 2) > 0.5]),
    "masked_select": (lambda x: torch.masked_select(x, x.sum(1, keepdim=True) > 0) * 2, lambda n: [R(n, 4)]),
    "nonzero": (lambda x: x.nonzero() + 1, lambda n: [torch.randint(0, 2, (n, 3))]),
    "nonzero as rows": (lambda x, i: x[i.nonzero()[:, 0]].mean(0), lambda n: [R(n, 3), torch.rand(n).round()]),
    "how many": (lambda x: torch.nonzero(x > 0).shape[0] + 1, lambda n: [R(n, 3)]),
    "a loss of some": (
        lambda x, t: F.cross_entropy(x[t >= 0], t[t >= 0]),
        lambda n: [R(n, 7), torch.randint(-2, 7, (n,)).clamp(-1)],
    ),
    "written rows": (
        lambda x, m: x.index_put((m,), x[m] * 2) + x.index_put((m,), x[m].exp(), accumulate=True),
        lambda n: [R(n, 3), torch.rand(n) > 0.5],
    ),
    "a product": (lambda x, w: x[x[:, 0] > 0] @ w, lambda n: [R(n, 4), R(4, 2)]),
    "nothing": (lambda x: (x[x > 9].sum(), x[x > 9]), lambda n: [R(n, 4)]),
    "all": (lambda x: x[x < 99], lambda n: [R(n, 4)]),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "varying"])
@pytest.mark.parametrize("name", list(CASES))
def test_one_graph(name: str, dynamic: bool) -> None:
    call, inputs = CASES[name]
    compiled = torch.compile(call, backend="neuron", fullgraph=True, dynamic=dynamic)
    for n in (5, 5, 11, 9) if dynamic else (5, 5):
        given = inputs(n)
        _same(compiled(*(x.to(D) for x in given)), call(*given))
    assert all(r["fallback"] is None and r["exact_because"] is None for r in metrics.get_dynamo_metrics())
    assert len(metrics.get_dynamo_metrics()) == 1


@pytest.mark.parametrize("values", [[3, 1, 3, 3, 0, 1], [2, 2, 2, 2, 2, 2], [5, 4, 3, 2, 1, 0]], ids=str)
def test_unique(values: list[int]) -> None:
    def call(x: torch.Tensor) -> Any:
        return torch.unique(x), torch.unique(x, return_inverse=True, return_counts=True), x.unique_consecutive().sum()

    x = torch.tensor(values)
    _same(torch.compile(call, backend="neuron", fullgraph=True, dynamic=False)(x.to(D)), call(x))


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "varying"])
def test_gradients(dynamic: bool) -> None:
    def loss(x: torch.Tensor, w: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        return F.gelu(x @ w)[keep].square().mean()

    compiled = torch.compile(loss, backend="neuron", fullgraph=True, dynamic=dynamic)
    w = R(4, 3)
    for n in (6, 6, 13) if dynamic else (6, 6):
        x, keep = R(n, 4), torch.rand(n) > 0.4
        keep[0] = True
        found = []
        for call, device in ((loss, "cpu"), (compiled, D)):
            xs, ws = (t.to(device, copy=True).requires_grad_() for t in (x, w))
            call(xs, ws, keep.to(device)).backward()
            found.append((xs.grad, ws.grad))
        _same(found[1], found[0])


def test_a_number_read_in_the_graph() -> None:
    def call(x: torch.Tensor, n: torch.Tensor) -> Any:
        k = n.sum().item()
        torch._check(k >= 2)
        return x * k, k + 1

    compiled = torch.compile(call, backend="neuron", fullgraph=True)
    for counts in ([1, 2], [4, 5]):
        x, n = R(3), torch.tensor(counts)
        _same(compiled(x.to(D), n.to(D)), call(x, n))
    with pytest.raises(RuntimeError):
        compiled(R(3).to(D), torch.tensor([0, 1]).to(D))[0].cpu()


def _first_rows(x: torch.Tensor, n: torch.Tensor) -> Any:
    k = n.item()
    torch._check(k >= 0)
    torch._check(k <= x.shape[0])
    first = x[:k]
    places = torch.arange(k, device=x.device)
    return first * 2, first.sum(0), x.new_ones(k).cumsum(0), places, first[places.flip(0)]


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "varying"])
def test_a_size_that_is_read(dynamic: bool) -> None:
    compiled = torch.compile(_first_rows, backend="neuron", fullgraph=True, dynamic=dynamic)
    for rows, k in ((6, 4), (6, 0), (6, 6), *(((9, 8), (13, 1)) if dynamic else ())):
        x, n = R(rows, 3), torch.tensor(k)
        _same(compiled(x.to(D), n.to(D)), _first_rows(x, n))
    assert sum(r["executables"] for r in metrics.get_dynamo_metrics()) <= 2
    for beyond in (7, -1):
        with pytest.raises(RuntimeError):
            compiled(R(6, 3).to(D), torch.tensor(beyond).to(D))[1].cpu()


def test_gradients_through_a_size_that_is_read() -> None:
    def loss(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= 10)
        return x[:k].square().sum()

    compiled = torch.compile(loss, backend="neuron", fullgraph=True, dynamic=False)
    x = R(10, 2)
    for k in (3, 7):
        here, there = x.clone().requires_grad_(), x.to(D).requires_grad_()
        loss(here, torch.tensor(k)).backward()
        compiled(there, torch.tensor(k).to(D)).backward()
        _same(there.grad, here.grad)


def test_a_size_without_an_end_is_refused_with_its_line() -> None:
    def call(n: torch.Tensor) -> torch.Tensor:
        k = n.item()
        torch._check(k >= 0)
        return torch.arange(k, device=n.device) + 1  # the line

    compiled = torch.compile(call, backend="neuron", fullgraph=True)
    with pytest.raises(CompilationError, match=r"(?s)node .*arange.*depends on data and has no end.*# the line"):
        compiled(torch.tensor(3).to(D))


def test_equal_graphs_of_which_different_things_were_checked() -> None:
    def of(most: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def call(n: torch.Tensor) -> torch.Tensor:
            k = n.item()
            torch._check(k >= 0)
            torch._check(k <= most)
            return torch.ones(k, device=n.device).cumsum(0)

        return call

    for most in (4, 9):
        torch._dynamo.reset()
        compiled = torch.compile(of(most), backend="neuron", fullgraph=True, dynamic=False)
        _same(compiled(torch.tensor(most).to(D)), torch.arange(1.0, most + 1))


def test_what_was_checked_of_a_size_is_checked_at_each_call() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        found = x.nonzero()
        torch._check(found.shape[0] > 1)
        return found * 2

    compiled = torch.compile(call, backend="neuron", fullgraph=True)
    x = torch.tensor([0, 1, 1, 0, 1])
    _same(compiled(x.to(D)), call(x))
    with pytest.raises(RuntimeError):
        compiled(torch.tensor([0, 1, 0, 0, 0]).to(D)).cpu()


def test_mark_unbacked() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).softmax(0)

    compiled = torch.compile(call, backend="neuron", fullgraph=True)
    for n in (5, 7, 12):
        x = R(n, 3)
        there = x.to(D)
        torch._dynamo.decorators.mark_unbacked(there, 0)
        _same(compiled(there), call(x))
    assert sum(r["executables"] for r in metrics.get_dynamo_metrics()) <= 2


def test_a_size_in_another_place_is_refused_with_its_reason() -> None:
    compiled = torch.compile(lambda x: x.nonzero().t().contiguous(), backend="neuron", fullgraph=True)
    with pytest.raises(CompilationError, match="another dimension than the first depends on data"):
        compiled(torch.tensor([0, 1, 1]).to(D))
