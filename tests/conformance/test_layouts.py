"""The layout check sees what it is there for, and passes where neuron is like the CPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from conformance import layouts, samples


@pytest.mark.parametrize(
    "identity", ["transpose|float32|forward", "add|int64|out", "mul|bool|inplace", "split|float32|forward"]
)
def test_entries_that_agree(identity: str) -> None:
    assert layouts.check(identity)["status"] == "pass"


def _differs(cpu: object, neuron: object) -> str:
    op = SimpleNamespace(op=lambda x: (cpu if x.device.type == "cpu" else neuron)(x))
    with pytest.raises(AssertionError) as refused:
        layouts.compare(op, (torch.rand(3, 4), (), {}), [False], "forward")
    return str(refused.value)


def test_differences_it_finds() -> None:
    assert "strides" in _differs(lambda x: x + 1, lambda x: x.t().contiguous().t() + 1)
    assert "shares the storage" in _differs(lambda x: x[1:], lambda x: x[1:].clone())
    assert "offset" in _differs(lambda x: x[1:2], lambda x: x[2:3])
    assert "is input" in _differs(lambda x: x, lambda x: x[:])


def test_a_copy_keeps_strides_offset_and_what_shares_storage() -> None:
    base = torch.arange(24.0).view(4, 6)
    given = (base[1:, ::2].t(), (base[0].expand(3, 6),), {})
    placed, (row,), _ = samples.place(given, [False, False], "neuron")
    assert (placed.stride(), placed.storage_offset(), row.stride()) == ((2, 6), 6, (0, 1))
    assert placed.untyped_storage()._cdata == row.untyped_storage()._cdata
    assert torch.equal(placed.cpu(), given[0])
