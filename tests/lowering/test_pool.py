"""Pooling: indices, ties, NaN, ceil mode, divisors, irregular windows, and all gradients."""

from __future__ import annotations

import pytest
import torch
from emulate import check

aten = torch.ops.aten
LOOSE = {"rtol": 0.1, "atol": 0.05}  # torch accumulates bf16 gradients in bf16

WINDOWS = [
    ((3, 3), (2, 2), (1, 1), (1, 1), False),
    ((2, 3), (1, 1), (0, 1), (2, 2), True),
    ((2, 2), (), (0, 0), (1, 1), True),
    ((3, 2), (3, 1), (1, 1), (1, 1), True),
    ((7, 7), (1, 2), (3, 3), (1, 1), False),
]


def tied():
    """Many equal values, some NaN, a plane of -inf."""
    x = torch.randn(2, 3, 9, 11).round()
    x[0, 1, 1, 2] = float("nan")
    x[1, 1, 1, :] = float("nan")
    x[1, 2] = float("-inf")
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("window", WINDOWS)
def test_max_pool(window, dtype):
    x = (tied().nan_to_num(1) if dtype is torch.int64 else tied()).to(dtype)
    y, at = check(aten.max_pool2d_with_indices.default, x, *window)
    if dtype is not torch.int64:
        tolerance = LOOSE if dtype is torch.bfloat16 else {}
        grad = torch.randn(y.shape).to(dtype)
        check(aten.max_pool2d_with_indices_backward.default, grad, x, *window, at, **tolerance)


@pytest.mark.parametrize("window", [w for w in WINDOWS if w[3] == (1, 1)])
@pytest.mark.parametrize(("include", "divisor"), [(True, None), (False, None), (True, 5)])
def test_avg_pool(window, include, divisor):
    kernel, stride, padding, _, ceil_mode = window
    x = torch.randn(2, 3, 9, 11)
    y = check(aten.avg_pool2d.default, x, kernel, stride, padding, ceil_mode, include, divisor)
    rest = (kernel, stride, padding, ceil_mode, include, divisor)
    check(aten.avg_pool2d_backward.default, torch.randn(y.shape), x, *rest)


def test_channels_last_keeps_its_strides():
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    check(aten.max_pool2d_with_indices.default, x, [3, 3], [2, 2], [1, 1])
    check(aten.avg_pool2d.default, x, [3, 3], [2, 2], [1, 1])


def test_three_dimensions_and_no_batch():
    x = torch.randn(3, 5, 9, 11)
    window = ([2, 3, 2], [1, 2, 2], [1, 1, 1])
    y, at = check(aten.max_pool3d_with_indices.default, x, *window, [1, 1, 1], True)
    check(aten.max_pool3d_with_indices_backward.default, torch.randn(y.shape), x, *window, [1, 1, 1], True, at)
    y = check(aten.avg_pool3d.default, x, *window)
    check(aten.avg_pool3d_backward.default, torch.randn(y.shape), x, *window, False, True, None)


@pytest.mark.parametrize("sizes", [(7, 9, 3, 4), (8, 8, 2, 4), (8, 8, 1, 1), (3, 5, 7, 8), (5, 7, 5, 7)])
def test_adaptive(sizes):
    h, w, *out = sizes
    x = torch.randn(2, 3, h, w)
    y = check(aten._adaptive_avg_pool2d.default, x, out)
    check(aten._adaptive_avg_pool2d_backward.default, torch.randn(y.shape), x)
    x[0, 0, 0, 0] = float("inf")
    x[0, 1, 1, 2] = float("nan")
    check(aten._adaptive_avg_pool2d.default, x, out)
    y, at = check(aten.adaptive_max_pool2d.default, x, out)
    check(aten.adaptive_max_pool2d_backward.default, torch.randn(y.shape), x, at)


@pytest.mark.parametrize("out", [(4, 5), (1, 1), (4, 1)])
def test_fractional(out):
    x = torch.randn(2, 3, 9, 11)
    y, at = check(aten.fractional_max_pool2d.default, x, [3, 2], out, torch.rand(2, 3, 2))
    check(aten.fractional_max_pool2d_backward.default, torch.randn(y.shape), x, [3, 2], out, at)


def test_unpool_checks_its_indices():
    x, at = aten.max_pool2d_with_indices(torch.randn(1, 2, 4, 4), [2, 2])
    check(aten.max_unpool2d.default, x, at, [4, 4])
    with pytest.raises(RuntimeError, match="Found an invalid max index"):
        check(aten.max_unpool2d.default, x, at.clamp(max=3) + 15, [4, 4])
