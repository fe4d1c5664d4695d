"""torch.compile on neuron beside torch eager and Inductor on the CPU, with one and with two threads.

One process a number of threads; in it the three take turns, and each has its best block. First calls are timed in a new
process each: with empty caches, with what that process left on disk, and of a bundle that aot_compile wrote.
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

import torch_neuronx
from benchmarks import models, processes, report

RESULTS = Path(__file__).parent / "results"
CONTENDERS = ("eager", "inductor", "neuron")
BLOCKS, SECONDS = 7, 3.0
Step = Callable[[], object]


def _device(contender: str) -> str:
    return "neuron" if contender in ("neuron", "bundle") else "cpu"


def _compiled(model: nn.Module, contender: str) -> Callable[..., Any]:
    return model if contender == "eager" else torch.compile(model, backend=contender, dynamic=False)


def _forward(model: nn.Module, example: torch.Tensor, contender: str) -> Step:
    there = model.eval().to(_device(contender))
    x = example.to(_device(contender))
    call = _bundled(there, x) if contender == "bundle" else _compiled(there, contender)

    def step() -> object:
        with torch.no_grad():
            return call(x)

    return step


def _bundled(model: nn.Module, x: torch.Tensor) -> Callable[..., Any]:
    """The model's bundle beside the caches, written by the first process that asks; loading it is part of the call."""
    path = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).with_name("model.neff")
    if not path.exists():
        torch_neuronx.aot_compile(torch.export.export(model, (x,)), path)
    return lambda *args: torch_neuronx.load(path)(*args)


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
    """contender -> seconds of one call of its best block."""
    found = {contender: {"call": float("inf")} for contender in CONTENDERS}
    steps = {contender: _seeded(name, contender) for contender in CONTENDERS}
    for step in steps.values():
        step()
        _waited(step)
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


def _seeded(name: str, contender: str) -> Step:
    torch.manual_seed(0)
    return WORK[name](contender)


def _child(threads: int, name: str, contender: str | None) -> None:
    torch.set_num_threads(threads)
    print(json.dumps(_measure(name) if contender is None else _waited(_seeded(name, contender))))


def _run(threads: int, name: str, caches: str, contender: str | None = None) -> Any:
    """What a process prints: seconds of a call of each contender, or of the first call of one."""
    environment = {**os.environ, **processes.caches_in(caches), "OMP_NUM_THREADS": str(threads)}
    cores = ",".join(str(c) for c in sorted(os.sched_getaffinity(0))[-threads:])
    command = ["taskset", "-c", cores, sys.executable, "-m", "benchmarks.compiled", "--threads", str(threads)]
    command += ["--only", name, "--child", *(["--first", contender] if contender else [])]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def _figures(threads: int, name: str) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as caches:
        first = {"inductor": _run(threads, name, caches, "inductor")}
        first["neuron"], first["disk"] = (_run(threads, name, caches, "neuron") for _ in range(2))
        if name.endswith("forward"):
            _, first["bundle"] = (_run(threads, name, caches, "bundle") for _ in range(2))
        return {**_run(threads, name, caches), "first": first}


def _table(figures: dict[str, Any]) -> str:
    head = (
        "| | threads | eager | Inductor | neuron | neuron / eager | neuron / Inductor "
        "| first call: Inductor | neuron | neuron / Inductor | neuron, from disk | a loaded bundle |"
    )
    rows = [head, "|---" * 12 + "|"]
    for key, f in figures.items():
        name, threads = key.split("/")
        eager, inductor, ours = (f[c]["call"] for c in CONTENDERS)
        cells = [name, threads, *(f"{t * 1e3:.1f} ms" for t in (eager, inductor, ours))]
        cells += [f"{ours / eager:.2f}", f"{ours / inductor:.2f}"]
        first = f["first"]
        cells += [f"{first['inductor']:.2f} s", f"{first['neuron']:.2f} s"]
        cells += [f"{first['neuron'] / first['inductor']:.2f}", f"{first['disk']:.2f} s"]
        cells.append(f"{first['bundle']:.2f} s" if "bundle" in first else "")
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(WORK), default=list(WORK))
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--first", choices=("inductor", "neuron", "bundle"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        _child(chosen.threads[0], chosen.only[0], chosen.first)
        return
    load, figures = report.load_average(), {}
    for threads in chosen.threads:
        for name in chosen.only:
            figures[f"{name}/{threads}"] = _figures(threads, name)
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
