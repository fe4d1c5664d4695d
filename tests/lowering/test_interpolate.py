"""Interpolation against torch: modes, sizes, corners, scales, bytes, and gradients."""

from __future__ import annotations

import pytest
import torch
from emulate import check

aten = torch.ops.aten

PLAIN = ["upsample_nearest2d", "_upsample_nearest_exact2d"]
ALIGNED = ["upsample_bilinear2d", "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
           "_upsample_lanczos2d_aa"]  # fmt: skip
SIZES = [(7, 6), (14, 12), (5, 4), (11, 13), (1, 1)]


def both(name, x, out, *options):
    y = check(getattr(aten, name).default, x, out, *options)
    check(getattr(aten, f"{name}_backward").default, torch.randn(y.shape), out, list(x.shape), *options)


@pytest.mark.parametrize("out", SIZES)
@pytest.mark.parametrize("name", PLAIN)
def test_nearest(name, out):
    both(name, torch.randn(2, 3, 7, 6), out, None, None)


@pytest.mark.parametrize("out", SIZES)
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("name", ALIGNED)
def test_weighted(name, corners, out):
    both(name, torch.randn(2, 3, 7, 6), out, corners, None, None)


def test_one_and_three_dimensions():
    both("upsample_linear1d", torch.randn(2, 3, 7), [16], False, None)
    both("upsample_nearest1d", torch.randn(2, 3, 7), [5], None)
    both("upsample_trilinear3d", torch.randn(1, 2, 4, 5, 6), [3, 7, 4], True, None, None, None)
    both("upsample_nearest3d", torch.randn(1, 2, 4, 5, 6), [8, 10, 12], None, None, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_scales_replace_the_ratio(dtype):
    x = torch.randn(2, 3, 7, 6).to(dtype)
    check(aten.upsample_bilinear2d.default, x, [9, 9], False, 1.3, 1.5)
    check(aten.upsample_nearest2d.default, x, [9, 9], 1.3, 1.5)


@pytest.mark.parametrize("name", ["upsample_nearest2d", *ALIGNED[:4]])
def test_bytes_are_exact(name):
    x = torch.randint(0, 255, (2, 3, 7, 6), dtype=torch.uint8)
    options = (None, None) if name == "upsample_nearest2d" else (False, None, None)
    check(getattr(aten, name).default, x, [9, 13], *options)


def test_infinity_stays_where_it_is():
    x = torch.randn(1, 1, 6, 6)
    x[0, 0, 2, 3] = float("inf")
    check(aten.upsample_bilinear2d.default, x, [11, 13], False, None, None)


def test_channels_last():
    x = torch.randn(2, 3, 7, 6).to(memory_format=torch.channels_last)
    check(aten.upsample_bicubic2d.default, x, [9, 9], False, None, None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("corners", [False, True])
def test_low_precision_weights_are_the_cpus(corners, dtype):
    x = torch.randn(2, 3, 5, 6, 7).to(dtype)
    exact = {"rtol": 0, "atol": 0}
    check(aten.upsample_linear1d.default, x[:, :, 0, 0], [9], corners, None, **exact)
    check(aten.upsample_bicubic2d.default, x[:, :, 0], [9, 4], corners, None, None, **exact)
    check(aten.upsample_trilinear3d.default, x, [7, 4, 9], corners, None, None, None, **exact)
