"""Greedy generation of 64 tokens by a small Llama: eager with a growing cache, and compiled with a static one.

CPU torch and neuron take turns in one process on one thread. The process that is measured is the second one: the first
leaves its executables on disk. "First" is the first generation of that process, which loads them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import torch_neuronx
from benchmarks import processes, report
from benchmarks.zoo_transformers import LAYERS, WIDTH, Generation, llama

RESULTS = Path(__file__).parent / "results"
TOKENS, PROMPT, ROUNDS = 64, 10, 5
WAYS: dict[str, dict[str, Any]] = {
    "eager, growing cache": {"disable_compile": True},
    "compiled, static cache": {"cache_implementation": "static"},
}


def _generation(device: str, how: dict[str, Any]) -> Generation:
    torch.manual_seed(0)
    return Generation(llama().eval().to(device), **{"min_new_tokens": TOKENS, "max_new_tokens": TOKENS, **how})


def _seconds(generation: Generation, ids: Tensor) -> tuple[float, Tensor]:
    begun = time.perf_counter()
    tokens = generation(ids)[0].cpu()
    return time.perf_counter() - begun, tokens


def measure(way: str) -> dict[str, Any]:
    """Seconds of CPU eager, and of neuron's first and best generation; executables it has loaded and compiled."""
    ids = torch.randint(3, 90, (1, PROMPT))
    here, there = _generation("cpu", {"disable_compile": True}), _generation("neuron", WAYS[way])
    ids_there = ids.to("neuron")
    cpu, want = _seconds(here, ids)
    (there.model(ids_there).logits + 1).cpu()  # the engine starts, and what is no matter of length is loaded
    first, got = _seconds(there, ids_there)
    if not torch.equal(got, want):
        raise RuntimeError(f"{way}: other tokens than the CPU's")
    best = first
    for _ in range(ROUNDS):
        cpu = min(cpu, _seconds(here, ids)[0])
        best = min(best, _seconds(there, ids_there)[0])
    counted = torch_neuronx.debug.counters()
    return {"cpu": cpu, "first": first, "best": best, "loaded": counted["loaded"], "compiled": counted["compiled"]}


def _text(found: dict[str, dict[str, Any]]) -> str:
    rows = ["| | CPU eager, ms | first, ms | ratio | in memory, ms | ratio | loaded | compiled |", "|---" * 8 + "|"]
    for way, f in found.items():
        cells = [way, f"{f['cpu'] * 1e3:.0f}"]
        for key in ("first", "best"):
            cells += [f"{f[key] * 1e3:.0f}", f"{f[key] / f['cpu']:.2f}"]
        rows.append("| " + " | ".join([*cells, str(f["loaded"]), str(f["compiled"])]) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generation", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        torch.set_num_threads(1)
        print(json.dumps(measure(chosen.only[0])))
        return
    load = report.load_average()
    found = {}
    for way in chosen.only:
        with tempfile.TemporaryDirectory() as cache:
            for _ in ("to fill the disk", "to measure"):
                found[way] = processes.measured("benchmarks.generation", way, cache)
    around = report.circumstances(load)
    head = [f"{around.date}, {around.versions}", around.processor, f"load average {load}, then {around.load_after}"]
    about = f"Llama, {LAYERS} layers of {WIDTH}, {TOKENS} tokens after {PROMPT}, float32, one thread"
    text = "\n".join([*head, about, "", _text(found)])
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "generation.md").write_text(text + "\n")
    (RESULTS / "generation.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
