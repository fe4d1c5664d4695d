"""Sizes that recur get an executable of their own, growing ones the next bucket, both beside the program."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from torch_neuronx.dynamo import background, graph, metrics, tiers

D = "neuron"
R = torch.randn


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    metrics.clear()
    torch.manual_seed(0)
    yield
    background.drain()


def compiled(**options: Any):
    return torch.compile(lambda x: x.softmax(0), backend="neuron", dynamic=True, options=options)


def called(call, sizes) -> None:
    for n in sizes:
        x = R(n, 4)
        torch.testing.assert_close(call(x.to(D)).cpu(), x.softmax(0))


def record() -> dict[str, Any]:
    (found,) = metrics.get_dynamo_metrics()
    return found


def test_sizes_that_recur_get_their_own() -> None:
    call = compiled(exact_after=3)
    called(call, [9, 9, 9, 10, 10])
    background.drain()
    assert (record()["executables"], record()["exact"]) == (1, 0)
    called(call, [9])
    background.drain()
    assert (record()["executables"], record()["exact"]) == (1, 1)
    called(call, [9, 9, 10])
    assert record()["misses"].count("sizes that recur") <= 1


def test_never_means_never() -> None:
    call = compiled(exact_after="never")
    called(call, [9] * 15)
    background.drain()
    assert record()["exact"] == 0


def test_deterministic_mode_stays_with_the_bucket() -> None:
    call = compiled(exact_after=1)
    torch.use_deterministic_algorithms(True)
    try:
        called(call, [9] * 4)
        background.drain()
        assert record()["exact"] == 0
    finally:
        torch.use_deterministic_algorithms(False)


def test_what_is_ready_does_not_wait() -> None:
    call, go = compiled(exact_after=1), threading.Event()
    called(call, [9])
    background.submit(go.wait)
    try:
        called(call, [9, 9, 9, 12])
        assert record()["exact"] == 0
    finally:
        go.set()
    background.drain()
    assert record()["exact"] == 1


def test_the_next_bucket_is_made_ahead() -> None:
    call = compiled()
    called(call, [9, 10, 11, 12])
    background.drain()
    assert record()["executables"] == 1
    called(call, [13])
    background.drain()
    assert (record()["executables"], record()["ahead"]) == (1, 1)
    called(call, [17, 18])
    assert (record()["executables"], record()["ahead"]) == (2, 0)
    assert record()["misses"].count("new sizes or layouts") == 0


def test_a_limit_has_nothing_ahead() -> None:
    call = torch.compile(lambda x: x.sum(0), backend="neuron")
    for n in (12, 13, 14, 15, 15):
        x = R(n, 4, device=D)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=16)
        call(x)
    background.drain()
    assert (record()["executables"], record()["ahead"]) == (1, 0)


def test_an_exact_one_that_fails_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    call = compiled(exact_after=1)
    called(call, [9])

    def fails(*_: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(graph.executables, "obtain", fails)
    called(call, [9, 9])
    background.drain()
    called(call, [9, 9])
    assert record()["exact"] == 0


def test_their_number_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "MOST_EXACT", 1)
    call = compiled(exact_after=1)
    called(call, [9, 9, 10, 10, 9, 10, 10])
    background.drain()
    called(call, [9, 10])
    assert record()["exact"] == 1


def test_buffers_are_written_once_a_call() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total += x.sum(0)
            return x / self.total

    here, there = Counting(), Counting().to(D)
    call = torch.compile(there, backend="neuron", dynamic=True, options={"exact_after": 2})
    for _ in range(3):
        for n in (9, 9, 10):
            x = R(n, 4).abs()
            torch.testing.assert_close(call(x.to(D)).cpu(), here(x))
        background.drain()
    torch.testing.assert_close(there.total.cpu(), here.total)
    assert record()["exact"] == 2


@pytest.mark.parametrize("value", [-1, True, "soon", 1.5])
def test_a_wrong_number_of_calls_is_refused(value: object) -> None:
    with pytest.raises(Exception, match='"never" or a number of calls'):
        compiled(exact_after=value)(R(3, 4, device=D))
