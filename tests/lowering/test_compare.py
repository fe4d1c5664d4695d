"""Comparisons, selection, clamping, bit operations."""

from __future__ import annotations

import pytest
import torch
from emulate import check

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")
X = torch.tensor([NAN, 0.0, -0.0, 1.0, INF, -INF, 2.0])
Y = torch.tensor([NAN, -0.0, 1.0, 1.0, INF, INF, NAN])


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons(name):
    packet = getattr(aten, name)
    check(packet.Tensor, X, Y)
    check(packet.Scalar, torch.tensor([0.1, 0.2]).bfloat16(), 0.1)  # the number is rounded to bf16 first
    check(packet.Tensor, torch.tensor([200, 1], dtype=torch.uint8), torch.tensor([-1, 1], dtype=torch.int8))
    check(packet.out, X, Y, out=torch.empty(7, dtype=torch.uint8)) if hasattr(packet, "out") else None


def test_complex_equality():
    z = torch.tensor([1 + 1j, complex(NAN, 0)])
    check(aten.eq.Tensor, z, z)
    check(aten.ne.Tensor, z, torch.tensor([1.0, 2.0]))


def test_logic():
    x, y = torch.tensor([0.0, 2.0, NAN, 0.0]), torch.tensor([1, 0, 3, 0])
    for name in ("logical_and", "logical_or", "logical_xor"):
        check(getattr(aten, name).default, x, y)


def test_clamp():
    check(aten.clamp.default, X, -0.5, 1.0)
    check(aten.clamp.default, X, None, 1)
    check(aten.clamp.default, torch.arange(5), 1.5, None)
    check(aten.clamp.default, X, 2.0, 1.0)  # crossed bounds: the upper one wins
    check(aten.clamp.Tensor, X, Y, None)
    check(aten.clamp.Tensor, X.reshape(7, 1), torch.tensor([0, 1]), torch.tensor([1, 1]))
    check(aten.clamp_min_.default, torch.arange(5), 2)
    check(aten.clamp.default, X, 0.0, NAN)
    check(aten.clamp.default, torch.tensor([1, 250], dtype=torch.uint8), 2, 200)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_zero_is_not_clamped_to_the_other_one(dtype, zero):
    x = torch.tensor([0.0, -0.0]).to(dtype).repeat(40)
    for bounds in ((zero, zero), (zero, None), (None, zero)):
        kept = aten.clamp.default(x.to("neuron"), *bounds).cpu()
        assert torch.equal(kept.signbit(), x.signbit())
        assert torch.equal(torch.clamp(x, *bounds).signbit(), x.signbit())


def test_where_and_masked_fill():
    mask = X > 0
    check(aten.where.self, mask, X, torch.tensor(1, dtype=torch.int64))
    check(aten.where.self, mask, X.half(), Y)
    check(aten.masked_fill.Scalar, X, mask, -INF)
    check(aten.masked_fill.Tensor, torch.arange(7), mask, torch.tensor(9))
    check(aten.masked_fill_.Scalar, torch.zeros(3, 7), mask, 2.0)


def test_nan_to_num():
    check(aten.nan_to_num.default, X)
    check(aten.nan_to_num.default, X, 1.0, 2.0, -3.0)
    check(aten.nan_to_num.default, X.bfloat16())
    check(aten.nan_to_num.default, torch.arange(3))
    check(aten.nan_to_num.default, torch.complex(X, Y))


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int8], ids=str)
def test_bits(dtype):
    x = torch.tensor([0, 1, 3, 127, -1, -128]).to(dtype)
    y = torch.tensor([1, 7, 8, 40, -1, 2]).to(dtype)
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"):
        check(getattr(aten, name).Tensor, x, y)
    check(aten.bitwise_not.default, x)
    check(aten.bitwise_and.Scalar, x, 3)
    check(aten.bitwise_left_shift.Scalar_Tensor, 3, y.abs() % 5)


def test_bool_bits():
    x, y = torch.tensor([True, True, False]), torch.tensor([True, False, False])
    for op in (aten.bitwise_and.Tensor, aten.bitwise_xor.Tensor, aten.add.Tensor, aten.mul.Tensor):
        check(op, x, y)
    check(aten.bitwise_not.default, x)
