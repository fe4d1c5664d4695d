"""An index that only the data shows to be wrong: when it is reported, and where it says it was."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

D = "neuron"


def wrong() -> torch.Tensor:
    return torch.ones(3, device=D)[torch.tensor([5], device=D)]


def test_the_line_is_the_users() -> None:
    F.embedding(torch.tensor([7], device=D), torch.ones(3, 2, device=D))
    with pytest.raises(IndexError, match=r"index out of range in self \(aten::embedding, called at .*") as caught:
        torch.neuron.synchronize()
    assert __file__ in str(caught.value)


def test_an_empty_result_does_not_hide_it() -> None:
    wrong()
    with pytest.raises(IndexError):
        torch.empty(0, device=D).cpu()


def test_two_errors_are_two_errors() -> None:
    wrong()
    F.embedding(torch.tensor([7], device=D), torch.ones(3, 2, device=D))
    with pytest.raises(IndexError, match=r"aten::index\.Tensor"):
        torch.neuron.synchronize()
    with pytest.raises(IndexError, match="aten::embedding"):
        torch.neuron.synchronize()
    torch.neuron.synchronize()


def test_work_goes_on_after_many() -> None:
    x, good = torch.ones(3, device=D), torch.tensor([1], device=D)
    wrong()
    with pytest.raises(IndexError):
        for _ in range(300):  # above the number of checks that may wait
            x.index_fill_(0, good, 5.0)
    torch.neuron.synchronize()
    assert x.tolist() == [1.0, 5.0, 1.0]


def test_in_backward() -> None:
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g.gather(0, torch.full((2, 2), 9, device=D))

    x = torch.ones(2, 2, device=D, requires_grad=True)
    with pytest.raises(RuntimeError, match="aten::gather"):
        Bad.apply(x).sum().backward()
        torch.neuron.synchronize()
    assert (x + 1).sum().item() == 8.0
