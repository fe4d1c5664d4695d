"""One program for every size up to a bound. What lies in the padding is NaN here, so a mask that is missing shows."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torch_neuronx.dynamo import metrics
from torch_neuronx.dynamo.buckets import ladder

D = "neuron"
R = torch.randn


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCH_NEURONX_POISON_PADDING", "1")
    torch._dynamo.reset()
    metrics.clear()
    torch.manual_seed(0)


def ids(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape)


Case = tuple[Callable, Callable[[int], list[torch.Tensor]]]
CASES: dict[str, Case] = {
    "elementwise": (lambda x: x * 2 + x.sin(), lambda n: [R(n, 4)]),
    "an inner dimension": (lambda x: x + 1, lambda n: [R(4, n)]),
    "a transposed input": (lambda x: x.t() * 2, lambda n: [R(4, n).t()]),
    "a sliced input": (lambda x: x * 2, lambda n: [R(n + 3, 9)[2 : n + 2, ::2]]),
    "sums": (lambda x: (x.sum(0), x.sum(1), x.sum()), lambda n: [R(n, 4)]),
    "mean and variance": (lambda x: (x.mean(1), x.var(1), x.std(1, correction=0)), lambda n: [R(4, n)]),
    "extrema": (lambda x: (x.amax(1), x.max(1), x.argmin(1), x.amin(0)), lambda n: [R(4, n)]),
    "all and any": (lambda x: ((x > -9).all(1), (x > 9).any(1)), lambda n: [R(4, n)]),
    "softmax": (lambda x: (x.softmax(-1), x.log_softmax(-1), x.softmax(0)), lambda n: [R(4, n)]),
    "a contraction": (lambda x, y: x @ y, lambda n: [R(3, n), R(n, 5)]),
    "a batch of products": (lambda x, y: x @ y, lambda n: [R(n, 3, n + 1), R(n, n + 1, 2)]),
    "two dimensions as one": (
        lambda x, w: (x.view(-1, 6) @ w).view(x.shape[0], -1, 5),
        lambda n: [R(n, n + 1, 6), R(6, 5)],
    ),
    "a sum over two as one": (lambda x: x.reshape(-1, 6).square().sum(0), lambda n: [R(n, n + 1, 6)]),
    "heads": (
        lambda x: x.view(2, x.shape[1], 2, 3).transpose(1, 2).reshape(4, x.shape[1], 3).sum(1),
        lambda n: [R(2, n, 6)],
    ),
    "copies of rows": (lambda x: torch.unbind_copy(x, 0), lambda n: [R(3, n)]),
    "statistics of layer norm": (lambda x: torch.native_layer_norm(x, [6], None, None, 1e-5), lambda n: [R(2, n, 6)]),
    "layer norm": (lambda x: F.layer_norm(x, (6,)), lambda n: [R(2, n, 6)]),
    "cat": (lambda x, y: torch.cat([x, y], 1).softmax(1), lambda n: [R(4, n), R(4, n + 2)]),
    "cat with a fixed part": (lambda x, y: torch.cat([y, x, y], 0), lambda n: [R(n, 4), R(3, 4)]),
    "stack": (lambda x, y: torch.stack([x, y], 1), lambda n: [R(n, 4), R(n, 4)]),
    "slices": (lambda x: (x[-2:], x[1:], x[:-1], x[-1], x[0], x[:2]), lambda n: [R(n, 4)]),
    "arange": (lambda x: x + torch.arange(x.shape[1], device=x.device), lambda n: [R(4, n)]),
    "a causal mask": (lambda x: (x @ x.t()).tril().softmax(-1), lambda n: [R(n, 4)]),
    "fill": (lambda x: torch.full((x.shape[0], 2), 3.0, device=x.device) + x[:, :2], lambda n: [R(n, 4)]),
    "prefix sums": (lambda x: (x.cumsum(1), x.cumprod(0)), lambda n: [R(4, n)]),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        lambda n: [R(1, 2, n, 8), R(1, 2, n + 3, 8), R(1, 2, n + 3, 8)],
    ),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda n: [R(1, 2, n, 8), R(1, 2, n, 8), R(1, 2, n, 8)],
    ),
    "embedding": (lambda w, i: F.embedding(i, w), lambda n: [R(10, 4), ids(10, 2, n)]),
    "cross entropy": (lambda x, t: F.cross_entropy(x.view(-1, 5), t.view(-1)), lambda n: [R(2, n, 5), ids(5, 2, n)]),
    "arithmetic on sizes": (lambda x: (x * x.shape[0], x.shape[0] * 2 + 1), lambda n: [R(n, 4)]),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager_at_every_size(name: str) -> None:
    f, make = CASES[name]
    call = torch.compile(f, backend="neuron", dynamic=True)
    for n in (3, 5, 12, 16):
        args = make(n)
        there, here = call(*(a.to(D) for a in args)), f(*args)
        for a, b in zip(torch.utils._pytree.tree_leaves(there), torch.utils._pytree.tree_leaves(here), strict=True):
            if isinstance(b, torch.Tensor):
                assert a.stride() == b.stride()
                torch.testing.assert_close(a.cpu(), b)
            else:
                assert a == b
    padded = [m for m in metrics.get_dynamo_metrics() if m["exact_because"] is None]
    assert len(padded) == len(metrics.get_dynamo_metrics())


def test_batch_norm_in_eval_mode() -> None:
    """Two of its results are empty where tracing takes them for full."""
    here = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()
    there = torch.compile(copy.deepcopy(here).to(D), backend="neuron", dynamic=True)
    with torch.no_grad():
        for n in (3, 12):
            x = R(n, 4)
            torch.testing.assert_close(there(x.to(D)).cpu(), here(x))
    assert [m["exact_because"] for m in metrics.get_dynamo_metrics()] == [None]


def test_sizes_of_one_bucket_share_an_executable() -> None:
    call = torch.compile(lambda x: x.softmax(0), backend="neuron", dynamic=True)
    for n in (9, 10, 13, 16):
        call(R(n, 4, device=D))
    (record,) = metrics.get_dynamo_metrics()
    assert record["executables"] == 1


def test_buckets_may_be_chosen() -> None:
    call = torch.compile(lambda x: x.softmax(0), backend="neuron", dynamic=True, options={"buckets": [10, 100]})
    for n in (3, 9, 10, 11, 70):
        x = R(n, 4)
        torch.testing.assert_close(call(x.to(D)).cpu(), x.softmax(0))
    assert metrics.get_dynamo_metrics()[0]["executables"] == 2


def test_exact_sizes_may_be_asked_for() -> None:
    call = torch.compile(lambda x: x.softmax(0), backend="neuron", dynamic=True, options={"buckets": "exact"})
    for n in (3, 4, 5):
        call(R(n, 4, device=D))
    assert metrics.get_dynamo_metrics()[0]["executables"] == 3


def test_an_op_without_a_rule_is_compiled_for_exact_sizes() -> None:
    call = torch.compile(lambda x: torch.linalg.inv(x @ x.t()), backend="neuron", dynamic=True)
    for n in (3, 5):
        x = R(n, 9)
        torch.testing.assert_close(call(x.to(D)).cpu(), torch.linalg.inv(x @ x.t()), rtol=1e-3, atol=1e-3)
    (record,) = metrics.get_dynamo_metrics()
    assert record["exact_because"].startswith("aten::linalg_inv_ex has no rule for padded sizes")
    assert record["executables"] == 2


def test_a_bound_that_is_marked() -> None:
    call = torch.compile(lambda x: x.sum(0), backend="neuron")
    for n in (3, 11):
        x = R(n, 4, device=D)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=11)
        torch.testing.assert_close(call(x).cpu(), x.cpu().sum(0))
    assert metrics.get_dynamo_metrics()[0]["executables"] == 2


def test_sizes_become_varying_by_themselves() -> None:
    call = torch.compile(lambda x: x.sum(0), backend="neuron")
    for n in (3, 4, 5, 6):
        x = R(n, 4)
        torch.testing.assert_close(call(x.to(D)).cpu(), x.sum(0))
    assert [m["executables"] for m in metrics.get_dynamo_metrics()] == [1, 1]


def test_an_index_out_of_range_in_the_padding_of_a_table() -> None:
    call = torch.compile(lambda w, i: F.embedding(i, w), backend="neuron", dynamic=True)
    call(R(9, 4, device=D), ids(9, 5).to(D))
    torch.neuron.synchronize()
    with pytest.raises(IndexError):
        call(R(9, 4, device=D), torch.tensor([9, 0, 0, 0, 0], device=D))
        torch.neuron.synchronize()


@pytest.mark.parametrize(
    ("n", "bound"), [(2, 8), (8, 8), (9, 16), (17, 24), (25, 32), (33, 48), (49, 64), (65, 96), (97, 128)]
)
def test_the_ladder(n: int, bound: int) -> None:
    assert ladder(n, ()) == bound


class Block(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, 2, d // 2).permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            place = torch.arange(n, device=x.device)
            scores = (q @ k.transpose(-1, -2)).masked_fill(place > place[:, None], float("-inf"))
            seen = scores.softmax(-1) @ v
        x = x + self.out(seen.transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(20, 16), nn.Embedding(64, 16)
        self.block, self.head = Block(fused), nn.Linear(16, 20)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.block(x))


@pytest.mark.parametrize("fused", [False, True])
def test_a_transformer_trains_at_every_length(fused: bool) -> None:
    model = Model(fused)
    there = copy.deepcopy(model).to(D)
    call = torch.compile(there, backend="neuron", dynamic=True)
    for n in (5, 9, 14, 17):
        tokens, labels = ids(20, 2, n), ids(20, 2, n)
        model.zero_grad()
        there.zero_grad()
        for m, d in ((model, "cpu"), (call, D)):
            F.cross_entropy(m(tokens.to(d)).view(-1, 20), labels.to(d).view(-1)).backward()
        for p, q in zip(there.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=1e-4, atol=1e-6)
    for record in metrics.get_dynamo_metrics():
        assert record["exact_because"] is None
        assert record["executables"] == 3  # 8, 16, 24


def test_statistics_that_tracing_takes_for_full_are_empty() -> None:
    call = torch.compile(
        lambda x, m, v: torch.native_batch_norm(x, None, None, m, v, False, 0.1, 1e-5), backend="neuron", dynamic=True
    )
    for n in (3, 5):
        got = call(R(2, n, n + 1, device=D), torch.zeros(n, device=D), torch.ones(n, device=D))
        assert [t.shape for t in got] == [(2, n, n + 1), (0,), (0,)]
