"""The backward's executable is made in the background while the forward's is compiled and runs."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from torch_neuronx.compiler import executables
from torch_neuronx.dynamo import background, graph, metrics

D = "neuron"
pytestmark = pytest.mark.usefixtures("own_caches")


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        a = (q @ k.mT).softmax(-1) @ v
        return x + self.out(a.transpose(1, 2).flatten(-2)).relu()


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear layers": (lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), (3, 8)),
    "attention": (Attention, (2, 5, 16)),
    "convolution and batch norm": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
        (2, 2, 6, 6),
    ),
    "dropout": (lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.0), nn.Tanh()), (3, 8)),
}


def step(model: nn.Module, x: torch.Tensor) -> None:
    model(x).square().mean().backward()


def backward() -> dict[str, Any]:
    (found,) = (r for r in metrics.get_dynamo_metrics() if r["kind"] == "backward")
    return found


@pytest.mark.parametrize("name", MODELS)
def test_what_the_backward_needs_is_known(name: str) -> None:
    made, shape = MODELS[name]
    here = made()
    there = copy.deepcopy(here).to(D)
    x = torch.randn(shape)
    step(torch.compile(there, backend="neuron"), x.to(D))
    step(here, x)
    for p, q in zip(there.parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad)
    background.drain()
    record = backward()
    assert (record["executables"], record["early"], record["early_used"]) == (1, 1, 1)
    assert record["misses"] == ["new graph"]


def test_a_view_of_larger_memory_goes_in() -> None:
    model = nn.Linear(8, 4)
    there = copy.deepcopy(model).to(D)
    x = torch.randn(6, 8)
    step(torch.compile(there, backend="neuron"), x.to(D)[2:5])
    step(model, x[2:5])
    torch.testing.assert_close(there.weight.grad.cpu(), model.weight.grad)


def test_a_wrong_guess_costs_nothing_but_time(monkeypatch: pytest.MonkeyPatch) -> None:
    guess = graph.backward_call

    def wrong(*args: Any) -> Any:
        call = guess(*args)
        return call and replace(call, params=call.params + 1)

    monkeypatch.setattr(graph, "backward_call", wrong)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    there = copy.deepcopy(model).to(D)
    x = torch.randn(8, 8)
    step(torch.compile(there, backend="neuron"), x.to(D))
    step(model, x)
    torch.testing.assert_close(there[0].weight.grad.cpu(), model[0].weight.grad)
    background.drain()
    record = backward()
    assert record["executables"] == 1
    assert record["early_used"] == 0


def test_what_was_not_begun_is_not_waited_for() -> None:
    go = threading.Event()
    background.submit(go.wait)
    try:
        model = nn.Linear(4, 4).to(D)
        step(torch.compile(model, backend="neuron"), torch.randn(2, 4, device=D))
        assert model.weight.grad is not None
    finally:
        go.set()
    background.drain()
    assert (backward()["executables"], backward()["early"]) == (1, 0)


def test_an_error_appears_at_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    obtain = executables.obtain

    def fails(source: executables.Source, *rest: Any) -> executables.Obtained:
        if "backward" in source.name:
            raise executables.LoweringFailed("out of luck")
        return obtain(source, *rest)

    monkeypatch.setattr(executables, "obtain", fails)
    model = nn.Linear(4, 4).to(D)
    out = torch.compile(model, backend="neuron")(torch.randn(2, 4, device=D))
    background.drain()
    with pytest.raises(RuntimeError, match="out of luck"):
        out.sum().backward()


CHILD = """
import os, sys, torch, torch_neuronx
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Softmax(-1)).to("neuron")
out = torch.compile(model, backend="neuron")(torch.ones(3, 8, device="neuron"))
if "fork" in sys.argv and os.fork() == 0:
    try:
        out.sum().backward()
    except RuntimeError as error:
        os._exit(0 if "forked subprocess" in str(error) else 1)
    os._exit(2)
if "fork" in sys.argv:
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    out.sum().backward()
print("done")
"""


@pytest.mark.parametrize("argument", ["exit", "fork"])
def test_nothing_hangs_at_exit_or_after_a_fork(argument: str) -> None:
    """The program ends, or is forked, while the backward is being made."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, argument],
        capture_output=True,
        text=True,
        env=os.environ,
        check=True,
        timeout=300,
    )
    assert ran.stdout == "done\n"
