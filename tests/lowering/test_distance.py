"""cdist and pdist in every norm, with repeated points."""

from __future__ import annotations

import pytest
import torch
from emulate import check

aten = torch.ops.aten
NORMS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")]


@pytest.mark.parametrize("p", NORMS)
def test_cdist(p):
    x, y = torch.randn(2, 4, 6), torch.randn(2, 5, 6)
    y[0, 0] = x[0, 0]
    d = check(aten._cdist_forward.default, x, y, p, None)
    check(aten._cdist_backward.default, torch.randn(d.shape), x, y, p, d, rtol=1e-4, atol=1e-5)


def test_many_rows_use_a_product():
    x, y = torch.randn(30, 6), torch.randn(3, 7, 6)
    check(aten._cdist_forward.default, x, y, 2.0, None, rtol=1e-4, atol=1e-4)


def test_empty_batch():
    x, y = torch.randn(1, 3, 5), torch.randn(0, 4, 5)
    d = check(aten._cdist_forward.default, x, y, 2.0, None)
    check(aten._cdist_backward.default, torch.randn(d.shape), x, y, 2.0, d)


@pytest.mark.parametrize("p", NORMS)
def test_pdist(p):
    x = torch.randn(6, 3)
    x[1] = x[0]
    d = check(aten._pdist_forward.default, x, p)
    check(aten._pdist_backward.default, torch.randn(d.shape), x, p, d, rtol=1e-4, atol=1e-5)
