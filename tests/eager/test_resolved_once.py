"""The slow half of a call happens once for a key: the second call of the same kind finds its entry in the core."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torch_neuronx.compiler import executables

CALLS: dict[str, Callable[[], object]] = {
    "arange": lambda: torch.arange(7, device="neuron"),
    "arange of floats": lambda: torch.arange(0.5, 3.0, 0.25, device="neuron"),
    "eye": lambda: torch.eye(5, device="neuron"),
    "linspace": lambda: torch.linspace(0, 1, 7, device="neuron"),
    "full": lambda: torch.full((4,), 2, device="neuron"),
    "randn": lambda: torch.randn(5, device="neuron"),
    "randperm": lambda: torch.randperm(5, device="neuron"),
    "nonzero": lambda: torch.ones(3, device="neuron").nonzero(),
    "sum": lambda: torch.ones(3, device="neuron").sum(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_the_second_call_resolves_nothing(call: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    call()
    resolved: list[str] = []
    obtain = executables.obtain
    monkeypatch.setattr(
        executables, "obtain", lambda call, device: (resolved.append(call.name), obtain(call, device))[1]
    )
    call()
    assert resolved == []


@pytest.mark.parametrize("dtype", [None, torch.int32, torch.float16])
@pytest.mark.parametrize("bounds", [(5,), (2.5,), (True,), (0, 10, 3), (5, 0, -2), (2**40, 2**40 + 3)], ids=str)
def test_arange_is_the_cpus(bounds: tuple[float, ...], dtype: torch.dtype | None) -> None:
    want = torch.arange(*bounds, dtype=dtype)
    got = torch.arange(*bounds, dtype=dtype, device="neuron")
    assert got.dtype is want.dtype
    assert torch.equal(got.cpu(), want)


@pytest.mark.parametrize("bounds", [(5, 0), (0, 5, 0), (0, float("inf"))], ids=str)
def test_arange_refuses_what_the_cpu_refuses(bounds: tuple[float, ...]) -> None:
    with pytest.raises(RuntimeError) as want:
        torch.arange(*bounds)
    with pytest.raises(RuntimeError) as got:
        torch.arange(*bounds, device="neuron")
    assert str(got.value) == str(want.value)
