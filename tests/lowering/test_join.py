"""cat, stack, repeat and their kin."""

from __future__ import annotations

import pytest
import torch
from emulate import Lowered, check

aten = torch.ops.aten


def test_cat_promotes_and_skips_legacy_empties():
    a, b = torch.randn(2, 3), torch.arange(6).reshape(2, 3)
    check(aten.cat.default, [a, b], -1)
    check(aten.cat.default, [b.to(torch.int32), b.to(torch.uint8), b > 2])
    check(aten.cat.default, [torch.empty(0), a])
    check(aten.cat.default, [torch.empty(0, dtype=torch.float64), b], 1)
    check(aten.cat.default, [torch.empty(0), torch.empty(0)])
    check(aten.cat.default, [torch.empty(2, 0), a], 1)
    check(aten.cat.default, [a.to(torch.bfloat16), a.to(torch.float16)])


def test_cat_keeps_channels_last():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    check(aten.cat.default, [x, x], 1)


def test_stack():
    a, b = torch.randn(2, 3), torch.arange(6).reshape(2, 3)
    for dim in (0, 1, -1):
        check(aten.stack.default, [a, b], dim)
    check(aten.stack.default, [torch.tensor(1), torch.tensor(2)])


@pytest.mark.parametrize("repeats", [[2, 3], [1, 1], [4, 1, 2], [0, 2]])
def test_repeat(repeats):
    check(aten.repeat.default, torch.randn(2, 3), repeats)


def test_repeat_of_scalars_and_empties():
    check(aten.repeat.default, torch.tensor(5), [3])
    check(aten.repeat.default, torch.tensor(5), [])
    check(aten.repeat.default, torch.empty(0, 3), [2, 2])


def test_block_diag():
    check(aten.block_diag.default, [torch.randn(2, 3), torch.arange(2), torch.tensor(7), torch.empty(0, 2)])
    check(aten.block_diag.default, [torch.ones(1, 2, dtype=torch.bool), torch.ones(3, dtype=torch.int32)])


def test_chunk_cat():
    check(aten._chunk_cat.default, [torch.randn(5, 2), torch.randn(3, 4)], 0, 2)


def test_repeat_interleave():
    r = torch.tensor([2, 0, 3, 1])
    check(aten.repeat_interleave.Tensor, r, output_size=6)
    check(aten.repeat_interleave.Tensor, r.to(torch.int32), output_size=6)
    check(aten.repeat_interleave.Tensor, torch.zeros(3, dtype=torch.int64), output_size=0)
    check(torch.repeat_interleave, r)  # the size is read first
    check(torch.repeat_interleave, torch.randn(4, 2), r, 0)


def test_repeat_interleave_checks():
    with Lowered(strict=True), pytest.raises(RuntimeError, match="can not be negative"):
        torch.repeat_interleave(torch.tensor([1, -1]))
    with Lowered(strict=True), pytest.raises(RuntimeError, match="does not match"):
        torch.repeat_interleave(torch.tensor([1, 2]), output_size=4)
