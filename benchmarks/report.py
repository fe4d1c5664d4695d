"""The figures as a table to read, as Markdown and as JSON."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import models
from benchmarks.rows import ROWS, UNITS, Row
from benchmarks.timing import Pair, Timing

HEADINGS = (
    "figure",
    "unit",
    "CPU torch",
    "neuron",
    "ratio",
    "CPU time ratio",
    "aim",
    "",
    "as ratio",
    "",
    "peers, one Zen 1 core",
)

_VERDICTS = {True: "met", False: "MISSED", None: ""}


@dataclass(frozen=True)
class Circumstances:
    """What a reader must know to compare two runs."""

    versions: str
    processor: str
    cores: str
    load_before: str
    load_after: str
    date: str

    def lines(self) -> list[str]:
        batch, widths = models.MLP_BATCH, "-".join(map(str, models.MLP_WIDTHS))
        return [
            f"{self.date}, {self.versions}",
            f"{self.processor}; {self.cores}",
            f"load average before the run {self.load_before}, after it {self.load_after}",
            f"MLP {widths}, batch {batch}, cross entropy, AdamW; ResNet-18 on {models.RESNET_INPUT}; GPT-2 small "
            f"(12 layers of 768, vocabulary {models.GPT2_VOCABULARY}) on {models.GPT2_INPUT} tokens; float32",
        ]


def load_average() -> str:
    return " ".join(f"{x:.1f}" for x in os.getloadavg())


def circumstances(load_before: str) -> Circumstances:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "jaxlib", "numpy"))
    allowed, present = len(os.sched_getaffinity(0)), os.cpu_count()
    cores = f"{allowed} of {present} cores, torch with one thread"
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    python = f"Python {platform.python_version()}, {versions}"
    return Circumstances(python, _processor(), cores, load_before, load_average(), today)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def cells(row: Row, pair: Pair) -> tuple[str, ...]:
    scale = UNITS[row.unit]
    times = (_number(None if t is None else t.wall * scale) for t in (pair.cpu, pair.neuron))
    ratios = (_ratio(pair, clock) for clock in ("wall", "processor"))
    relative = "" if row.scaled_ratio is None else f"<= {_number(row.scaled_ratio)}x"
    verdicts = (_VERDICTS[met] for met in (row.met(pair), row.met_scaled(pair)))
    return (row.title, row.unit, *times, *ratios, row.aim, next(verdicts), relative, next(verdicts), row.peers)


def _number(x: float | None) -> str:
    if x is None:
        return "-"
    return f"{x:.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.3g}"


def _ratio(pair: Pair, clock: str) -> str:
    if pair.cpu is None or pair.neuron is None or not getattr(pair.cpu, clock):
        return "-"
    return _number(getattr(pair.neuron, clock) / getattr(pair.cpu, clock))


def _table(figures: Mapping[str, Pair]) -> list[tuple[str, ...]]:
    return [HEADINGS, *(cells(row, figures[row.key]) for row in ROWS if row.key in figures)]


def as_text(figures: Mapping[str, Pair]) -> str:
    table = _table(figures)
    widths = [max(len(line[i]) for line in table) for i in range(len(HEADINGS))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in table)


def as_markdown(figures: Mapping[str, Pair], around: Circumstances) -> str:
    head, *body = ("| " + " | ".join(line) + " |" for line in _table(figures))
    rule = "|" + " --- |" * len(HEADINGS)
    return "\n".join([*(f"- {line}" for line in around.lines()), "", head, rule, *body, ""])


def as_json(figures: Mapping[str, Pair], around: Circumstances) -> str:
    def timing(t: Timing | None) -> dict[str, float] | None:
        return None if t is None else t.to_json()

    rows: dict[str, Any] = {}
    for row in (row for row in ROWS if row.key in figures):
        pair = figures[row.key]
        rows[row.key] = {"cpu": timing(pair.cpu), "neuron": timing(pair.neuron), "aim": row.aim, "met": row.met(pair)}
        rows[row.key]["met_relative_to_cpu"] = row.met_scaled(pair)
    return json.dumps({"circumstances": around.lines(), "seconds": rows}, indent=1) + "\n"
