"""Figures that need fresh processes: import, first result, first calls cold and from disk."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch_neuronx
from benchmarks.timing import Pair, Timing, better

ROOT = Path(__file__).parents[1]


def caches_in(folder: str) -> dict[str, str]:
    """The environment of a process that keeps its executables and AOTAutograd's graphs in a folder."""
    return {"TORCH_NEURONX_NEFF_CACHE_DIR": f"{folder}/neff", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}


def measured(module: str, name: str, cache: str) -> dict[str, Any]:
    """What `python -m module --child --only name` prints last, as JSON, with its caches in `cache`."""
    environment = {**os.environ, **caches_in(cache)}
    command = [sys.executable, "-m", module, "--child", "--only", name]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def start(repeats: int) -> Iterator[tuple[str, Pair]]:
    """The autoload is timed inside one process: as a difference of two it would drown in `import torch`'s noise."""
    with tempfile.TemporaryDirectory() as folder:
        search = [str(folder)] if _announce(Path(folder)) else []
        whole: dict[str, Timing] = {}
        for _ in range(repeats):
            for device in ("cpu", "neuron"):
                for part, timing in _child("import", device, search=search, TORCH_DEVICE_BACKEND_AUTOLOAD="0").items():
                    name = "autoload" if part == "autoload" else "import"
                    whole[name] = better(whole.get(name), timing)
    yield "import", Pair(whole["import"], _sum(whole["import"], whole["autoload"]))
    yield "autoload", Pair(None, whole["autoload"])
    yield from _cold_and_disk("first_result", repeats)


def new_shape(repeats: int) -> Iterator[tuple[str, Pair]]:
    yield from _cold_and_disk("new_shape", repeats)


def first_calls(repeats: int) -> Iterator[tuple[str, Pair]]:
    for name in ("mlp_step", "resnet18", "gpt2"):
        for row, pair in _cold_and_disk(name, repeats):
            yield f"first_{row}", pair


def _cold_and_disk(task: str, repeats: int) -> Iterator[tuple[str, Pair]]:
    """`cold` with an empty cache, `disk` in the next process with what the first one left."""
    best: dict[str, Timing] = {}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            runs = (("cpu", "cpu"), ("cold", "neuron"), ("disk", "neuron"))
            for row, device in runs:
                figures = _child(task, device, TORCH_NEURONX_NEFF_CACHE_DIR=str(Path(folder) / "cache"))
                for timing in figures.values():
                    best[row] = better(best.get(row), timing)
    for row in ("cold", "disk"):
        yield f"{task}_{row}", Pair(best["cpu"], best[row])


def _sum(a: Timing, b: Timing) -> Timing:
    return Timing(a.wall + b.wall, a.processor + b.processor)


def _child(task: str, device: str, search: list[str] | None = None, **environment: str) -> dict[str, Timing]:
    package = str(Path(torch_neuronx.__file__).parents[1])
    paths = [*(search or []), str(ROOT), package, os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", task, device], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the {task} process on {device} failed with status {done.returncode}:\n{done.stderr}")
    return {name: Timing(**t) for name, t in json.loads(done.stdout.splitlines()[-1]).items()}


def _announce(folder: Path) -> bool:
    """Writes the entry point an installed package has, when run from a source tree that is not installed."""
    if any(e.name == "neuron" for e in importlib.metadata.entry_points(group="torch.backends")):
        return False
    info = folder / "torchneuron_benchmarks-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torchneuron-benchmarks\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nneuron = torch_neuronx._autoload:register\n")
    return True
