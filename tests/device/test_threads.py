"""Several Python threads in the core at once: tables, streams, statistics and generator have locks of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

THREADS = 4


def together(work: Callable[[int], object]) -> list[object]:
    """What `work(i)` returned or raised in each thread; all start at one moment."""
    barrier = threading.Barrier(THREADS)
    results: list[object] = [None] * THREADS

    def run(i: int) -> None:
        barrier.wait()
        try:
            results[i] = work(i)
        except Exception as error:  # noqa: BLE001 - handed to the test
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    return results


def test_the_same_new_programs():
    def work(i):
        return [(torch.full((n,), 3.0, device="neuron") * 2 + 1).sum().item() for n in range(101, 111)]

    assert together(work) == [[7.0 * n for n in range(101, 111)]] * THREADS


def test_own_storages_written_through_views():
    def work(i):
        x = torch.zeros(8, 8, device="neuron")
        for k in range(50):
            x[k % 8, ::2] += i
        return x.sum().item()

    assert together(work) == [50 * 4.0 * i for i in range(THREADS)]


def test_one_tensor_read_by_all():
    shared = torch.arange(1000.0).to("neuron")

    def work(i):
        return [(shared + k).cpu()[i].item() for k in range(30)]

    assert together(work) == [[float(i + k) for k in range(30)] for i in range(THREADS)]


def test_streams_events_and_waits():
    def work(i):
        stream = torch.neuron.Stream()
        total = 0.0
        for k in range(20):
            with torch.neuron.stream(stream):
                x = torch.ones(16, device="neuron") * k
                event = torch.neuron.Event(enable_timing=True)
                event.record(stream)
            event.synchronize()
            stream.query()
            total += x.sum().item()
        torch.neuron.synchronize()
        return total

    assert together(work) == [16.0 * sum(range(20))] * THREADS


def test_statistics_while_others_allocate():
    def work(i):
        for _ in range(100):
            if i % 2:
                torch.empty(64, device="neuron")
            else:
                assert torch.neuron.memory_stats()["active.all.current"] >= 0
                torch.neuron.memory_snapshot()
        return True

    assert together(work) == [True] * THREADS


def test_one_generator_never_gives_the_same_numbers_twice():
    torch.manual_seed(0)
    drawn = together(lambda i: [torch.rand(8, device="neuron").cpu() for _ in range(10)])
    rows = torch.cat([torch.stack(tensors) for tensors in drawn])
    assert len(torch.unique(rows, dim=0)) == len(rows)


def test_backward_in_every_thread():
    def work(i):
        x = torch.full((32, 32), 0.5, device="neuron", requires_grad=True)
        for _ in range(5):
            (x @ x).sum().backward()
        return x.grad.sum().item()

    assert together(work) == [pytest.approx(5 * 32 * 32 * 32.0)] * THREADS


def test_errors_reach_the_thread_that_made_them():
    def work(i):
        if i == 0:
            return torch.ones(2, device="neuron") @ torch.ones(3, device="neuron")
        return (torch.ones(3, device="neuron") + i).sum().item()

    first, *others = together(work)
    assert isinstance(first, RuntimeError)
    assert others == [3.0 * (1 + i) for i in range(1, THREADS)]
