"""Packed and padded rows."""

from __future__ import annotations

import torch
from emulate import check

aten = torch.ops.aten
OFFSETS = torch.tensor([0, 3, 3, 5])


def test_padding():
    for tail in ((4,), (2, 3)):
        check(aten._jagged_to_padded_dense_forward.default, torch.randn(5, *tail), [OFFSETS], [4], -1.5)


def test_packing():
    dense = torch.randn(3, 4, 2)
    check(aten._padded_dense_to_jagged_forward.default, dense, [OFFSETS], 5)
    check(lambda d: aten._padded_dense_to_jagged_forward.default(d, [OFFSETS]), dense)
