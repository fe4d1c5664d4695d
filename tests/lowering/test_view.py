"""Views on values, and the scatters and gradients that undo them."""

from __future__ import annotations

import pytest
import torch
from emulate import check, run

aten = torch.ops.aten
X = torch.arange(60.0).reshape(3, 4, 5)


def same(op, *args, **kwargs):
    """Values only: as a kernel of its own a view has the strides of a fresh tensor."""
    got, want = run(op, args, kwargs), op(*args, **kwargs)
    for g, w in zip(*(torch.utils._pytree.tree_leaves(v) for v in (got, want)), strict=True):
        assert g.dtype == w.dtype
        assert torch.equal(g, w.resolve_conj().resolve_neg())


@pytest.mark.parametrize(
    "op, args",
    [
        (aten.view_copy.default, ([5, -1],)),
        (aten.expand_copy.default, ([2, -1, 4, 5],)),
        (aten.permute_copy.default, ([2, 0, -2],)),
        (aten.transpose_copy.int, (-1, 0)),
        (aten.unsqueeze_copy.default, (-1,)),
        (aten.slice_copy.Tensor, (1, 1, 9, 2)),
        (aten.slice_copy.Tensor, (2, -3, -1)),
        (aten.slice_copy.Tensor, (0, 2, 1)),
        (aten.narrow_copy.default, (1, -3, 2)),
        (aten.select_copy.int, (1, -1)),
        (aten.split_copy.Tensor, (2, 1)),
        (aten.split_with_sizes_copy.default, ([1, 0, 3], 1)),
        (aten.unbind_copy.int, (2,)),
        (aten.unfold_copy.default, (2, 3, 1)),
        (aten.unfold_copy.default, (1, 2, 2)),
        (aten.unfold_copy.default, (2, 2, 3)),
        (aten.unfold_copy.default, (0, 0, 1)),
        (aten.diagonal_copy.default, (1, 0, 2)),
        (aten.diagonal_copy.default, (-2, -1, 0)),
        (aten.diagonal_copy.default, (9,)),
        (aten.as_strided_copy.default, ([2, 3], [7, 2], 3)),
        (aten.as_strided_copy.default, ([2, 2, 2], [1, 1, 0])),
    ],
)
def test_copies(op, args):
    same(op, X, *args)


def test_squeeze():
    x = torch.ones(1, 3, 1)
    same(aten.squeeze_copy.default, x)
    same(aten.squeeze_copy.dim, x, 1)
    same(aten.squeeze_copy.dims, x, [0, -1])
    same(aten.squeeze_copy.dim, torch.tensor(3), 0)
    same(aten.t_copy.default, torch.ones(3))
    same(aten.unfold_copy.default, torch.tensor(3.0), 0, 1, 1)


def test_reinterpretation():
    z = torch.tensor([1 + 2j, -3.5j])
    same(aten.view_as_real_copy.default, z)
    same(aten.view_as_complex_copy.default, torch.randn(3, 2))
    same(aten._conj_copy.default, z)
    same(aten.view_copy.dtype, torch.randn(2, 4), torch.int32)
    same(aten.view_copy.dtype, torch.randn(2, 4), torch.float64)
    same(aten.view_copy.dtype, torch.randn(2, 4), torch.uint8)
    same(aten.view_copy.dtype, z, torch.float64)


@pytest.mark.parametrize(
    "op, args",
    [
        (aten.slice_scatter.default, (torch.ones(3, 2, 5), 1, 1, 3)),
        (aten.slice_scatter.default, (torch.ones(3, 2, 5), 1, -4, 9, 2)),
        (aten.slice_scatter.default, (torch.ones(3, 0, 5), 1, 3, 1)),
        (aten.select_scatter.default, (torch.ones(3, 5), 1, -2)),
        (aten.diagonal_scatter.default, (torch.ones(5, 3), 1, 0, 1)),
        (aten.diagonal_scatter.default, (torch.ones(4, 3), -1, 2, 0)),
    ],
)
def test_scatters(op, args):
    check(op, X, *args)
    check(op, X.permute(2, 1, 0).contiguous().permute(2, 1, 0), *args)


def test_scatter_converts_the_source():
    check(aten.slice_scatter.default, X, torch.ones(3, 1, 5, dtype=torch.int64), 1, 1, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients(dtype):
    def g(*shape):
        return torch.randn(shape).to(dtype)

    check(aten.slice_backward.default, g(3, 2, 5), [3, 4, 5], 1, 0, 9, 2)
    check(aten.slice_backward.default, g(3, 0, 5), [3, 4, 5], 1, 2, 2, 1)
    check(aten.select_backward.default, g(3, 5), [3, 4, 5], 1, -1)
    check(aten.diagonal_backward.default, g(5, 3), [3, 4, 5], 1, 0, 1)
    check(aten.diagonal_backward.default, g(5, 0), [3, 4, 5], 7, 0, 1)
    check(aten.diag_embed.default, g(3, 4), 1, 0, -1)
    check(aten.diag_embed.default, g(3, 4), -2)
    check(aten.diag_embed.default, g(0))


@pytest.mark.parametrize("size, step", [(3, 1), (4, 2), (3, 2), (2, 2), (1, 3), (2, 3), (7, 7)])
def test_unfold_backward(size, step):
    count = (7 - size) // step + 1
    check(aten.unfold_backward.default, torch.randn(2, count, 3, size), [2, 7, 3], 1, size, step)
