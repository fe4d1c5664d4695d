"""torch.compile on neuron beside torch eager and Inductor on the CPU, with one and with two threads.

One process a number of threads; in it the three take turns, and each has its best block. First calls are timed with
empty caches, and once more in a new process with what the first one left on disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import torch_neuronx  # noqa: F401 - registers the device when the package is not installed
from benchmarks import models, report

RESULTS = Path(__file__).parent / "results"
CONTENDERS = ("eager", "inductor", "neuron")
BLOCKS, SECONDS = 7, 3.0
Step = Callable[[], object]


def _device(contender: str) -> str:
    return "neuron" if contender == "neuron" else "cpu"


def _compiled(model: nn.Module, contender: str) -> Callable[..., Any]:
    return model if contender == "eager" else torch.compile(model, backend=contender, dynamic=False)


def _forward(model: nn.Module, example: torch.Tensor, contender: str) -> Step:
    call = _compiled(model.eval().to(_device(contender)), contender)
    x = example.to(_device(contender))

    def step() -> object:
        with torch.no_grad():
            return call(x)

    return step


def _training(model: nn.Module, x: torch.Tensor, y: torch.Tensor, contender: str) -> Step:
    there = model.to(_device(contender))
    call = _compiled(there, contender)
    inputs, labels = x.to(_device(contender)), y.to(_device(contender))
    optimizer = torch.optim.AdamW(there.parameters(), lr=1e-3, fused=True)

    def step() -> object:
        optimizer.zero_grad()
        out = call(inputs)
        loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


class _BlockModel(nn.Module):
    """One GPT-2 block of 768 between a projection to 100 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.head = models.Block(768, 12), nn.Linear(768, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(x))


def _mlp_step(contender: str) -> Step:
    return _training(models.mlp(), torch.randn(64, 256), torch.randint(0, 10, (64,)), contender)


def _block_step(contender: str) -> Step:
    return _training(_BlockModel(), torch.randn(2, 128, 768), torch.randint(0, 100, (256,)), contender)


WORK: dict[str, Callable[[str], Step]] = {
    "gpt2_forward": lambda c: _forward(models.GPT2(), torch.randint(0, 50000, models.GPT2_INPUT), c),
    "resnet18_forward": lambda c: _forward(models.resnet18(), torch.randn(models.RESNET_INPUT), c),
    "mlp_step": _mlp_step,
    "gpt2_block_step": _block_step,
}


def _waited(step: Step) -> float:
    begun = time.perf_counter()
    step()
    torch.neuron.synchronize()  # type: ignore[attr-defined]
    return time.perf_counter() - begun


def _measure(name: str) -> dict[str, dict[str, float]]:
    """contender -> seconds: of its first call, of one call of its best block."""
    torch.manual_seed(0)
    found: dict[str, dict[str, float]] = {}
    steps: dict[str, Step] = {}
    for contender in CONTENDERS:
        steps[contender] = WORK[name](contender)
        found[contender] = {"first": _waited(steps[contender]), "call": float("inf")}
        _waited(steps[contender])
    for _ in range(BLOCKS):
        for contender, step in steps.items():
            calls, begun = 0, time.perf_counter()
            while time.perf_counter() - begun < SECONDS / BLOCKS or not calls:
                step()
                calls += 1
            torch.neuron.synchronize()  # type: ignore[attr-defined]
            taken = (time.perf_counter() - begun) / calls
            found[contender]["call"] = min(found[contender]["call"], taken)
    return found


def _child(threads: int, names: list[str], *, firsts: bool) -> None:
    torch.set_num_threads(threads)
    if firsts:
        print(json.dumps({n: {"neuron": {"warm": _waited(WORK[n]("neuron"))}} for n in names}))
    else:
        print(json.dumps({n: _measure(n) for n in names}))


def _run(threads: int, name: str, caches: str, *flags: str) -> dict[str, Any]:
    environment = {
        **os.environ,
        "TORCH_NEURONX_NEFF_CACHE_DIR": f"{caches}/neff",
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
        "OMP_NUM_THREADS": str(threads),
    }
    cores = ",".join(str(c) for c in sorted(os.sched_getaffinity(0))[-threads:])
    command = ["taskset", "-c", cores, sys.executable, "-m", "benchmarks.compiled", "--threads", str(threads)]
    command += ["--only", name, "--child", *flags]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1])[name])


def _table(figures: dict[str, Any]) -> str:
    head = (
        "| | threads | eager | Inductor | neuron | neuron / eager | neuron / Inductor "
        "| first call: Inductor | neuron | neuron, from disk |"
    )
    rows = [head, "|---" * 10 + "|"]
    for key, f in figures.items():
        name, threads = key.split("/")
        eager, inductor, ours = (f[c]["call"] for c in CONTENDERS)
        cells = [name, threads, *(f"{t * 1e3:.1f} ms" for t in (eager, inductor, ours))]
        cells += [f"{ours / eager:.2f}", f"{ours / inductor:.2f}"]
        cells += [f"{t:.2f} s" for t in (f["inductor"]["first"], f["neuron"]["first"], f["neuron"]["warm"])]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(WORK), default=list(WORK))
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        _child(chosen.threads[0], chosen.only, firsts=chosen.warm)
        return
    load, figures = report.load_average(), {}
    for threads in chosen.threads:
        for name in chosen.only:
            with tempfile.TemporaryDirectory() as caches:
                found = _run(threads, name, caches)
                found["neuron"] |= _run(threads, name, caches, "--warm")["neuron"]
            figures[f"{name}/{threads}"] = found
            print(f"{name}, {threads} threads: done", file=sys.stderr)
    around = report.circumstances(load)
    head = [f"{around.date}, {around.versions}", around.processor, f"load average {load}, then {around.load_after}"]
    text = "\n".join([*head, "", _table(figures)])
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "compiled.md").write_text(text + "\n")
    (RESULTS / "compiled.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
