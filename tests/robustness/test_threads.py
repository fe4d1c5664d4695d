"""Threads that share tensors: no error, no lost memory, the values of some order of the calls."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

D = "neuron"


def in_threads(count: int, work: Callable[[int], None]) -> list[BaseException]:
    errors: list[BaseException] = []

    def run(k: int) -> None:
        try:
            work(k)
        except BaseException as error:  # noqa: BLE001 - reported by the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    return errors


def test_every_write_in_place_counts() -> None:
    x = torch.zeros(1000, device=D)
    x.add_(1)

    def work(_: int) -> None:
        for _ in range(100):
            x.add_(1)

    assert in_threads(4, work) == []
    assert torch.equal(x.cpu(), torch.full((1000,), 401.0))


def test_readers_beside_a_writer() -> None:
    x = torch.zeros(100_000, device=D)
    stop = threading.Event()

    def work(k: int) -> None:
        if k == 0:
            for _ in range(100):
                x.add_(1)
            stop.set()
            return
        while not stop.is_set():
            whole = x.cpu()
            assert whole[0] == whole[-1]
            assert x[5].item() >= whole[0]
            (x + 1).sum().item()

    assert in_threads(3, work) == []
    assert x[0].item() == 100.0


def test_the_same_misses_and_backwards_in_all_threads() -> None:
    def work(k: int) -> None:
        for n in range(3, 7):
            here = torch.full((n, n), 0.1 * k, requires_grad=True)
            there = here.detach().to(D).requires_grad_()
            for x in (here, there):
                ((x @ x).relu().sum(0).softmax(0) * x.sin()).sum().backward()
            torch.testing.assert_close(there.grad.cpu(), here.grad)

    assert in_threads(4, work) == []


def test_hogwild() -> None:
    model = torch.nn.Linear(8, 8).to(D)

    def work(_: int) -> None:
        for _ in range(20):
            grads = torch.autograd.grad(model(torch.ones(4, 8, device=D)).pow(2).sum(), list(model.parameters()))
            with torch.no_grad():
                for p, g in zip(model.parameters(), grads, strict=True):
                    p.add_(g, alpha=-1e-4)

    assert in_threads(4, work) == []
    assert model.weight.isfinite().all().item()
