"""segment_reduce and linalg_cross."""

from __future__ import annotations

import pytest
import torch
from emulate import Lowered, check

aten = torch.ops.aten
DATA = torch.tensor([3.0, -1.0, 3.0, 0.0, 2.0, 5.0])
LENGTHS = torch.tensor([3, 0, 1, 2])


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize("initial", [None, 2.0])
def test_segments(reduce, initial):
    offsets = torch.tensor([0, 3, 3, 4, 6])
    for kwargs in ({"lengths": LENGTHS}, {"offsets": offsets}):
        out = check(aten.segment_reduce.default, DATA, reduce, initial=initial, unsafe=True, **kwargs)
        grad = torch.tensor([1.0, 2.0, -3.0, 4.0])
        check(aten._segment_reduce_backward.default, grad, out, DATA, reduce, initial=initial, **kwargs)


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "max", "min"])
def test_batched_segments_and_special_values(reduce):
    lengths = torch.tensor([[2, 1, 0], [0, 0, 3]])
    data = torch.randn(2, 3, 4)
    data[0, 1, 0], data[1, 2, 1], data[1, 0, 1] = float("nan"), 0.0, 0.0
    out = check(aten.segment_reduce.default, data, reduce, lengths=lengths, axis=1)
    check(aten._segment_reduce_backward.default, torch.randn(2, 3, 4), out, data, reduce, lengths=lengths, axis=1)


def test_positions_outside_every_segment():
    check(aten.segment_reduce.default, DATA, "sum", lengths=torch.tensor([2, 1]), unsafe=True)
    check(aten.segment_reduce.default, DATA, "sum", offsets=torch.tensor([1, 3, 5]), unsafe=True)


def test_lengths_are_checked():
    with Lowered(strict=True), pytest.raises(RuntimeError, match="must sum to"):
        torch.segment_reduce(DATA, "sum", lengths=torch.tensor([1, 2]))


def test_cross():
    a, b = torch.randn(4, 3), torch.randn(4, 3)
    check(aten.linalg_cross.default, a, b)
    check(aten.linalg_cross.default, a.to(torch.bfloat16), b.to(torch.bfloat16))
    check(aten.linalg_cross.default, torch.randn(3, 1, 2), torch.randn(3, 5, 2), dim=0)
    check(aten.linalg_cross.default, torch.tensor([1, 2, 3]), torch.tensor([3, 2, 1]))
