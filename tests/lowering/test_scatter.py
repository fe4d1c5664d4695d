"""gather, scatter and the index_* family."""

from __future__ import annotations

import pytest
import torch
from emulate import check, run

aten = torch.ops.aten
X = torch.randn(3, 4)
INDEX = torch.tensor([[0, 2, 1], [2, 2, 0]])
SRC = torch.randn(3, 4)


def test_gather():
    check(aten.gather.default, X, 0, INDEX)
    check(aten.gather.default, X, -1, INDEX)
    check(aten.gather.default, X.T, 1, INDEX)
    check(aten.gather.default, torch.tensor(5.0), 0, torch.tensor([0]))
    check(aten.gather.default, torch.tensor(5.0), 0, torch.tensor(0))
    check(aten.gather.default, X, 0, torch.empty(0, 4, dtype=torch.int64))
    check(lambda x: torch.take_along_dim(x, INDEX[:, :1], 1), X[:2])


def test_index_select():
    check(aten.index_select.default, X, 1, torch.tensor([3, 0, 0]))
    check(aten.index_select.default, X, 0, torch.tensor(2))
    check(aten.index_select.default, X, 0, torch.tensor([1, 2], dtype=torch.int32))
    check(aten.index_select.default, torch.tensor(5), 0, torch.tensor([0]))
    check(aten.index_select.default, torch.empty(0, 3), 1, torch.tensor([1]))


def test_take_and_put():
    check(aten.take.default, X, torch.tensor([[0, -1], [11, -12]]))
    check(aten.put.default, X, torch.tensor([0, -1, 0]), torch.randn(3))
    check(aten.put.default, X.T, torch.tensor([0, -1, 0]), torch.randn(3), True)


@pytest.mark.parametrize("dim", [0, 1])
def test_scatter(dim):
    check(aten.scatter.src, X, dim, INDEX, SRC)
    check(aten.scatter.value, X, dim, INDEX, 3)
    check(aten.scatter_add.default, X, dim, INDEX, SRC)
    check(aten.scatter_.src, X.T.contiguous().T, dim, INDEX, SRC)
    for reduce in ("add", "multiply"):
        check(aten.scatter.reduce, X, dim, INDEX, SRC, reduce=reduce)
        check(aten.scatter.value_reduce, X, dim, INDEX, 2.5, reduce=reduce)


def test_scatter_of_scalars_and_empties():
    zero = torch.tensor(0)
    check(aten.scatter.src, torch.tensor(1.0), 0, zero, torch.tensor(2.0))
    check(aten.scatter.value, torch.tensor(1), 0, zero, 2)
    check(aten.scatter.src, X, 0, torch.empty(0, 4, dtype=torch.int64), SRC)
    check(aten.scatter.value, X > 0, 0, INDEX, True)


def test_last_of_equal_indices_wins():
    index = torch.randint(0, 3, (50, 4))
    check(aten.scatter.src, X, 0, index, torch.randn(50, 4))


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_reductions(reduce, include_self):
    for dtype in (torch.float32, torch.int64, torch.bfloat16):
        x, s = (X * 4).to(dtype), (SRC * 4).to(dtype)
        check(aten.scatter_reduce.two, x, 0, INDEX, s, reduce, include_self=include_self)
        if reduce != "sum":
            check(aten.index_reduce.default, x, 1, torch.tensor([1, 1]), s[:, :2], reduce, include_self=include_self)


def test_extremes_of_nan_inf_and_bool():
    x = torch.tensor([float("nan"), 1.0, float("-inf"), 2.0])
    s = torch.tensor([0.0, float("nan"), float("inf"), -0.0])
    for reduce in ("amax", "amin", "sum", "prod"):
        check(aten.scatter_reduce.two, x, 0, torch.tensor([0, 1, 2, 3]), s, reduce)
        check(aten.scatter_reduce.two, x > 0, 0, torch.tensor([0, 1, 2, 2]), s > 0, reduce)


def test_index_add_copy_fill():
    index = torch.tensor([2, 0, 2])
    check(aten.index_add.default, X, 0, index, torch.randn(3, 4))
    check(aten.index_add.default, X, 1, index, torch.randn(3, 3), alpha=0.5)
    check(aten.index_add.default, X.int(), 0, index, torch.ones(3, 4, dtype=torch.int32), alpha=3)
    check(aten.index_add.default, torch.tensor(1.0), 0, torch.tensor([0]), torch.tensor(2.0))
    check(aten.index_copy.default, X, 0, index, torch.randn(3, 4))
    check(aten.index_copy_.default, X.T.contiguous().T, 1, index, torch.randn(3, 3))
    check(aten.index_copy.default, X, 0, torch.tensor(1), torch.randn(1, 4))
    check(aten.index_fill.int_Scalar, X, 1, torch.tensor([-1, 0]), 2)
    check(aten.index_fill.int_Tensor, X, 0, torch.tensor(1), torch.tensor(2.5))
    check(aten.index_fill.int_Scalar, torch.tensor(1), 0, torch.tensor([0]), 2)


@pytest.mark.parametrize(
    "op, args, error",
    [
        (aten.gather.default, (X, 0, torch.tensor([[3]])), RuntimeError),
        (aten.gather.default, (X, 0, torch.tensor([[-1]])), RuntimeError),
        (aten.index_select.default, (X, 0, torch.tensor([3])), IndexError),
        (aten.take.default, (X, torch.tensor([-13])), IndexError),
        (aten.put.default, (X, torch.tensor([12]), torch.ones(1)), IndexError),
        (aten.scatter.value, (X, 0, torch.tensor([[3]]), 1.0), RuntimeError),
        (aten.index_add.default, (X, 0, torch.tensor([3]), X[:1]), IndexError),
        (aten.index_copy.default, (X, 0, torch.tensor([-1]), X[:1]), IndexError),
        (aten.index_fill.int_Scalar, (X, 0, torch.tensor([-4]), 1.0), IndexError),
        (aten.index_reduce.default, (X, 0, torch.tensor([3]), X[:1], "prod"), IndexError),
    ],
)
def test_indices_are_checked(op, args, error):
    with pytest.raises(error):
        run(op, args, {})
