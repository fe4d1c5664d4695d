"""Sorting, selection, distinct values, binary search and histograms against CPU torch."""

from __future__ import annotations

import pytest
import torch
from emulate import Lowered, check, run

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
MIXED = [3.0, NAN, -INF, 0.0, -0.0, INF, 3.0, -1.5, NAN]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_floats_sort_stably_with_nan_last(dtype: torch.dtype, descending: bool) -> None:
    check(aten.sort.stable, torch.tensor(MIXED, dtype=dtype), stable=True, dim=0, descending=descending)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8, torch.bool])
def test_integers_sort_stably(dtype: torch.dtype) -> None:
    x = torch.tensor([[3, 1, 2], [-128, 127, 0], [1, 1, 0]]).to(dtype)
    check(aten.sort.stable, x, stable=True, dim=0)
    check(aten.sort.stable, x, stable=True, dim=1, descending=True)


def test_sort_of_little() -> None:
    check(aten.sort.default, torch.tensor(2.0))
    check(aten.sort.default, torch.empty(2, 0))
    check(aten.sort.default, torch.randn(2, 3, 4), 1)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.int64, torch.float64])
def test_topk_both_ways(dtype: torch.dtype, largest: bool) -> None:
    x = (torch.randperm(60, generator=torch.Generator().manual_seed(0)) - 30).to(dtype).reshape(1, 60)
    check(aten.topk.default, x, 5, 1, largest)  # selected
    check(aten.topk.default, x, 40, 1, largest)  # sorted
    check(aten.topk.default, x.t(), 3, 0, largest)


def test_topk_counts_nan_as_largest() -> None:
    x = torch.tensor([*MIXED, *range(100, 160)])
    for largest in (True, False):
        values, _ = run(aten.topk.default, (x, 4, 0, largest), {})
        torch.testing.assert_close(values, x.topk(4, 0, largest).values, equal_nan=True)
    check(aten.topk.default, torch.tensor(1.0), 1)
    check(aten.topk.default, torch.randn(3, 4), 0)


def test_rank_statistics() -> None:
    x = torch.tensor([[4.0, 1.0, 3.0, 2.0, 5.0], [NAN, 1.0, NAN, 0.0, 2.0]])
    check(aten.kthvalue.default, x[0], 2)
    check(aten.median.dim, x, 1)
    check(aten.median.default, x)
    check(aten.nanmedian.dim, x, 1, True)
    check(aten.nanmedian.default, torch.tensor([NAN, NAN]))
    check(aten.mode.default, torch.tensor([[1, 2, 2, 1, 3], [5, 5, 5, 0, 0]]))
    check(aten.median.dim, torch.tensor(4), 0)


def test_distinct_values() -> None:
    x = torch.tensor([[3, 1, 3], [2, 1, 1]])
    check(aten._unique2.default, x, True, True, True)
    check(aten._unique2.default, x)
    check(aten.unique_consecutive.default, torch.tensor([1, 1, 2, 2, 2, 1]), True, True)
    check(aten._unique2.default, torch.tensor([NAN, 1.0, NAN]), True, True, True)
    check(aten._unique2.default, torch.empty(0), True, True, True)
    rows = torch.tensor([[1, 2], [0, 5], [1, 2], [0, 4]])
    check(aten.unique_dim.default, rows, 0, True, True, True)
    check(aten.unique_dim_consecutive.default, rows[[0, 2, 1, 3]], 0, True, True)


def test_sizes_that_need_a_look_at_the_data_stay_on_the_device() -> None:
    x = torch.tensor([3, 0, 3, 1])
    check(torch.bincount, x)
    check(torch.bincount, x, torch.tensor([0.5, 1.0, 2.0, 4.0]), 7)
    check(torch.bincount, torch.empty(0, dtype=torch.int64), minlength=2)
    rows = torch.tensor([[1, 1, 2, 1], [0, 0, 5, 0]])
    check(torch.unique_consecutive, rows, dim=1)
    check(torch.unique, rows, dim=1, return_inverse=True, return_counts=True)
    with Lowered(strict=True), pytest.raises(RuntimeError, match="non-negative"):
        torch.bincount(torch.tensor([-1]))


@pytest.mark.parametrize("n", [5, 100])
def test_binary_search(n: int) -> None:
    edges = torch.arange(n, dtype=torch.float32)
    x = torch.tensor([[-1.0, 0.0, 2.5, NAN], [INF, -INF, 4.0, 3.0]])
    for right in (False, True):
        check(aten.bucketize.Tensor, x, edges, right=right)
        check(aten.searchsorted.Tensor, edges.repeat(2, 1), x, right=right, out_int32=True)
    holes = edges.index_fill(0, torch.arange(n // 2, n), NAN)  # where torch's sort puts them
    check(aten.searchsorted.Tensor, holes, x)
    check(aten.searchsorted.Scalar, edges, 3.0, side="right")
    check(aten.searchsorted.Tensor, edges.flip(0), torch.tensor([1.5]), sorter=torch.arange(n).flip(0))
    check(aten.bucketize.Tensor, torch.tensor([1, 2]), edges)
    check(aten.searchsorted.Tensor, torch.empty(0), torch.tensor([1.0]))


def test_histograms() -> None:
    x = torch.tensor([0.0, 0.1, 0.5, 0.999, 1.0, 2.0, -1.0])
    check(aten.histc.default, x, 4, 0, 1)
    check(aten.histc.default, x, 3)
    check(aten.histogram.bin_ct, x, 4, range=[0.0, 1.0])
    check(aten.histogram.bin_ct, x, 4, weight=torch.arange(7.0), density=True)
    check(aten.histogram.bins_tensor, x, torch.tensor([0.0, 0.3, 1.0]))
    check(aten._histogramdd_from_bin_cts.default, torch.randn(50, 2), [3, 4])
    with pytest.raises(RuntimeError, match="not finite"):
        run(aten.histc.default, (torch.tensor([1.0, INF]), 3), {})


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_zeros_keep_their_signs(dtype, descending):
    x = torch.tensor([[-0.0, 0.0, -1.0, -0.0, float("nan")], [3.0, -0.0, 0.0, 0.0, -2.0]], dtype=dtype)
    for dim in (0, 1):
        values, index = run(aten.sort.stable, (x,), {"stable": True, "dim": dim, "descending": descending})
        want = x.sort(stable=True, dim=dim, descending=descending)
        assert torch.equal(index, want.indices)
        assert torch.equal(torch.signbit(values), torch.signbit(want.values))
