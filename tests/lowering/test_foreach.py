"""foreach operators: scalar kinds, in-place forms, promotion."""

from __future__ import annotations

import pytest
import torch
from emulate import check

aten = torch.ops.aten


def lists(n=2, dtype=torch.float32):
    return [[(torch.rand(s) * 3 + 0.5).to(dtype) for s in ((3, 4), (5,), ())] for _ in range(n)]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "clamp_max", "maximum", "pow"])
def test_binary(name):
    a, b = lists()
    packet, inplace = getattr(aten, f"_foreach_{name}"), getattr(aten, f"_foreach_{name}_")
    check(packet.List, a, b)
    check(packet.Scalar, a, 2)
    check(packet.ScalarList, a, [1.5, 2, 3.0])
    check(inplace.ScalarList, a, [1.5, 2, 3.0])


def test_promotion():
    (a,) = lists(1, torch.int64)
    check(aten._foreach_add.Scalar, a, 1.5)
    check(aten._foreach_add.List, a, lists(1)[0], alpha=2)
    check(aten._foreach_mul.Tensor, lists(1, torch.bfloat16)[0], torch.tensor(2.5))


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_ternary(name):
    xs = lists(3)
    packet = getattr(aten, f"_foreach_{name}")
    check(packet.Scalar, *xs, 0.5)
    check(packet.ScalarList, *xs, [0.5, 1, 2])
    check(getattr(aten, f"_foreach_{name}_").Scalar, *xs, 0.5)


def test_lerp_and_unary():
    a, b = lists()
    check(aten._foreach_lerp.Scalar, a, b, 0.3)
    check(aten._foreach_lerp_.List, a, b, lists(1)[0])
    for name in ("sqrt", "exp", "neg", "sigmoid"):
        check(getattr(aten, f"_foreach_{name}_").default, a)


def test_writes():
    a, b = lists()
    check(aten._foreach_zero_.default, a)
    check(aten._foreach_copy_.default, a, [x.double() for x in b])
    check(aten._foreach_copy_.default, a[:2], [torch.ones(1)] * 2)


@pytest.mark.parametrize("order", [0, 1, 2, 3, float("inf")])
def test_norms(order):
    check(aten._foreach_norm.Scalar, lists(1)[0], order)
    if order != float("inf"):
        check(aten._foreach_powsum.Scalar, lists(1)[0], order)


def test_max():
    check(aten._foreach_max.default, lists(1)[0])
