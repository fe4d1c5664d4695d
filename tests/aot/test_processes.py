"""In a fresh process with an empty cache nothing is compiled; elsewhere, and for other targets, StableHLO is."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim, export

import torch_neuronx
from tests.aot.models import Convolutions, Transformer, made
from torch_neuronx.aot import archive
from torch_neuronx.compiler import container
from torch_neuronx.compiler.executables import compile_counters

D = "neuron"

CHILD = """
import sys, torch, torch_neuronx
from torch_neuronx.compiler.executables import compile_counters
folder = {folder!r}
for device in ("neuron:0", "neuron:1"):
    for name in ("text", "image"):
        x, want = torch.load(f"{{folder}}/{{name}}.pt")
        got = torch_neuronx.load(f"{{folder}}/{{name}}.neff", device=device)(x.to(device))
        assert str(got.device) == device
        torch.testing.assert_close(got.cpu(), want)
    print(device, compile_counters()["compiled"])
print("dynamo" if "torch._dynamo" in sys.modules else "light")
"""


def test_a_fresh_process_compiles_nothing(tmp_path: Path, python) -> None:
    shapes = {"ids": {1: Dim("n", min=1, max=8)}}
    text, image = made(Transformer), made(Convolutions)
    ids, pixels = torch.randint(50, (2, 5)), torch.randn(2, 3, 8, 8)
    torch_neuronx.aot_compile(export(text, (torch.randint(50, (2, 7)),), dynamic_shapes=shapes), tmp_path / "text.neff")
    torch_neuronx.aot_compile(export(image, (pixels,)), tmp_path / "image.neff")
    with torch.no_grad():
        torch.save((ids, text(ids)), tmp_path / "text.pt")
        torch.save((pixels, image(pixels)), tmp_path / "image.pt")
    printed = python(
        CHILD.format(folder=str(tmp_path)),
        TORCH_NEURONX_NEFF_CACHE_DIR=str(tmp_path / "empty"),
        TORCH_NEURONX_HOST_DEVICES="2",
    )
    assert printed.splitlines() == ["neuron:0 0", "neuron:1 0", "light"]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).tanh()


def test_a_target_without_a_compiler_here(tmp_path: Path) -> None:
    model, x = made(Model), torch.randn(2, 4)
    with pytest.warns(RuntimeWarning, match="target 'trn2' stay StableHLO, because no compiler for it is installed"):
        info = torch_neuronx.aot_compile(export(model, (x,)), tmp_path / "m.neff", target="trn2")
    assert not info.compiled and info.target == "trn2"
    with pytest.warns(RuntimeWarning, match=r"plugin.* stay StableHLO, because TORCH_NEURONX_PJRT_PLUGIN"):
        torch_neuronx.aot_compile(export(model, (x,)), tmp_path / "n.neff", target="plugin")
    with pytest.warns(
        RuntimeWarning, match=r"m.neff holds no executables \(target trn2.*compiled here, from their StableHLO"
    ):
        loaded = torch_neuronx.load(tmp_path / "m.neff")
    torch.testing.assert_close(loaded(x.to(D)).cpu(), model(x))


def _for_another_processor(path: Path) -> None:
    entries = archive.read(path)
    manifest = json.loads(entries[archive.MANIFEST])
    manifest["fingerprint"] = "cpu/cpu/another"
    for program in manifest["programs"]:
        held = container.decode(entries[program["file"]])
        data = container.encode(replace(held, header=replace(held.header, fingerprint="cpu/cpu/another")))
        program["sha256"] = hashlib.sha256(data).hexdigest()
        entries[program["file"]] = data
    entries[archive.MANIFEST] = json.dumps(manifest).encode()
    archive.write(path, entries)


def test_another_processor(tmp_path: Path) -> None:
    """Its machine code is never run: the program is compiled from its StableHLO."""
    model, x = made(Model), torch.randn(2, 4)
    torch_neuronx.aot_compile(export(model, (x,)), tmp_path / "m.neff")
    shutil.copy(tmp_path / "m.neff", tmp_path / "n.neff")
    _for_another_processor(tmp_path / "n.neff")
    with pytest.warns(RuntimeWarning, match="n.neff was compiled for another processor"):
        loaded = torch_neuronx.load(tmp_path / "n.neff")
    torch.testing.assert_close(loaded(x.to(D)).cpu(), model(x))


def test_machine_code_is_not_run_when_that_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_neuronx.compiler import executables
    from torch_neuronx.runtime.targets import runtime

    model, x = made(Model), torch.randn(2, 4)
    torch_neuronx.aot_compile(export(model, (x,)), tmp_path / "m.neff")
    monkeypatch.setattr(type(runtime()), "load", lambda *_: pytest.fail("it loads an executable"))
    monkeypatch.setenv("TORCH_NEURONX_DISABLE_NEFF_CACHE", "1")
    executables.disk_cache.cache_clear()
    before = compile_counters()["compiled"]
    loaded = torch_neuronx.load(tmp_path / "m.neff", recompile=True)
    torch.testing.assert_close(loaded(x.to(D)).cpu(), model(x))
    assert compile_counters()["compiled"] == before + 1
    executables.disk_cache.cache_clear()
