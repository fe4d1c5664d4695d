"""A causal transformer served, and trained, at 64 lengths from 1 to 512: buckets beside an executable for every length.

Both take turns in one process, warm. The exact tier is off, so that the buckets' own speed shows.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import torch_neuronx
from benchmarks import models, processes, report

RESULTS = Path(__file__).parent / "results"
LENGTHS = sorted({1 + round(i * 511 / 63) for i in range(64)})
LAYERS, WIDTH, HEADS, VOCABULARY = 2, 256, 8, 4096
ROUNDS = 5
Call = Callable[[int], object]


def _model() -> nn.Module:
    torch.manual_seed(0)
    return models.GPT2(LAYERS, WIDTH, HEADS, LENGTHS[-1], VOCABULARY).to("neuron")


def _forward(buckets: dict[str, Any], ids: torch.Tensor) -> Call:
    model = torch.compile(_model().eval(), backend="neuron", dynamic=True, options=buckets)

    def call(n: int) -> object:
        with torch.no_grad():
            return model(ids[:, :n])

    return call


def _step(buckets: dict[str, Any], ids: torch.Tensor) -> Call:
    plain = _model()
    model = torch.compile(plain, backend="neuron", dynamic=True, options=buckets)

    def call(n: int) -> object:
        plain.zero_grad()
        out = model(ids[:, :n])
        F.cross_entropy(out[0], ids[0, :n]).backward()
        return out

    return call


WORK: dict[str, Callable[[dict[str, Any], torch.Tensor], Call]] = {"forward": _forward, "step": _step}


def _waited(call: Call, n: int) -> float:
    begun = time.perf_counter()
    call(n)
    torch.neuron.synchronize()  # type: ignore[attr-defined]
    return time.perf_counter() - begun


def measure(name: str) -> dict[str, Any]:
    """Seconds a call of each length, best of some rounds, and how many executables the largest graph has."""
    ids = torch.randint(0, VOCABULARY, (1, LENGTHS[-1]), device="neuron")
    ways = {"bucket": {"exact_after": "never"}, "exact": {"buckets": "exact"}}
    best: dict[str, list[float]] = {}
    executables = {}
    calls = {}
    for way, options in ways.items():
        torch_neuronx.dynamo.metrics.clear()
        calls[way] = WORK[name](copy.copy(options), ids)
        for n in LENGTHS:
            _waited(calls[way], n)
        records = torch_neuronx.get_dynamo_metrics()
        executables[way] = max(
            sum(r["executables"] for r in records if r["kind"] == k) for k in {r["kind"] for r in records}
        )
        best[way] = [float("inf")] * len(LENGTHS)
    for _ in range(ROUNDS):
        for i, n in enumerate(LENGTHS):
            for way, call in calls.items():
                best[way][i] = min(best[way][i], _waited(call, n))
    return {"executables": executables, **best}


def _text(found: dict[str, dict[str, Any]]) -> str:
    rows = ["| | executables a graph | exact | all lengths, ms | exact, ms | ratio | worst length |", "|---" * 7 + "|"]
    for name, f in found.items():
        ratios = [b / e for b, e in zip(f["bucket"], f["exact"], strict=True)]
        worst = max(range(len(ratios)), key=ratios.__getitem__)
        cells = [name, str(f["executables"]["bucket"]), str(f["executables"]["exact"])]
        cells += [f"{sum(f[way]) * 1e3:.0f}" for way in ("bucket", "exact")]
        cells += [f"{sum(f['bucket']) / sum(f['exact']):.2f}", f"{ratios[worst]:.2f} at {LENGTHS[worst]}"]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(WORK), default=list(WORK))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        torch.set_num_threads(1)
        print(json.dumps(measure(chosen.only[0])))
        return
    load = report.load_average()
    found = {}
    for name in chosen.only:
        with tempfile.TemporaryDirectory() as cache:
            found[name] = processes.measured("benchmarks.serving", name, cache)
    around = report.circumstances(load)
    head = [f"{around.date}, {around.versions}", around.processor, f"load average {load}, then {around.load_after}"]
    about = f"{LAYERS} layers of {WIDTH}, {HEADS} heads, {VOCABULARY} tokens, one thread, float32; "
    about += f"{len(LENGTHS)} lengths from 1 to {LENGTHS[-1]}"
    text = "\n".join([*head, about, "", _text(found)])
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "serving.md").write_text(text + "\n")
    (RESULTS / "serving.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
