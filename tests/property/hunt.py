"""`python -m tests.property.hunt --programs 20000 --jobs 2`: many programs from fresh seeds, in processes of their own.

A seed stands for a number of programs. What differs is shortened and printed as a program that runs by itself; a
process that dies costs its last seed and no more.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import queue
import random
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Any, Final

PER_SEED: Final = 20  # programs
WORKER: Final = [sys.executable, "-m", "tests.property.hunt", "--worker"]
SEEDS_PER_PROCESS: Final = 50  # executables stay in memory as long as their process


@dataclass
class Findings:
    """What the processes reported."""

    programs: int = 0
    ops: set[str] = field(default_factory=set)
    failures: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def failed(self, report: dict[str, Any]) -> None:
        with self.lock:
            alike = self.failures.setdefault((report["op"], report["kind"]), [])
            alike.append(report["text"])
            if len(alike) == 1:
                print(f"--- seed {report['seed']}: {report['text']}", flush=True)

    def died(self, seed: int, code: int, program: str) -> None:
        with self.lock:
            self.crashes.append(program)
            print(f"--- seed {seed}: the process ended with {code} at\n{program}", flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.property.hunt", description=__doc__)
    parser.add_argument("--programs", type=int, default=20000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=None, help="the first seed; by default a random one")
    parser.add_argument("--autograd", action="store_true", help="programs of differentiable ops and backward passes")
    parser.add_argument("--worker", type=int, nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker is not None:
        work(options.worker, options.autograd)
        return 0
    first = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    seeds = list(range(first, first + -(-options.programs // PER_SEED)))
    print(f"property: seeds {seeds[0]} to {seeds[-1]}, {PER_SEED} programs each", flush=True)
    findings = hunt(seeds, options.jobs, options.autograd)
    failures = sum(map(len, findings.failures.values())) + len(findings.crashes)
    for (op, kind), texts in sorted(findings.failures.items()):
        print(f"{len(texts):5} x {op}: {kind}")
    print(f"property: {findings.programs} programs, {failures} failures, ops covered {len(findings.ops)}")
    return 1 if failures else 0


def hunt(seeds: list[int], jobs: int, autograd: bool = False) -> Findings:
    findings, batches = Findings(), queue.SimpleQueue[list[int]]()
    for i in range(0, len(seeds), SEEDS_PER_PROCESS):
        batches.put(seeds[i : i + SEEDS_PER_PROCESS])

    def run() -> None:
        while True:
            try:
                batch = batches.get_nowait()
            except queue.Empty:
                return
            while batch:
                batch = supervise(batch, findings, autograd)

    threads = [threading.Thread(target=run) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return findings


def supervise(seeds: list[int], findings: Findings, autograd: bool) -> list[int]:
    """Runs a process over the seeds; returns those that are left when it died."""
    seed, program = seeds[0], ""
    command = [*WORKER, *map(str, seeds), *["--autograd"] * autograd]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            report = json.loads(line)
            seed, program = report["seed"], report.get("program", program)
            if "program" in report:
                findings.programs += 1
            if "ops" in report:
                findings.ops.update(report["ops"])
            if "kind" in report:
                findings.failed(report)
    if process.returncode:
        findings.died(seed, process.returncode, program)
        return seeds[seeds.index(seed) + 1 :]
    return []


def work(seeds: list[int], autograd: bool) -> None:
    """The programs of each seed, one report a line. A program is named before it runs."""
    faulthandler.enable()
    from tests.property.generate import generate
    from tests.property.program import Program
    from tests.property.shrink import failure, shrink

    for seed in seeds:

        def one(program: Program, seed: int = seed) -> None:
            report(seed=seed, program=str(program), ops=sorted(program.ops))
            found = failure(program)
            if found is not None:
                _, shortest = shrink(program, found)
                report(seed=seed, op=shortest.op, kind=shortest.kind, text=str(shortest))

        generate(one, PER_SEED, seed, autograd=autograd)


def report(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
