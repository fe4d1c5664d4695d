"""The verdicts in short: results.json, which is committed, and from which docs/op_support.md is written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from conformance.units import MODES, Unit, Verdict, in_order

FILE = Path(__file__).parent / "results.json"


@dataclass
class Results:
    """versions    of torch and the engine
    overloads   the lowering table's rows at the time: a new row makes the results stale
    verdicts    of every unit
    fallbacks   overload that ran on the CPU -> the op_db entries it did so for
    databases   database of the wheel -> entries that pass, entries
    reruns      ops measured again after the last whole run
    passes      pass -> the day it was last run on
    """

    date: str
    versions: dict[str, str]
    overloads: list[str]
    verdicts: dict[Unit, Verdict]
    fallbacks: dict[str, list[str]]
    databases: dict[str, list[int]] = field(default_factory=dict)
    reruns: list[str] = field(default_factory=list)
    passes: dict[str, str] = field(default_factory=dict)

    def completed(self, found: Results) -> Results:
        """What `found` says, and of what it does not know what is known already."""
        return replace(
            found,
            verdicts=self.verdicts | found.verdicts,
            fallbacks=found.fallbacks if "values" in found.passes else self.fallbacks,
            passes=self.passes | found.passes,
        )

    def ops(self) -> list[str]:
        return sorted({u.op for u in self.verdicts})

    def updated(self, found: Results, ops: str) -> Results:
        """With what `found` says about the entries that `ops` matches, in the modes it measured."""

        def again(name: str) -> bool:
            return re.fullmatch(ops, name) is not None

        modes = {u.mode for u in found.verdicts if again(u.op)}
        kept = {u: v for u, v in self.verdicts.items() if not (again(u.op) and u.mode in modes)}
        if "forward" not in modes:
            return replace(self, verdicts=kept | {u: v for u, v in found.verdicts.items() if again(u.op)})
        fallbacks = {op: {n for n in names if not again(n)} for op, names in self.fallbacks.items()}
        for op, names in found.fallbacks.items():
            fallbacks.setdefault(op, set()).update(n for n in names if again(n))
        return replace(
            self,
            versions=found.versions,
            overloads=found.overloads,
            verdicts=kept | {u: v for u, v in found.verdicts.items() if again(u.op)},
            fallbacks={op: sorted(names) for op, names in sorted(fallbacks.items()) if names},
            reruns=[*(r for r in self.reruns if r != ops), ops],
        )

    def to_json(self) -> str:
        head: dict[str, Any] = {
            "date": self.date,
            "versions": self.versions,
            "reruns": self.reruns,
            "passes": self.passes,
            "databases": self.databases,
            "fallbacks": self.fallbacks,
            "overloads": self.overloads,
        }
        lines = [f"{json.dumps(k)}: {json.dumps(v)}," for k, v in head.items()]
        by_op = _by_op(self.verdicts)
        rows = [f" {json.dumps(op)}: {json.dumps(_packed(by_op[op]))}" for op in sorted(by_op)]
        return "{\n" + "\n".join(lines) + '\n"ops": {\n' + ",\n".join(rows) + "\n}\n}\n"

    @classmethod
    def from_json(cls, text: str) -> Results:
        data = json.loads(text)
        verdicts = {u: v for op, row in data.pop("ops").items() for u, v in _unpacked(op, row)}
        return cls(verdicts=verdicts, **data)


def _by_op(verdicts: Mapping[Unit, Verdict]) -> dict[str, dict[Unit, Verdict]]:
    found: dict[str, dict[Unit, Verdict]] = {}
    for unit, verdict in verdicts.items():
        found.setdefault(unit.op, {})[unit] = verdict
    return found


def _packed(verdicts: Mapping[Unit, Verdict]) -> dict[str, str]:
    """One letter a dtype, one string a mode: {"dtypes": "float32 int64", "forward": "nn"}."""
    (op,) = {u.op for u in verdicts}
    dtypes = in_order(u.dtype for u in verdicts)
    row = {"dtypes": " ".join(dtypes)}
    for mode in MODES:
        letters = "".join(verdicts.get(Unit(op, d, mode), Verdict.ABSENT) for d in dtypes)
        if letters.strip(Verdict.ABSENT):
            row[mode] = letters
    return row


def _unpacked(op: str, row: Mapping[str, str]) -> Iterable[tuple[Unit, Verdict]]:
    dtypes = row["dtypes"].split()
    for mode in MODES:
        for dtype, letter in zip(dtypes, row.get(mode, ""), strict=False):
            if letter != Verdict.ABSENT:
                yield Unit(op, dtype, mode), Verdict(letter)


def versions() -> dict[str, str]:
    """Without local suffixes: the CPU build and the CUDA build of torch have one table."""
    return {name: metadata.version(name).partition("+")[0] for name in ("torch", "jaxlib")}


def overloads() -> list[str]:
    from torch_neuronx.lowering.table import load, rows

    load()
    return sorted(rows)


def read(path: Path = FILE) -> Results:
    return Results.from_json(path.read_text())
