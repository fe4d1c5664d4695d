"""The parts of the transformer fast paths."""

from __future__ import annotations

import pytest
import torch
from emulate import check

aten = torch.ops.aten
SOURCE, PADDING, FULL = 0, 1, 2


def masks() -> dict[int, torch.Tensor]:
    full = torch.rand(2, 3, 4, 4) > 0.5
    full[0, 0, 0] = True  # a row masked as a whole is NaN
    source, padding = torch.zeros(4, 4, dtype=torch.bool), torch.zeros(2, 4, dtype=torch.bool)
    source[0], padding[0], padding[1, 2] = True, True, True
    return {SOURCE: source, PADDING: padding, FULL: full}


@pytest.mark.parametrize("kind", [SOURCE, PADDING, FULL])
def test_masked_softmax(kind):
    check(aten._masked_softmax.default, torch.randn(2, 3, 4, 4), masks()[kind], None, kind)


@pytest.mark.parametrize("dim", [1, 3])
def test_masked_softmax_along_a_dimension(dim):
    x, mask = torch.randn(2, 3, 4, 4), masks()[FULL]
    check(aten._masked_softmax.default, x, mask, dim, FULL)
    y = aten._masked_softmax.default(x, mask, dim, FULL)
    check(aten._masked_softmax_backward.default, torch.randn_like(x), y, mask, dim)


def test_bias_and_heads():
    check(aten._transform_bias_rescale_qkv.default, torch.randn(2, 3, 24), torch.randn(24), 2)
