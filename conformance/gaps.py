"""gaps.toml: what is known not to pass, why, and which ops run on the CPU."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from conformance.units import MODES, Unit, Verdict

FILE = Path(__file__).parent / "gaps.toml"
EVERY = "*"
MOST_FALLBACKS = 25


@dataclass(frozen=True)
class Gap:
    """Units that fail; "*" stands for every dtype or mode in which the op has a unit."""

    ops: tuple[str, ...]
    dtypes: tuple[str, ...]
    modes: tuple[str, ...]
    reason: str

    def covers(self, unit: Unit) -> bool:
        return (
            unit.op in self.ops
            and (unit.dtype in self.dtypes or EVERY in self.dtypes)
            and (unit.mode in self.modes or EVERY in self.modes)
        )


@dataclass(frozen=True)
class Known:
    """gaps       units that fail
    seeded     random ops whose seeded values equal the CPU's only with TORCH_NEURONX_RNG=cpu
    fallbacks  overload -> why it runs on the CPU, or an accepted part of it does
    slow       overload -> why a program of it takes longer to compile than is well
    """

    gaps: tuple[Gap, ...]
    seeded: tuple[str, ...]
    fallbacks: Mapping[str, str]
    slow: Mapping[str, str]

    def gap_of(self, unit: Unit) -> Gap | None:
        return next((g for g in self.gaps if g.covers(unit)), None)


def load(path: Path = FILE) -> Known:
    data = tomllib.loads(path.read_text())
    gaps = tuple(Gap(tuple(g["ops"]), tuple(g["dtypes"]), tuple(g["modes"]), g["reason"]) for g in data.get("gap", ()))
    for gap in gaps:
        unknown = set(gap.modes) - {*MODES, EVERY}
        if unknown:
            raise ValueError(f"{path.name} lists a gap of {gap.ops} in {sorted(unknown)}, which are no modes: {MODES}")
    return Known(gaps, tuple(data.get("seeded", ())), data.get("fallbacks", {}), data.get("slow", {}))


def disagreements(
    known: Known, verdicts: Mapping[Unit, Verdict], fallbacks: Mapping[str, object], *, whole: bool = True
) -> list[str]:
    """Where a measurement and gaps.toml differ; `whole` is False when only some ops were measured."""
    found = [
        f"{unit} fails and is not in gaps.toml"
        for unit, verdict in sorted(verdicts.items())
        if verdict is Verdict.FAILS and known.gap_of(unit) is None
    ]
    for gap in known.gaps:
        covered = {u: v for u, v in verdicts.items() if gap.covers(u)}
        found += [f"{u} is a gap in gaps.toml and passes: remove it" for u, v in sorted(covered.items()) if v.passes]
        if whole:
            found += _idle(gap, covered)
    return found + _seeds(known, verdicts) + _host(known, fallbacks, whole)


def _idle(gap: Gap, covered: Mapping[Unit, Verdict]) -> list[str]:
    """What old memory holds decides whether the CPU passes a few: those that it does not are not idle."""
    failing = {u.op for u, v in covered.items() if v in (Verdict.FAILS, Verdict.CPU_FAILS)}
    return [
        f"{op} ({gap.reason}) is a gap in gaps.toml that covers no failing unit" for op in gap.ops if op not in failing
    ]


def _seeds(known: Known, verdicts: Mapping[Unit, Verdict]) -> list[str]:
    needed = {u.op for u, v in verdicts.items() if v is Verdict.SEEDED}
    measured = {u.op for u in verdicts}
    idle = [op for op in known.seeded if op in measured and op not in needed]
    return [f"{op} is a seeded op in gaps.toml and needs no seed: remove it" for op in idle]


def _host(known: Known, fallbacks: Mapping[str, object], whole: bool) -> list[str]:
    found = [
        f"{op} ran on the CPU and is not in gaps.toml's fallbacks" for op in fallbacks if op not in known.fallbacks
    ]
    if whole:
        found += [
            f"{op} is a fallback in gaps.toml and never ran on the CPU" for op in known.fallbacks if op not in fallbacks
        ]
    if len(known.fallbacks) > MOST_FALLBACKS:
        found.append(f"gaps.toml lists {len(known.fallbacks)} fallbacks; at most {MOST_FALLBACKS} are accepted")
    return found
