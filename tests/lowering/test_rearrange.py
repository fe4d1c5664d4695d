"""roll, flip, padding, shuffles, triangles."""

from __future__ import annotations

import pytest
import torch
from emulate import check, run

aten = torch.ops.aten
X = torch.randn(2, 3, 4, 5)


def test_roll():
    check(aten.roll.default, X, [1])
    check(aten.roll.default, X, [-7, 9], [0, -1])
    check(aten.roll.default, torch.tensor(3), [1])
    check(aten.roll.default, torch.empty(0, 3), [1], [0])


def test_flip():
    check(aten.flip.default, X, [0, -1])
    check(aten.flip.default, X, [])
    check(aten.flip.default, torch.tensor(3), [0])
    check(lambda x: torch.rot90(x, 3, (1, 2)), X)


def test_constant_pad():
    check(aten.constant_pad_nd.default, X, [1, 2], 3.5)
    check(aten.constant_pad_nd.default, X, [-1, 2, 0, -3])
    check(aten.constant_pad_nd.default, torch.arange(6).reshape(2, 3), [1, 1, 1, 0], -1)
    check(aten.constant_pad_nd.default, torch.ones(2, dtype=torch.bool), [0, 1])
    check(aten.constant_pad_nd.default, torch.empty(0, 3), [1, 0, 2, 0], 7)
    check(aten.constant_pad_nd.default, X.to(memory_format=torch.channels_last), [1, 1])


@pytest.mark.parametrize("kind", ["reflection", "replication"])
@pytest.mark.parametrize(
    "shape, pad", [((3, 5), [2, 1]), ((2, 4, 5), [1, 2, 0, 3]), ((2, 3, 4, 5), [0, 1, 2, 2, 1, 1])]
)
def test_mirrored_pads_and_their_gradients(kind, shape, pad):
    n = len(pad) // 2
    x = torch.randn(shape)
    out = check(getattr(aten, f"{kind}_pad{n}d").default, x, pad)
    backward = getattr(aten, f"{kind}_pad{n}d_backward").default
    check(backward, torch.randn(out.shape), x, pad)
    grad = torch.randn(out.shape).to(torch.bfloat16)
    got = run(backward, [grad, x.to(torch.bfloat16), pad], {})  # summed in float32, where CPU torch adds in bfloat16
    assert torch.equal(got, backward(grad.float(), x, pad).to(torch.bfloat16))


def test_mirrored_pads_crop():
    x = torch.randn(1, 2, 6)
    for kind in ("reflection", "replication"):
        out = check(getattr(aten, f"{kind}_pad1d").default, x, [-1, 2])
        check(getattr(aten, f"{kind}_pad1d_backward").default, torch.randn(out.shape), x, [-1, 2])


def test_shuffles():
    x = torch.randn(2, 8, 2, 4)
    check(aten.channel_shuffle.default, x, 4)
    check(aten.pixel_shuffle.default, x, 2)
    check(aten.pixel_unshuffle.default, x, 2)
    check(aten.pixel_shuffle.default, x[0], 2)


@pytest.mark.parametrize("diagonal", [0, 1, -2, 9, -9])
def test_triangles(diagonal):
    for op in (aten.tril.default, aten.triu.default):
        check(op, X, diagonal)
        check(op, X > 0, diagonal)
        check(op, X.mT, diagonal)
