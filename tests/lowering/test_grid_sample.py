"""grid_sampler: every mode and padding, gradients, points that are no numbers."""

from __future__ import annotations

import pytest
import torch
from emulate import check

aten = torch.ops.aten


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize(("n", "mode"), [(2, 0), (2, 1), (2, 2), (3, 0), (3, 1)])
def test_modes(n, mode, padding, corners):
    x, grid = torch.randn(2, 3, *(5, 4, 6)[:n]), torch.randn(2, *(3, 4, 5)[:n], n) * 1.3
    options = (mode, padding, corners)
    y = check(getattr(aten, f"grid_sampler_{n}d").default, x, grid, *options, rtol=1e-4, atol=1e-4)
    backward = getattr(aten, f"grid_sampler_{n}d_backward").default
    check(backward, torch.randn(y.shape), x, grid, *options, [True, True], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("n", "mode"), [(2, 0), (2, 2), (3, 0)])
def test_low_precision_is_rounded_as_on_the_cpu(n, mode, dtype):
    x, grid = torch.randn(2, 3, *(5, 4, 6)[:n]).to(dtype), (torch.randn(2, *(5, 4, 5)[:n], n) * 1.3).to(dtype)
    options = (mode, 2 * (n - 2), True)
    y = check(getattr(aten, f"grid_sampler_{n}d").default, x, grid, *options, rtol=0, atol=0)
    backward = getattr(aten, f"grid_sampler_{n}d_backward").default
    check(backward, torch.randn(y.shape).to(dtype), x, grid, *options, [True, True], rtol=0, atol=0)


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_points_that_are_no_numbers(padding):
    grid = torch.randn(2, 3, 4, 2)
    grid[0, 0, 0, 0], grid[0, 1, 0, 0] = float("nan"), float("inf")
    check(aten.grid_sampler_2d.default, torch.randn(2, 3, 5, 4), grid, 0, padding, False)
