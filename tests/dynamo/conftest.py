"""Shared by the tests of compiled graphs: caches of their own, and nothing compiled before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from torch_neuronx.compiler import executables
from torch_neuronx.dynamo import background, metrics


@pytest.fixture
def own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Empty caches of executables and of AOTAutograd's graphs."""
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    executables.disk_cache.cache_clear()
    torch._dynamo.reset()
    metrics.clear()
    torch.manual_seed(0)
    yield
    background.drain()
    executables.disk_cache.cache_clear()
