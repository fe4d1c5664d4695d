"""Activation checkpointing repeats the forward pass with the same random numbers."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

D = "neuron"


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_dropout_is_repeated(use_reentrant: bool) -> None:
    masks = []

    def block(x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.dropout(x, 0.5)
        masks.append(y.detach().clone())
        return y * y

    x = torch.ones(100, device=D, requires_grad=True)
    checkpoint(block, x, use_reentrant=use_reentrant).sum().backward()
    first, second = masks
    assert torch.equal(first, second)
    assert 0 < first.count_nonzero().item() < 100
    torch.testing.assert_close(x.grad.cpu(), 4 * first.cpu())
