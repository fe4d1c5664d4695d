"""The passes: which runs are made, where their lines are kept, and when they must be made anew."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from conformance import gaps, probe, units

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "conformance"
_PACKAGE = ROOT / "src" / "torch_neuronx"
# The engine compiles ten thousand programs in a pass: more than the cache's usual 2 GB must stay for the next one.
_CACHE = {"TORCH_NEURONX_NEFF_CACHE_DIR": str(FOLDER / "executables"), "TORCH_NEURONX_NEFF_CACHE_SIZE": "16G"}
_VALUES = {m: m for m in units.VALUE_MODES}
_ALL = {"forward": units.ALL_SAMPLES}
_LAYOUTS = {m.removesuffix("_layout"): m for m in units.LAYOUT_MODES}
_DEVICE = ("--import", "torch_neuronx", "--device", "neuron", "--fallback-probe", "conformance.probe:fallbacks")
_HOST = ("--device", "cpu")
_EVERY_SAMPLE = ("--modes", "forward", "--dtypes", "float32,int64", "--max-samples", "0")


@dataclass(frozen=True)
class Pass:
    """One file of lines. `arguments` are the tool's, `module` is one of ours in the tool's place.

    ours    it depends on this package's code, which a change to it makes worthless
    seeded  only for the random ops
    """

    name: str
    modes: Mapping[str, str]
    arguments: tuple[str, ...] = ()
    module: str | None = None
    ours: bool = True
    seeded: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}.jsonl"

    @property
    def reasons(self) -> Path:
        return FOLDER / f"{self.name}.reasons.jsonl"

    def outcomes(self) -> units.Outcomes:
        return units.read(self.file, dict(self.modes)) if self.modes else {}


_LIKE_CPU = {"TORCH_NEURONX_RNG": "cpu"}
PASSES = {
    p.name: p
    for p in (
        Pass("cpu", _VALUES, _HOST, ours=False),
        Pass("cpu_all", _ALL, (*_HOST, *_EVERY_SAMPLE), ours=False),
        Pass("values", _VALUES, _DEVICE),
        Pass("values_all", _ALL, (*_DEVICE, *_EVERY_SAMPLE)),
        Pass("seeded", _VALUES, _DEVICE, seeded=True, environment=_LIKE_CPU),
        Pass("seeded_all", _ALL, (*_DEVICE, *_EVERY_SAMPLE), seeded=True, environment=_LIKE_CPU),
        Pass("layouts", _LAYOUTS, module="conformance.layouts"),
        Pass("compile_cost", {}, module="conformance.compile_cost"),
    )
}


def run(one: Pass, tool: Path, jobs: int, ops: str | None) -> None:
    """Runs what the pass's file lacks. `ops` is a regular expression: only these, and anew."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if ops is not None and one.ours:
        _forget(one.file, ops)
    wanted = _seeded(ops) if one.seeded else ops
    if one.seeded and not wanted:
        return
    command = [sys.executable, "-m", one.module] if one.module else [sys.executable, str(tool), "opinfo"]
    command += [*one.arguments, "--out", str(one.file), "--jobs", str(jobs)]
    if one.module is None:
        command += ["--timeout", "600", "--path", str(ROOT), "--path", str(ROOT / "src")]
    if wanted is not None:
        command += ["--ops", wanted]
    print(f"conformance: {one.name}", file=sys.stderr, flush=True)
    subprocess.run(command, cwd=ROOT, env=_environment(one), check=True)


def _environment(one: Pass) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    return {**_CACHE, **os.environ, **one.environment, "PYTHONPATH": path, probe.VARIABLE: str(one.reasons)}


def _seeded(ops: str | None) -> str:
    """The random ops, or those of them that `ops` names, as a regular expression."""
    names = [n for n in gaps.load().seeded if ops is None or re.fullmatch(ops, n)]
    return "|".join(re.escape(n) for n in names)


def _forget(file: Path, ops: str) -> None:
    if not file.exists():
        return
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if not re.fullmatch(ops, _name(line))))


def _name(line: str) -> str:
    try:
        return str(json.loads(line)["id"]).partition("|")[0]
    except ValueError:
        return ""


def code_hash() -> str:
    """Of everything that decides what an op gives."""
    digest = hashlib.sha256()
    for file in sorted(p for p in _PACKAGE.rglob("*") if p.suffix in (".py", ".cpp", ".h")):
        digest.update(str(file.relative_to(_PACKAGE)).encode() + file.read_bytes())
    return digest.hexdigest()


def start_over_if_changed() -> None:
    """Results of other code are no results: an interrupted run goes on, a run after a change begins anew."""
    stamp, now = FOLDER / "code", code_hash()
    if stamp.exists() and stamp.read_text() == now:
        return
    for one in (p for p in PASSES.values() if p.ours):
        one.file.unlink(missing_ok=True)
        one.reasons.unlink(missing_ok=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    stamp.write_text(now)
