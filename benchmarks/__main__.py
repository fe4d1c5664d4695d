"""Measures everything, prints the table, and leaves it in benchmarks/results/ as text, Markdown and JSON."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

import torch_neuronx  # noqa: F401 - registers the device when the package is not installed
from benchmarks import in_process, processes, report
from benchmarks.timing import Effort, Pair

RESULTS = Path(__file__).parent / "results"
Group = Callable[[], Iterator[tuple[str, Pair]]]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", nargs="*", choices=list(_groups(Effort(), 1)), help="groups to measure, all by default"
    )
    parser.add_argument("--quick", action="store_true", help="a few blocks and one process each: shows that it runs")
    parser.add_argument("--cores", type=int, default=1, help="cores both devices may use (default 1)")
    return parser.parse_args()


def _groups(effort: Effort, repeats: int) -> dict[str, Group]:
    return {
        "ops": lambda: in_process.ops(effort),
        "networks": lambda: in_process.networks(effort),
        "new_shape": lambda: processes.new_shape(repeats),
        "first_calls": lambda: processes.first_calls(repeats),
        "start": lambda: processes.start(2 * repeats),
    }


def _measure(groups: dict[str, Group], chosen: list[str]) -> dict[str, Pair]:
    figures: dict[str, Pair] = {}
    for name in chosen:
        begun = time.perf_counter()
        figures.update(groups[name]())
        print(f"{name}: {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    return figures


def main() -> None:
    options = _options()
    # Before the engine starts, which makes a thread for each core it may use: one thread of torch meets one core.
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[-options.cores :]))
    torch.set_num_threads(1)
    load = report.load_average()
    effort, repeats = (Effort(0.2, 2), 1) if options.quick else (Effort(), 3)
    groups = _groups(effort, repeats)
    figures = _measure(groups, options.only or list(groups))
    around = report.circumstances(load)
    text = "\n".join([*around.lines(), "", report.as_text(figures)])
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "latest.txt").write_text(text + "\n")
    (RESULTS / "latest.md").write_text(report.as_markdown(figures, around))
    (RESULTS / "latest.json").write_text(report.as_json(figures, around))


if __name__ == "__main__":
    main()
