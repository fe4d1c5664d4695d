"""A long training run holds as much memory at its end as after its first steps.

300 steps on every push, 10,000 by `make soak`.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torch_neuronx import debug

WARM_UP = 200
# What an allocator and Python's free lists move up and down by; a leak of one small buffer a step is more in 10,000.
ALLOWED_MEGABYTES = 4.0


@dataclass(frozen=True)
class Held:
    """What the process holds between two steps."""

    resident_megabytes: float
    buffers: int
    device_bytes: int
    compiled: int


def held() -> Held:
    torch.neuron.synchronize()
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    stats = torch.neuron.memory_stats()
    counters = debug.counters()
    return Held(
        pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        stats["active.all.current"],
        stats["active_bytes.all.current"],
        counters["compiled"] + counters["loaded"],
    )


def training() -> Iterator[float | None]:
    """One step a turn, with all that may pile up: new numbers, new batches, random masks, slices, reads on the host."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4)).to(
        "neuron"
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 1e-4 * step))
    data, labels = torch.randn(256, 16).to("neuron"), torch.randint(0, 4, (256,)).to("neuron")
    step = 0
    while True:
        start = 32 * (step % 8)
        noise = torch.randn(32, 16).to("neuron") * (0.01 + 1e-6 * step)
        loss = F.cross_entropy(model(data[start : start + 32] + noise), labels[start : start + 32])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        step += 1
        yield loss.item() if step % 20 == 0 else None


def run(steps: int) -> tuple[Held, Held, list[float]]:
    trained = training()
    losses = [next(trained) for _ in range(WARM_UP)]
    before = held()
    losses += [next(trained) for _ in range(steps)]
    return before, held(), [x for x in losses if x is not None]


def check(before: Held, after: Held, losses: list[float], allowed: float) -> None:
    assert losses[-1] < losses[0], "it must have trained, or it measured nothing"
    assert after.buffers == before.buffers
    assert after.device_bytes == before.device_bytes
    assert after.compiled == before.compiled, "a changing number must compile nothing"
    growth = after.resident_megabytes - before.resident_megabytes
    assert growth < allowed, f"resident memory grew by {growth:.1f} MB"


def test_memory_is_flat_over_300_steps():
    check(*run(300), allowed=ALLOWED_MEGABYTES)


@pytest.mark.slow
def test_memory_is_flat_over_10_000_steps():
    before, after, losses = run(10_000)
    growth = after.resident_megabytes - before.resident_megabytes
    print(f"resident {before.resident_megabytes:.1f} MB, {growth:+.2f} MB after 10,000 steps; {after.buffers} buffers")
    check(before, after, losses, allowed=ALLOWED_MEGABYTES)
