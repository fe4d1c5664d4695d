"""A process lets executables go before it runs out of memory mappings."""

from __future__ import annotations

import pytest
import torch

from torch_neuronx.compiler import residents


def test_many_programs_do_not_use_up_the_mappings(monkeypatch: pytest.MonkeyPatch) -> None:
    def called(n: int) -> torch.Tensor:
        return torch.ones(n, 3, device="neuron").add(1)

    called(1)
    before = residents.mappings()
    assert 0 < before < residents.most_mappings()
    monkeypatch.setattr(residents, "EVERY", 8)
    monkeypatch.setattr(residents, "most_mappings", lambda: int((before + 60) / residents.SHARE))
    kept = called(2)
    most = 0
    for n in range(3, 90):
        torch.testing.assert_close(called(n).cpu(), torch.full((n, 3), 2.0))
        most = max(most, residents.mappings())
    torch.testing.assert_close(kept.cpu(), torch.full((2, 3), 2.0))
    assert most < before + 150


def test_compiled_graphs_let_theirs_go_too(monkeypatch: pytest.MonkeyPatch) -> None:
    call = torch.compile(lambda x: x.cos(), backend="neuron", dynamic=True, options={"buckets": "exact"})
    call(torch.ones(2, device="neuron"))
    before = residents.mappings()
    monkeypatch.setattr(residents, "EVERY", 8)
    monkeypatch.setattr(residents, "most_mappings", lambda: int((before + 60) / residents.SHARE))
    for n in range(3, 60):
        torch.testing.assert_close(call(torch.ones(n, device="neuron")).cpu(), torch.ones(n).cos())
    assert residents.mappings() < before + 150


def test_a_system_that_does_not_tell_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residents, "mappings", lambda: 0)
    monkeypatch.setattr(residents, "EVERY", 1)
    torch.testing.assert_close(torch.ones(7, device="neuron").mul(3).cpu(), torch.full((7,), 3.0))
