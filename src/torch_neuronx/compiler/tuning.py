"""Which of several executables of one program is the fastest: each is compiled, run and compared with the usual one.

The choice is kept on disk as an executable of its own name, with what was measured in its header: a later process
measures nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from torch_neuronx.compiler import executables
from torch_neuronx.compiler.executables import Obtained, Source
from torch_neuronx.compiler.made_up import Arguments, MadeUp, difference, on_host, run
from torch_neuronx.lowering.call import Lowered
from torch_neuronx.runtime.protocol import Runtime
from torch_neuronx.runtime.targets import runtime

LIMIT: Final = 60.0  # seconds a graph: no variant is begun after that
MARGIN: Final = 0.03  # a variant must be that much faster than the usual executable
MOST_ROUNDS: Final = 200
FEWEST_ROUNDS: Final = 5
MEASURING: Final = 2.0  # seconds for all rounds of one program, as far as the fewest allow
SHARE: Final = 0.2  # of the memory that is free: arguments are there two times, results besides

USUAL: Final = "default"
NO_TIME: Final = "not tried: the time for this graph was used up"
_LONGEST_REASON: Final = 300


@dataclass
class _Trials:
    """What is known of a program's variants."""

    made: dict[str, Obtained]
    dropped: dict[str, str] = field(default_factory=dict)


class Tuner:
    """The choices of one graph."""

    def __init__(self) -> None:
        self._left = LIMIT

    def obtain(
        self, source: Source, others: Mapping[str, Callable[[], Lowered]], made_up: MadeUp, device: int
    ) -> Obtained:
        """The fastest executable of `source`, or of `others`, which lower the same in other ways.

        Without `tuning` when nothing was measured: no time is left, or the arguments would fill the memory.
        Raises what executables.obtain does.
        """
        if self._left <= 0 or made_up.nbytes > SHARE * _free_memory():
            return executables.obtain(source, device)

        def choose(_: Source, device: int, engine: Runtime) -> tuple[Obtained, bytes]:
            began = time.perf_counter()
            try:
                return _fastest(source, others, made_up, device, engine, began + self._left)
            finally:
                self._left -= time.perf_counter() - began

        kinds = (*(v.name for v in runtime().variants(b"")), *others)
        return executables.obtain(replace(source, identity=f"{source.identity} tuned {kinds}"), device, choose)


def _fastest(
    source: Source,
    others: Mapping[str, Callable[[], Lowered]],
    made_up: MadeUp,
    device: int,
    engine: Runtime,
    deadline: float,
) -> tuple[Obtained, bytes]:
    began = time.perf_counter()
    lowered = source.lower()
    source = replace(source, lower=lambda: lowered)
    usual = executables.obtain(source, device)
    programs = {USUAL: lowered.built.bytecode}
    written = {r.slot for r in usual.interface.results if r.kind == "write"}
    arguments = made_up.on(engine, device, written)
    expected = on_host(usual, run(usual.executable, arguments.fresh()), engine)
    trials = _Trials({USUAL: usual})

    def attempt(name: str, make: Callable[[], Obtained | None]) -> None:
        if time.perf_counter() >= deadline:
            trials.dropped[name] = NO_TIME
            return
        try:
            made = make()
            if made is None:
                return
            wrong = difference(usual, expected, on_host(made, run(made.executable, arguments.fresh()), engine))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a variant, the usual one works
            wrong = f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
        if wrong is None and made is not None:
            trials.made[name] = made
        elif wrong is not None:
            trials.dropped[name] = wrong

    for variant in engine.variants(lowered.built.bytecode):
        attempt(variant.name, lambda v=variant: executables.compile_variant(source, device, engine, v)[0])  # type: ignore[misc]  # its default binds it
    for name, lower in others.items():

        def other(name: str = name, lower: Callable[[], Lowered] = lower) -> Obtained | None:
            changed = lower()
            if changed.built.bytecode == lowered.built.bytecode:
                return None
            made, programs[name] = executables.compile_variant(replace(source, lower=lambda: changed), device, engine)
            if made.interface != usual.interface:
                raise ValueError("its results are laid out in another way")
            return made

        attempt(name, other)
    times = _times(trials.made, arguments)
    best = min(times, key=times.__getitem__)
    if times[best] > (1 - MARGIN) * times[USUAL]:
        best = USUAL
    report: dict[str, Any] = {
        "chosen": best,
        "dropped": dict(sorted(trials.dropped.items())),
        "milliseconds": {name: round(t * 1e3, 4) for name, t in sorted(times.items())},
        "seconds": round(time.perf_counter() - began, 3),
    }
    return replace(trials.made[best], tuning=report), programs.get(best, lowered.built.bytecode)


def _times(made: Mapping[str, Obtained], arguments: Arguments) -> dict[str, float]:
    """Seconds of the fastest of several runs of each, in turns: what disturbs the machine disturbs all alike."""
    best = dict.fromkeys(made, math.inf)
    until = time.perf_counter() + MEASURING
    for done in range(MOST_ROUNDS):
        if done >= FEWEST_ROUNDS and time.perf_counter() > until:
            break
        for name, obtained in made.items():
            given = arguments.fresh()
            began = time.perf_counter()
            run(obtained.executable, given)
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def _free_memory() -> float:
    """Bytes that can be had without swapping; infinite where the system does not tell."""
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return math.inf
