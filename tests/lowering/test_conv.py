"""Convolutions and their gradients in every geometry, and the patch operators."""

from __future__ import annotations

import emulate
import pytest
import torch
from emulate import check

from torch_neuronx.lowering.ops import conv_products

aten = torch.ops.aten

# name: (x, w, stride, padding, dilation, transposed, output padding, groups)
GEOMETRIES = {
    "plain": ((2, 4, 9, 10), (6, 4, 3, 3), (1, 1), (1, 1), (1, 1), False, (0, 0), 1),
    "groups and dilation": ((2, 4, 9, 10), (6, 2, 3, 3), (2, 2), (3, 2), (2, 1), False, (0, 0), 2),
    "depthwise": ((2, 4, 9, 10), (8, 1, 3, 3), (1, 2), (0, 1), (1, 1), False, (0, 0), 4),
    "rest unread": ((2, 4, 4, 6), (6, 4, 1, 1), (2, 2), (0, 0), (1, 1), False, (0, 0), 1),
    "padding above the kernel": ((2, 4, 4, 6), (6, 4, 1, 1), (2, 2), (2, 2), (1, 1), False, (0, 0), 1),
    "transposed": ((2, 4, 5, 6), (4, 3, 3, 3), (2, 2), (1, 1), (1, 1), True, (1, 1), 1),
    "transposed groups": ((2, 4, 5, 6), (4, 3, 3, 3), (2, 3), (1, 0), (2, 1), True, (0, 0), 2),
    "transposed, cropped": ((2, 4, 5, 6), (4, 3, 2, 2), (1, 1), (3, 2), (1, 1), True, (0, 0), 1),
    "transposed, output padding above stride": ((2, 4, 5, 6), (4, 3, 2, 2), (1, 1), (0, 0), (3, 3), True, (2, 1), 1),
    "1d": ((2, 4, 7), (6, 4, 3), (2,), (1,), (1,), False, (0,), 1),
    "1d transposed": ((2, 4, 7), (4, 3, 3), (2,), (1,), (1,), True, (1,), 2),
    "3d": ((2, 4, 5, 6, 7), (6, 2, 2, 3, 2), (1, 2, 1), (1, 0, 1), (1, 1, 2), False, (0, 0, 0), 2),
    "more weights than places": ((2, 32, 6, 7), (256, 32, 3, 3), (2, 1), (1, 2), (1, 2), False, (0, 0), 1),
    "more weights than places, transposed": ((1, 256, 3, 4), (256, 32, 3, 3), (2, 3), (1, 4), (2, 1), True, (1, 0), 1),
    "no batch elements": ((0, 4, 9, 10), (6, 2, 3, 3), (2, 2), (1, 1), (1, 1), False, (0, 0), 2),
}


def _run(geometry, dtype, tolerance):
    xs, ws, stride, padding, dilation, transposed, extra, groups = geometry
    x, w = torch.randn(xs).to(dtype), torch.randn(ws).to(dtype)
    b = torch.randn(ws[1] * groups if transposed else ws[0]).to(dtype)
    rest = (stride, padding, dilation, transposed, extra, groups)
    y = check(aten.convolution.default, x, w, b, *rest, rtol=tolerance, atol=tolerance)
    g = torch.randn(y.shape).to(dtype)
    args = (g, x, w, [len(b)], *rest, [True, True, True])
    for got, want in zip(
        emulate.run(aten.convolution_backward.default, args, {}), aten.convolution_backward(*args), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=10 * tolerance, atol=10 * tolerance)
    alone = emulate.run(aten.convolution_backward.default, (*args[:-1], [False, True, False]), {})
    assert alone[0] is None and alone[2] is None and alone[1].shape == w.shape


@pytest.mark.parametrize("name", GEOMETRIES)
def test_geometry(name):
    _run(GEOMETRIES[name], torch.float32, 1e-4)


def test_more_weights_than_places_means_a_product(monkeypatch):
    taken = []
    pays = conv_products.pays
    monkeypatch.setattr(conv_products, "pays", lambda *of: taken.append(pays(*of)) or taken[-1])
    # shapes of their own: programs of the other tests are kept
    _run(((3, 32, 5, 6), (256, 32, 3, 3), (1, 1), (1, 1), (1, 1), False, (0, 0), 1), torch.float32, 1e-3)
    _run(((1, 256, 2, 4), (256, 32, 3, 3), (2, 2), (1, 1), (1, 1), True, (1, 1), 1), torch.float32, 1e-3)
    assert taken
    assert all(taken)
    taken.clear()
    _run(((3, 4, 8, 8), (6, 4, 3, 3), (1, 1), (1, 1), (1, 1), False, (0, 0), 1), torch.float32, 1e-4)
    assert taken
    assert not any(taken)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype):
    for name in ("groups and dilation", "transposed"):
        _run(GEOMETRIES[name], dtype, 2e-2 if dtype.itemsize == 2 else 1e-9)


def test_overrideable_agrees():
    x, w, b = torch.randn(2, 4, 8, 8), torch.randn(6, 4, 3, 3), torch.randn(6)
    rest = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    y = emulate.run(aten.convolution_overrideable.default, (x, w, b, *rest), {})
    torch.testing.assert_close(y, aten.convolution(x, w, b, *rest), rtol=1e-4, atol=1e-4)
    args = (torch.randn(y.shape), x, w, *rest, [True, True, True])
    got = emulate.run(aten.convolution_backward_overrideable.default, args, {})
    want = aten.convolution_backward(*args[:3], [6], *args[3:])
    for a, e in zip(got, want, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shape", [(2, 3, 7, 8), (3, 7, 8)])
def test_patches(shape):
    geometry = ([3, 2], [1, 2], [1, 0], [2, 1])
    patches = check(aten.im2col.default, torch.randn(shape), *geometry)
    check(aten.col2im.default, torch.randn(patches.shape), list(shape[-2:]), *geometry)


def test_time_batch_channel():
    check(aten.conv_tbc.default, torch.randn(7, 2, 3), torch.randn(3, 3, 5), torch.randn(5), 1)


def test_direct_forms():
    x, w, b = torch.randn(2, 4, 8, 8), torch.randn(6, 4, 3, 3), torch.randn(6)
    check(aten.slow_conv_dilated2d.default, x, w, [3, 3], b, [1, 1], [1, 1], [2, 2], rtol=1e-4, atol=1e-4)
    check(
        aten.slow_conv_transpose2d.default,
        x,
        torch.randn(4, 6, 3, 3),
        [3, 3],
        b,
        [2, 2],
        [1, 1],
        [1, 1],
        [1, 1],
        rtol=1e-4,
        atol=1e-4,
    )
