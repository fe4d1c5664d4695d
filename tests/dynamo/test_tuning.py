"""mode="max-autotune": variants are measured on made-up arguments, compared, and the choice is kept on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from torch_neuronx.compiler import tuning
from torch_neuronx.dynamo import metrics
from torch_neuronx.runtime.protocol import Variant
from torch_neuronx.runtime.targets import runtime
from torch_neuronx.runtime.xla import XlaRuntime

D = "neuron"
pytestmark = pytest.mark.usefixtures("own_caches")


def tuned(f: Any, **more: Any) -> Any:
    return torch.compile(f, backend="neuron", mode="max-autotune", **more)


def reports() -> list[dict[str, Any]]:
    return [t for r in metrics.get_dynamo_metrics() for t in r["tuned"]]


def variants(monkeypatch: pytest.MonkeyPatch, *given: Variant) -> None:
    monkeypatch.setattr(XlaRuntime, "variants", lambda self, program: given)


def test_the_variants_are_compared_and_the_values_right() -> None:
    x, y = torch.randn(8, 32), torch.randn(32, 16)

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y).softmax(-1).sum(0)

    torch.testing.assert_close(tuned(f)(x.to(D), y.to(D)).cpu(), f(x, y))
    (report,) = reports()
    assert report["chosen"] in report["milliseconds"]
    names = {v.name for v in runtime().variants(b"")}
    assert {tuning.USUAL, *names} == {*report["milliseconds"], *report["dropped"]}
    assert not report["dropped"]
    assert len(names) >= 4


def test_training_is_tuned_in_both_directions() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    there = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    there.load_state_dict(model.state_dict())
    there.to(D)
    x = torch.randn(3, 8)
    tuned(there)(x.to(D)).square().sum().backward()
    model(x).square().sum().backward()
    for p, q in zip(there.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad)
    assert [(r["kind"], len(r["tuned"])) for r in metrics.get_dynamo_metrics()] == [("forward", 1), ("backward", 1)]


def test_the_users_tensors_and_random_state_are_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    variants(monkeypatch, *runtime().variants(b"")[:1])

    def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return torch.nn.functional.dropout(x, 0.5)[i]

    torch.manual_seed(3)
    numbers = np.random.get_state()[1].copy()
    here, i = torch.randn(6, 4), torch.tensor([5, 0])
    first, second = here.to(D), here.to(D)
    torch.neuron.manual_seed(7)
    a = tuned(f)(first, i.to(D)).cpu()
    torch._dynamo.reset()
    torch.neuron.manual_seed(7)
    b = torch.compile(f, backend="neuron")(second, i.to(D)).cpu()
    torch.testing.assert_close(a, b, rtol=0, atol=0)
    torch.testing.assert_close(first.cpu(), here * 2, rtol=0, atol=0)
    assert (np.random.get_state()[1] == numbers).all()
    (report,) = reports()
    assert not report["dropped"]


def test_a_faster_variant_is_taken_and_a_wrong_or_broken_one_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    good, wrong, broken = Variant("good", ()), Variant("wrong", ()), Variant("broken", (("xla_no_such_option", 1),))
    variants(monkeypatch, wrong, broken, good)
    compile_as_it_is = XlaRuntime.compile
    others = []  # an executable that does something else

    def keeping(self: XlaRuntime, *given: Any) -> Any:
        others.append(compile_as_it_is(self, *given))
        return others[-1]

    with monkeypatch.context() as patch:
        patch.setattr(XlaRuntime, "compile", keeping)
        torch.compile(lambda x: x - 1, backend="neuron")(torch.zeros(3, device=D))
    metrics.clear()
    monkeypatch.setattr(
        XlaRuntime, "compile", lambda self, *given: others[-1] if wrong in given else compile_as_it_is(self, *given)
    )
    times = {tuning.USUAL: 2.0, "good": 1.0}
    monkeypatch.setattr(tuning, "_times", lambda made, arguments: {name: times[name] for name in made})
    out = tuned(lambda x: x + 1)(torch.zeros(3, device=D))
    assert out.tolist() == [1, 1, 1]
    (report,) = reports()
    assert report["chosen"] == "good"
    assert "differs by" in report["dropped"]["wrong"]
    assert "xla_no_such_option" in report["dropped"]["broken"]


@pytest.mark.parametrize(("seconds", "chosen"), [(0.98, tuning.USUAL), (0.9, "fusion emitters")])
def test_the_usual_one_stays_unless_another_is_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, seconds: float, chosen: str
) -> None:
    monkeypatch.setattr(tuning, "_times", lambda made, _: dict.fromkeys(made, 1.0) | {"fusion emitters": seconds})
    tuned(lambda x: x.sin() + 1)(torch.ones(3, device=D))
    (report,) = reports()
    assert report["chosen"] == chosen


def test_when_the_time_is_used_up_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "LIMIT", 1e-9)
    tuned(lambda x: x * 3)(torch.ones(3, device=D))
    (report,) = reports()
    assert (report["chosen"], set(report["dropped"].values())) == (tuning.USUAL, {tuning.NO_TIME})


def test_deterministic_mode_takes_the_usual_one() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        tuned(lambda x: x.exp() - 1)(torch.ones(3, device=D))
    finally:
        torch.use_deterministic_algorithms(False)
    assert reports() == []


def test_varying_sizes_are_tuned_by_bucket() -> None:
    call = tuned(lambda x: x.softmax(0) @ x.t(), dynamic=True)
    for n in (9, 10, 17):
        x = torch.randn(n, 4)
        torch.testing.assert_close(call(x.to(D)).cpu(), x.softmax(0) @ x.t())
    assert len(reports()) == 2
    assert all(not r["dropped"] for r in reports())


def test_convolutions_are_measured_as_products() -> None:
    conv = nn.Conv2d(32, 64, 3, padding=1)
    there = nn.Conv2d(32, 64, 3, padding=1)
    there.load_state_dict(conv.state_dict())
    x = torch.randn(2, 32, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(tuned(there.to(D))(x.to(D)).cpu(), conv(x), rtol=1e-4, atol=1e-5)
    (report,) = reports()
    assert "convolutions as products" in report["milliseconds"]
    assert "no convolution as products" not in {**report["milliseconds"], **report["dropped"]}  # the usual one


CHILD = """
import torch, torch_neuronx
from torch_neuronx.compiler.executables import compile_counters
call = torch.compile(lambda x: (x @ x).relu(), backend="neuron", mode="max-autotune")
call(torch.ones(4, 4, device="neuron"))
(record,) = torch_neuronx.get_dynamo_metrics()
print(record["cache_hits"], record["tuned"], compile_counters()["compiled"])
"""


def test_a_second_process_measures_and_compiles_nothing() -> None:
    lines = []
    for _ in range(2):
        ran = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, env=os.environ, check=True)
        lines.append(ran.stdout.strip())
    assert lines[0].startswith("0 [")
    report = lines[0].removeprefix("0 ").rpartition(" ")[0]
    assert lines[1] == f"1 {report} 0"
