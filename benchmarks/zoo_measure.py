"""One model of the zoo, in this process: `python -m benchmarks.zoo_measure NAME` prints what was found as JSON."""

from __future__ import annotations

import copy
import gc
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

import torch_neuronx
from benchmarks import zoo_models, zoo_transformers
from benchmarks.zoo_models import Subject

ENTRIES = {e.name: e for e in (*zoo_models.ENTRIES, *zoo_transformers.ENTRIES)}
CONTENDERS = ("cpu", "eager", "compiled")
BLOCKS, SECONDS = 5, 0.6
# Gradients whose largest element is below this part of the largest gradient's are noise (the bias of keys, say).
NOISE = 1e-4


class Runner:
    """One contender: the model where it runs, called as it is or compiled."""

    def __init__(self, subject: Subject, contender: str) -> None:
        self.device = "cpu" if contender == "cpu" else "neuron"
        self.model: nn.Module = copy.deepcopy(subject.model).to(self.device)
        self.call = subject.compiled(self.model) if contender == "compiled" else self.model
        self.inputs, self.named = self._there(subject.inputs), self._there(subject.named or {})
        self.loss = subject.loss
        # SGD: AdamW's first step is the gradient's sign, which noise decides where the gradient is zero
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3) if subject.loss else None

    def _there(self, tree: Any) -> Any:
        return tree_map(lambda x: x.to(self.device) if isinstance(x, Tensor) else x, tree)

    def forward(self) -> Any:
        with torch.no_grad():
            return self.call(*self.inputs, **self.named)

    def step(self) -> None:
        assert self.loss is not None and self.optimizer is not None
        self.optimizer.zero_grad()
        self.loss(self.call(*self.inputs, **self.named)).backward()
        self.optimizer.step()

    def gradients(self) -> list[Tensor]:
        """Of all parameters at the weights of the start; zero where there is none, as compiled graphs have it."""
        assert self.loss is not None
        self.model.zero_grad()
        self.loss(self.call(*self.inputs, **self.named)).backward()
        found = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.model.parameters() if p.requires_grad]
        return [g.detach().cpu().clone() for g in found]


def _tensors(out: Any) -> Iterator[Tensor]:
    for x in tree_leaves(out):
        if isinstance(x, Tensor):
            yield x.detach().to_dense().cpu()


def error(got: Any, wanted: Any) -> float:
    """The largest difference, relative to the largest element of each result. Infinite where shape or kind differ."""
    pairs = list(zip(_tensors(got), _tensors(wanted), strict=False))
    if len(pairs) != sum(1 for _ in _tensors(wanted)):
        return float("inf")
    return max((_difference(a, b, 0.0) for a, b in pairs), default=float("inf"))


def gradient_error(got: list[Tensor], wanted: list[Tensor]) -> float:
    """The same for gradients; those that are noise beside the largest are held against that."""
    if len(got) != len(wanted):
        return float("inf")
    least = NOISE * max(float(g.abs().max()) for g in wanted)
    return max(_difference(a, b, least) for a, b in zip(got, wanted, strict=True))


def _difference(a: Tensor, b: Tensor, least: float) -> float:
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if not b.is_floating_point():
        return 0.0 if torch.equal(a, b) else float("inf")
    if not b.numel():
        return 0.0
    scale = max(float(b.abs().max()), least)
    worst = float((a - b).abs().nan_to_num(nan=float("inf")).max())
    return worst / scale if scale else worst


def float64_gradients(subject: Subject) -> list[Tensor]:
    """The CPU's gradients computed in float64, rounded: what float32 differs from there is no device's error."""

    def wide(tree: Any) -> Any:
        return tree_map(lambda x: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x, tree)

    named = wide(subject.named or {})
    doubled = replace(subject, model=copy.deepcopy(subject.model).double(), inputs=wide(subject.inputs), named=named)
    return [g.float() for g in Runner(doubled, "cpu").gradients()]


def _timed(run: Callable[[], object]) -> tuple[float, Any]:
    begun = time.perf_counter()
    out = run()
    torch.neuron.synchronize()  # type: ignore[attr-defined]
    return time.perf_counter() - begun, out


def _side_by_side(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds a call of each, the best block of several taken in turn."""
    best = {name: _timed(run)[0] for name, run in runs.items()}
    gc.collect()
    for _ in range(BLOCKS):
        for name, run in runs.items():
            calls, begun = 0, time.perf_counter()
            while time.perf_counter() - begun < SECONDS / BLOCKS or not calls:
                run()
                calls += 1
            torch.neuron.synchronize()  # type: ignore[attr-defined]
            best[name] = min(best[name], (time.perf_counter() - begun) / calls)
    return best


def _fallbacks() -> dict[str, str]:
    """op -> why, of what ran on the CPU since the last time, or as whole graphs op by op."""
    found = {r.op: f"{r.count}x: {r.reason}" for r in torch_neuronx.debug.fallback_report()}
    torch_neuronx.clear_op_tracking()
    return found


def _graphs() -> dict[str, Any]:
    from torch._dynamo.utils import counters as dynamo

    records = torch_neuronx.get_dynamo_metrics()
    return {
        "graphs": len(records),
        "executables": sum(r["executables"] + r["exact"] for r in records),
        "compile": sum(r["compile_time"] + r["lowering_time"] for r in records),
        "exact_because": sorted({r["exact_because"] for r in records if r["exact_because"]}),
        "fallback": sorted({r["fallback"] for r in records if r["fallback"]}),
        "breaks": {str(reason).strip().partition("\n")[0]: n for reason, n in dynamo["graph_break"].items()},
    }


class Findings:
    """What is found of one model; the keys of each part are contenders."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.wanted: Any = None  # the CPU's result, and its gradients
        self.gradients: list[Tensor] | None = None
        self.parts: dict[str, dict[str, Any]] = {
            name: {} for name in ("error", "gradient_error", "first", "first_step", "fallbacks", "raised")
        }

    def look_at(self, contender: str) -> Runner | None:
        """Its first calls; None when it raises, which the CPU must not."""
        try:
            return self._first_calls(contender)
        except Exception as error:
            if contender == "cpu":
                raise
            traceback.print_exc()
            self.parts["raised"][contender] = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            return None
        finally:
            self.parts["fallbacks"][contender] = _fallbacks()

    def _first_calls(self, contender: str) -> Runner:
        runner = Runner(self.subject, contender)
        if self.subject.loss is not None:  # first, before running statistics move
            self.parts["first_step"][contender], got = _timed(runner.gradients)
            if self.gradients is None:
                self.gradients = got
                self.parts["gradient_error"]["float64"] = gradient_error(got, float64_gradients(self.subject))
            self.parts["gradient_error"][contender] = gradient_error(got, self.gradients)
        self.parts["first"][contender], out = _timed(runner.forward)
        self.wanted = out if contender == "cpu" else self.wanted
        self.parts["error"][contender] = max(error(x, self.wanted) for x in (out, runner.forward()))
        return runner


def measure(subject: Subject) -> dict[str, Any]:
    """Errors, what ran where and how, seconds a call."""
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    findings = Findings(subject)
    torch_neuronx.clear_op_tracking()
    looked = {c: findings.look_at(c) for c in CONTENDERS}
    runners = {c: r for c, r in looked.items() if r is not None}
    found = findings.parts | _graphs()
    found["call"] = _side_by_side({c: r.forward for c, r in runners.items()})
    if subject.loss is not None:
        found["step"] = _side_by_side({c: r.step for c, r in runners.items()})
    return found


def main() -> None:
    torch.manual_seed(0)
    subject = ENTRIES[sys.argv[1]].build()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))  # after silero_vad, whose import sets it
    print(json.dumps(measure(subject)))


if __name__ == "__main__":
    main()
