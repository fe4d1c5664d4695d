"""Graphs that AOTAutograd's cache keeps: a later process does not trace them again, and nothing else changes."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import torch_neuronx
from torch_neuronx.compiler import executables
from torch_neuronx.dynamo import metrics, stored

D = "neuron"


@pytest.fixture(autouse=True)
def _all_are_kept(own_caches: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "WORTH_IT", 0)
    counters.clear()


def forget() -> None:
    torch._dynamo.reset()
    metrics.clear()
    counters.clear()


def traced() -> list[bool]:
    return [m["traced"] for m in metrics.get_dynamo_metrics()]


class Net(nn.Module):
    """Writes to buffers, draws numbers, returns a view of an input and one of a result."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        h = nn.functional.dropout(self.norm(self.first(x)).relu(), 0.5)
        y = self.last(h)
        return y.softmax(-1), y[1:], x.t()


def train(steps: int = 3, **options: Any) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    model = Net().to(D)
    compiled = torch.compile(model, backend="neuron", dynamic=False, **options)
    x = torch.randn(5, 6).to(D).requires_grad_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = {}
    for i in range(steps):
        optimizer.zero_grad()
        y, part, view = compiled(x)
        assert view._base is x or view.data_ptr() == x.data_ptr()
        (y.square().sum() + part.sum()).backward()
        optimizer.step()
        kept |= {f"{i} {name}": t.detach().cpu().clone() for name, t in (("y", y), ("part", part), ("view", view))}
    kept |= {name: t.cpu() for name, t in model.state_dict().items()}
    assert x.grad is not None
    return kept | {"gradient": x.grad.cpu()}


def test_a_graph_that_was_read_gives_what_the_traced_one_gave() -> None:
    expected = train()
    assert traced() == [True, True]
    forget()
    got = train()
    assert traced() == [False, False]
    assert all(m["executables"] == m["cache_hits"] == 1 for m in metrics.get_dynamo_metrics())
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, rtol=0, atol=0, msg=name)


def test_inference_writes_to_its_buffers_and_reads_the_cpu() -> None:
    def step(cache: torch.Tensor, at: torch.Tensor, host: torch.Tensor) -> torch.Tensor:
        cache.index_add_(0, at, torch.ones(1, 3, device=D))
        return cache * host.to(cache.device)

    expected = torch.tensor([[0.0] * 3, [2.0] * 3])
    for was_traced in (True, False):
        forget()
        cache = torch.zeros(2, 3, device=D)
        with torch.no_grad():
            out = torch.compile(step, dynamic=False)(cache, torch.tensor([1], device=D), torch.full((3,), 2.0))
        assert traced() == [was_traced]
        torch.testing.assert_close(out.cpu(), expected)
        torch.testing.assert_close(cache.cpu(), expected / 2)


@contextmanager
def another_version() -> Iterator[None]:
    with mock.patch.object(executables, "code_version", lambda: "another"):
        yield


CHANGES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "the package's code": another_version,
    "which attention is taken": lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    "the CPU's random numbers": torch_neuronx.debug.cpu_random,
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_decides_on_a_graph_is_part_of_its_name(change: str) -> None:
    def f(q: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, q, q)

    q = torch.randn(1, 2, 3, 4)
    for changed in (False, True):
        forget()
        with CHANGES[change]() if changed else nullcontext():
            out = torch.compile(f, backend="neuron", dynamic=False)(q.to(D))
        torch.testing.assert_close(out.cpu(), f(q))
        assert traced() == [True]


def test_autocast_is_part_of_its_name() -> None:
    model, x = nn.Linear(4, 4).to(D), torch.ones(2, 4, device=D)
    for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
        forget()
        with torch.autocast("neuron", dtype=dtype):
            out = torch.compile(model, backend="neuron", dynamic=False)(x)
        assert out.dtype == dtype
    assert traced() == [False, False]


def test_options_are_part_of_its_name() -> None:
    train(1)
    forget()
    train(1, options={"fallback_execution": True})
    assert traced() == [True, True]


def test_operators_of_others_are_traced_each_time() -> None:
    factor = 2.0
    with torch.library._scoped_library("stored_tests", "FRAGMENT") as library:
        library.define("scaled(Tensor x) -> Tensor")
        library.impl("scaled", lambda x: x * factor, "CompositeImplicitAutograd")
        for factor in (2.0, 3.0):
            forget()
            for op in (torch.ops.stored_tests.scaled, torch.ops.stored_tests.scaled.default):
                compiled = torch.compile(lambda x, op=op: op(x), backend="neuron", dynamic=False)
                assert compiled(torch.ones(2, device=D)).tolist() == [factor, factor]
            assert traced() == [True, True]


def test_varying_sizes_are_traced_each_time() -> None:
    model = nn.Linear(4, 4).to(D)
    for _ in range(2):
        forget()
        compiled = torch.compile(model, backend="neuron", dynamic=True)
        for n in (3, 5):
            assert compiled(torch.ones(n, 4, device=D)).shape == (n, 4)
        assert traced() == [True, True]
        assert counters["aot_autograd"]["autograd_cache_saved"] == 0


def test_a_spoilt_file_is_traced_again(tmp_path: Path) -> None:
    expected = train(1)
    for spoilt in (b"", b"nonsense", pickle.dumps({"no": "entry"})):
        files = [f for f in (tmp_path / "inductor" / "aotautograd").rglob("*") if f.is_file()]
        assert files
        for file in files:
            file.write_bytes(spoilt)
        forget()
        got = train(1)
        assert traced() == [True, True]
        torch.testing.assert_close(got["gradient"], expected["gradient"], rtol=0, atol=0)


def test_small_graphs_are_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "WORTH_IT", 1000)
    train(1)
    assert counters["aot_autograd"]["autograd_cache_miss"] == 0


def test_nothing_is_kept_where_the_cache_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DISABLE_NEFF_CACHE", "1")
    executables.disk_cache.cache_clear()
    train(1)
    assert not (tmp_path / "inductor" / "aotautograd").exists()


PROGRAM = """
import torch, torch_neuronx
from torch import nn
from torch_neuronx.dynamo import metrics, stored
stored.WORTH_IT = 0
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).to("neuron")
compiled = torch.compile(model, backend="neuron", dynamic=False)
compiled(torch.ones(3, 4, device="neuron")).sum().backward()
print(model[0].weight.grad.cpu().sum().item(), [m["traced"] for m in metrics.get_dynamo_metrics()])
"""


def test_another_process_does_not_trace(python: Callable[..., str]) -> None:
    value, first = python(PROGRAM, **_here()).strip().split(" ", 1)
    again, second = python(PROGRAM, **_here()).strip().split(" ", 1)
    assert value == again
    assert first == "[True, True]"
    assert second == "[False, False]"


def _here() -> dict[str, str]:
    return {n: os.environ[n] for n in ("TORCH_NEURONX_NEFF_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")}
