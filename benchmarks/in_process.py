"""Figures taken in this process, both devices in turn: single ops, a chain of ops, whole networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from benchmarks.timing import Effort, Pair, side_by_side
from benchmarks.workloads import NETWORKS, Workload, wait


def ops(effort: Effort) -> Iterator[tuple[str, Pair]]:
    for name, numel, calls in (("add_4", 4, 200), ("add_1m", 1 << 20, 10)):
        yield f"{name}_async", _pair(partial(_adds, numel=numel, calls=calls), calls, effort)
        yield f"{name}_sync", _pair(partial(_waited_adds, numel=numel, calls=calls), calls, effort)
    yield "chain_30", _pair(_chains, 10, effort)


def networks(effort: Effort) -> Iterator[tuple[str, Pair]]:
    for name, build in NETWORKS.items():
        calls = 5 if name == "mlp_step" else 1
        yield name, _pair(partial(_repeated, build, calls=calls), calls, effort)


def _pair(make: Callable[[str], Callable[[], object]], calls: int, effort: Effort) -> Pair:
    return side_by_side(make("cpu"), make("neuron"), calls, effort)


def _operands(device: str, numel: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(numel).to(device), torch.rand(numel).to(device)


def _adds(device: str, numel: int, calls: int) -> Callable[[], object]:
    """One wait for the whole block, counted too: throughput, not only the time to enqueue."""
    a, b = _operands(device, numel)

    def run() -> None:
        for _ in range(calls):
            a + b
        wait(device)

    return run


def _waited_adds(device: str, numel: int, calls: int) -> Callable[[], object]:
    a, b = _operands(device, numel)
    if device == "cpu":  # nothing to wait for, and the empty call would be counted
        return _adds(device, numel, calls)
    synchronize = torch.neuron.synchronize  # type: ignore[attr-defined]

    def run() -> None:
        for _ in range(calls):
            a + b
            synchronize()

    return run


def _chains(device: str) -> Callable[[], object]:
    """Thirty ops on 2048 elements, each on the result of the one before."""
    a, b = _operands(device, 2048)

    def run() -> None:
        for _ in range(10):
            x = a
            for _ in range(10):
                x = torch.tanh((x + b) * b)
            wait(device)

    return run


def _repeated(build: Callable[[str], Workload], device: str, calls: int) -> Callable[[], object]:
    workload = build(device)

    def run() -> None:
        for _ in range(calls):
            workload()

    return run
