"""Storages that change their size, and memory that does not suffice."""

from __future__ import annotations

import pytest
import torch

D = "neuron"


def test_a_tensor_beyond_its_storage_is_refused() -> None:
    x = torch.ones(1_000_000, device=D)
    x.untyped_storage().resize_(4)
    for read in (
        lambda: x.cpu(),
        lambda: x[10:].cpu(),
        lambda: x[5].item(),
        lambda: x + 1,
        lambda: x[10:].add_(1),
        lambda: x.sum(),
    ):
        with pytest.raises(RuntimeError, match=r"(reaches beyond its storage|out of bounds for storage) of"):
            read()
    assert x[0].item() == 1.0


def test_a_storage_that_grows_back_holds_zeros_again() -> None:
    x = torch.ones(4, device=D)
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(16)
    assert x.shape == (4,)
    x.copy_(torch.arange(4.0))
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_failed_resize_changes_nothing() -> None:
    x = torch.arange(4.0, device=D)
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        x.resize_(10**13)
    assert x.shape == (4,)
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_failed_out_changes_nothing() -> None:
    x = torch.arange(4.0, device=D)
    with pytest.raises(RuntimeError):
        torch.mm(torch.ones(10**7, 1, device=D), torch.ones(1, 10**7, device=D), out=x)
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


LIMITED = """
import torch, torch_neuronx
a = torch.ones(1024, 1024, device="neuron")
b = torch.ones(1024, 1024, device="neuron")
out = torch.zeros(1, device="neuron")
for call in (lambda: a @ b, lambda: torch.mm(a, b, out=out), lambda: a + b):
    try:
        call()
        raise AssertionError("it fitted")
    except torch.OutOfMemoryError as error:
        assert "limit=9437184" in str(error), error
assert out.tolist() == [0.0]
a.add_(b).mul_(2)
assert a.sum().item() == 4 * 1024 * 1024
del b
assert (a @ a)[0, 0].item() == 16 * 1024
print("fine")
"""


def test_tensors_survive_out_of_memory(python) -> None:
    assert "fine" in python(LIMITED, TORCH_NEURONX_HOST_MEMORY_LIMIT="9M")
