"""Results whose size depends on data, and choices by mask."""

from __future__ import annotations

import pytest
import torch
from emulate import check, run

aten = torch.ops.aten
X = torch.tensor([[0.0, 1.0, -0.0], [float("nan"), 0.0, 3.0]])


@pytest.mark.parametrize(
    "x",
    [
        X,
        X.T,
        X.int(),
        X > 0,
        torch.zeros(3),
        torch.tensor(1),
        torch.tensor(0.0),
        torch.empty(0, 3),
        torch.ones(2, 2, 2),
    ],
)
def test_nonzero(x):
    got, want = run(aten.nonzero.default, (x,), {}), x.nonzero()
    assert torch.equal(got, want)
    assert got.stride() == want.stride()
    for size in (0, 2, 20):
        got = run(aten.nonzero_static.default, (x,), {"size": size, "fill_value": -7})
        assert torch.equal(got, torch.nonzero_static(x, size=size, fill_value=-7))


def test_masked_select():
    check(aten.masked_select.default, X, X > 0)
    check(aten.masked_select.default, X, torch.tensor([True, False, True]))
    check(aten.masked_select.default, torch.tensor(2), torch.tensor([True, False, True]))
    check(aten.masked_select.default, X, torch.tensor(False))
    check(aten.masked_select.default, torch.empty(0, 3), torch.tensor([True, False, True]))


def test_masked_fill():
    mask = torch.tensor([True, False, True])
    check(aten.masked_fill.Scalar, X, mask, 2)
    check(aten.masked_fill.Scalar, X.int(), mask, 2)
    check(aten.masked_fill.Scalar, X.to(torch.bfloat16), mask, float("-inf"))
    check(aten.masked_fill.Tensor, torch.tensor(1.0), mask, torch.tensor(3.0))
    check(aten.masked_fill_.Scalar, X.T.contiguous(), mask.reshape(3, 1), 5.5)


def test_masked_scatter():
    mask = torch.tensor([[True, False, True], [False, True, True]])
    check(aten.masked_scatter.default, X, mask, torch.randn(5))
    check(aten.masked_scatter.default, X, torch.tensor([True, False, True]), torch.randn(2, 2))
    check(aten.masked_scatter_.default, X.T.contiguous().T, mask, torch.randn(4))
    check(aten.masked_scatter.default, X, torch.zeros_like(mask), torch.empty(0))
    check(aten.masked_scatter_backward.default, torch.randn(2, 3), mask, [5])
    check(aten.masked_scatter_backward.default, torch.randn(2, 3), mask, [2, 2])
    with pytest.raises(RuntimeError, match="fewer in source"):
        run(aten.masked_scatter.default, (X, mask, torch.randn(3)), {})


def test_isin():
    many = torch.randint(0, 400, (200,))
    for x, among in ((torch.arange(300), many), (torch.arange(300.0), many), (X, torch.tensor([1.0, float("nan")]))):
        check(aten.isin.Tensor_Tensor, x, among)
    floats = torch.cat([torch.randn(100), torch.tensor([float("nan"), float("inf"), 0.0])])
    check(aten.isin.Tensor_Tensor, torch.cat([X.flatten(), floats[:9]]), floats, invert=True)
    check(aten.isin.Tensor_Scalar, X, 1)
    check(aten.isin.Scalar_Tensor, 1, X)
    check(aten.isin.Tensor_Tensor, X, torch.empty(0))
