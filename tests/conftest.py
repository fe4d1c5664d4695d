"""Shared by all tests: the device, and Python processes with another environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import torch_neuronx

PACKAGE_ROOT = Path(torch_neuronx.__file__).parents[1]


@pytest.fixture
def entry_point(tmp_path: Path) -> Path:
    """A folder whose metadata announces the backend, as an installed distribution does."""
    info = tmp_path / "entry" / "torchneuron_for_tests-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torchneuron-for-tests\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nneuron = torch_neuronx._autoload:register\n")
    return info.parent


@pytest.fixture
def python() -> Callable[..., str]:
    """Runs code in a new process and returns what it printed; keyword arguments are environment variables."""

    def run(code: str, *paths: Path, check: bool = True, **environment: str) -> str:
        search = [str(path) for path in (*paths, PACKAGE_ROOT)] + [os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search)), **environment}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=False
        )
        if check:
            assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    return run


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test draws the same numbers in every run: what fails once fails again."""
    torch.manual_seed(0)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """CPU torch's own sums move with its number of threads (a loss curve by 2e-4); one thread agrees with float64."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
