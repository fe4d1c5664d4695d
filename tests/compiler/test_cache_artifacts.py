"""torch.compiler.save_cache_artifacts carries the executables a process used into another's empty cache."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.compiler._cache import CacheArtifactManager

from torch_neuronx.compiler import container
from torch_neuronx.compiler.cache_artifacts import NeuronCacheArtifact

D = "neuron"

ARTIFACTS = """
import torch, torch_neuronx
from torch_neuronx.compiler.executables import compile_counters
with open({file!r}, "rb") as file:
    info = torch.compiler.load_cache_artifacts(file.read())
assert info.neuron_artifacts
model = torch.nn.Linear(4, 3)
model.load_state_dict(torch.load({state!r}))
model = torch.compile(model.to("neuron"))
model(torch.ones(2, 4).to("neuron")).square().sum().backward()
print(compile_counters())
"""


def test_cache_artifacts_fill_an_empty_cache(tmp_path: Path, python) -> None:
    torch._dynamo.reset()
    model = nn.Linear(4, 3)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    with CacheArtifactManager.with_fresh_cache():
        compiled = torch.compile(model.to(D))
        compiled(torch.ones(2, 4).to(D)).square().sum().backward()
        saved = torch.compiler.save_cache_artifacts()
    assert saved is not None
    (tmp_path / "artifacts").write_bytes(saved[0])
    printed = python(
        ARTIFACTS.format(file=str(tmp_path / "artifacts"), state=str(tmp_path / "state.pt")),
        TORCH_NEURONX_NEFF_CACHE_DIR=str(tmp_path / "empty"),
    )
    assert "'compiled': 0" in printed


def test_artifacts_that_are_damaged_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.warns(RuntimeWarning, match="is not used: it is not a .neff container"):
        NeuronCacheArtifact("0" * 64, b"damaged").populate_cache()
    held = container.encode(
        container.Container.build(b"p", b"e", key="../../../evil", fingerprint="", op="", created_by="")
    )
    for key in ("0" * 64, "../../../evil"):
        with pytest.warns(RuntimeWarning, match="holds another executable"):
            NeuronCacheArtifact(key, held).populate_cache()
    NeuronCacheArtifact("0" * 64).populate_cache()  # its file was gone when it was saved
    assert not list(tmp_path.rglob("*.neff"))
