"""A unit is one op_db entry with one dtype in one mode; its verdict is one letter."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

VALUE_MODES = ("forward", "out", "inplace", "backward", "fwdad")
LAYOUT_MODES = ("forward_layout", "out_layout", "inplace_layout")
ALL_SAMPLES = "forward_all"
MODES = (*VALUE_MODES, ALL_SAMPLES, *LAYOUT_MODES)

DTYPES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
)


class Verdict(StrEnum):
    NATIVE = "n"  # passes on the device
    FALLBACK = "f"  # passes, and part of it ran on the CPU
    SEEDED = "s"  # random: passes when the numbers are drawn as the CPU draws them
    FAILS = "x"
    CPU_FAILS = "c"  # CPU torch does not pass either
    ABSENT = "-"  # no such unit

    @property
    def passes(self) -> bool:
        return self in (Verdict.NATIVE, Verdict.FALLBACK, Verdict.SEEDED)

    @property
    def counts(self) -> bool:
        return self.passes or self is Verdict.FAILS


@dataclass(frozen=True, order=True)
class Unit:
    op: str
    dtype: str
    mode: str

    def __str__(self) -> str:
        return f"{self.op} {self.dtype} {self.mode}"


@dataclass(frozen=True)
class Outcome:
    """What one pass says about one unit."""

    status: str
    message: str = ""
    fallbacks: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.status in ("pass", "fallback")


Outcomes = dict[Unit, Outcome]
_ENDS = ("crash", "timeout")  # never excused by what CPU torch does
_NO_UNIT = ("no samples", "no sample suits this mode")


def read(path: Path, modes: dict[str, str]) -> Outcomes:
    """The last record of each unit in a file of JSON lines; `modes` renames the pass's modes."""
    records: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # the torn last line of an interrupted run
        records[record["id"]] = record
    return {_unit(i, modes): _outcome(r) for i, r in records.items()}


def _unit(identity: str, modes: dict[str, str]) -> Unit:
    op, dtype, mode = identity.split("|")
    return Unit(op, dtype, modes[mode])


def _outcome(record: dict[str, Any]) -> Outcome:
    return Outcome(record["status"], record.get("msg") or "", tuple(record.get("fallback_ops") or ()))


def judge(cpu: Outcome | None, ours: Outcome, seeded: Outcome | None) -> Verdict:
    """`cpu`: CPU torch by the same check (None: no such pass), `seeded`: with the CPU's random numbers."""
    if ours.status in _ENDS:
        return Verdict.FAILS
    if ours.status == "skip" and any(text in ours.message for text in _NO_UNIT):
        return Verdict.ABSENT
    if ours.status == "skip" or (cpu is not None and not cpu.passed):
        return Verdict.CPU_FAILS
    if ours.passed:
        return Verdict.NATIVE if ours.status == "pass" else Verdict.FALLBACK
    return Verdict.SEEDED if seeded is not None and seeded.passed else Verdict.FAILS


def judge_all(cpu: Outcomes, ours: Outcomes, seeded: Outcomes) -> dict[Unit, Verdict]:
    return {u: judge(cpu.get(u), o, seeded.get(u)) for u, o in ours.items()}


def in_order(dtypes: Iterable[str]) -> tuple[str, ...]:
    present = set(dtypes)
    return tuple(d for d in DTYPES if d in present)
