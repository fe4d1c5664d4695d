"""Reductions, arg reductions, scans and softmax against CPU torch."""

from __future__ import annotations

import math

import pytest
import torch
from emulate import check

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")


def example(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    gen = torch.Generator().manual_seed(1)
    if dtype is torch.bool:
        return torch.rand(shape, generator=gen) > 0.5
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=gen, dtype=torch.float64).to(dtype)
    return torch.randint(0, 9, shape, generator=gen).to(dtype)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int32, torch.uint8, torch.bool, torch.complex64]
)
def test_sum_takes_torchs_result_dtype(dtype: torch.dtype) -> None:
    x = example(dtype, 3, 4)
    check(aten.sum.default, x)
    check(aten.sum.dim_IntList, x, [1], True)


def test_sum_corner_cases() -> None:
    check(aten.sum.dim_IntList, torch.ones(2, 0, 3), [1])
    check(aten.sum.dim_IntList, torch.tensor(3.0), [-1])
    check(aten.sum.dim_IntList, torch.ones(2, 3), [])
    check(aten.sum.dim_IntList, torch.ones(2, 3, dtype=torch.int32), None, dtype=torch.float64)
    check(
        aten.sum.default, torch.full((5000,), 1.0, dtype=torch.bfloat16)
    )  # past the 256 where bfloat16 counting stops
    check(aten.sum.default, torch.tensor([INF, -INF]))


def test_mean_of_nothing_is_nan() -> None:
    check(aten.mean.default, torch.empty(0))
    check(aten.mean.dim, torch.randn(3, 5).bfloat16(), [0])
    check(aten.mean.dim, torch.arange(6).reshape(2, 3), [1], dtype=torch.float32)


@pytest.mark.parametrize("op", [aten.amax, aten.amin])
def test_extrema_propagate_nan(op: torch._ops.OpOverloadPacket) -> None:
    x = torch.tensor([[1.0, NAN, 3.0], [-INF, -2.0, -0.0]])
    check(op.default, x, [1])
    check(op.default, x, [], True)
    check(op.default, example(torch.int32, 2, 3, 2), [0, 2])


@pytest.mark.parametrize("op", [aten.max, aten.min])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_max_with_indices_takes_the_first(op: torch._ops.OpOverloadPacket, dtype: torch.dtype) -> None:
    check(op.dim, torch.tensor([[2, 5, 5, 1], [0, 0, 0, 0]]).to(dtype), 1)
    check(op.dim, torch.tensor([[2, 5, 5, 1], [0, 0, 0, 0]]).to(dtype), 0, True)
    check(op.dim, torch.tensor(3).to(dtype), -1)


def test_index_of_the_first_nan() -> None:
    x = torch.tensor([[1.0, NAN, NAN, 9.0], [1.0, 2.0, 2.0, -1.0]])
    check(aten.max.dim, x, 1)
    check(aten.min.dim, x, 1)
    check(aten.argmax.default, x)
    check(aten.argmin.default, x[1], None, True)
    check(aten.argmax.default, torch.full((4,), -INF), 0)


def test_argmax_of_nothing_raises_torchs_error() -> None:
    with pytest.raises((RuntimeError, IndexError), match=r"Expected reduction dim|non-zero size"):
        check(aten.argmax.default, torch.empty(2, 0), 1)


@pytest.mark.parametrize("op", [aten.any, aten.all])
def test_truth(op: torch._ops.OpOverloadPacket) -> None:
    for x in (torch.tensor([[0.0, NAN], [0.0, 0.0]]), torch.tensor([[0, 3], [0, 0]], dtype=torch.uint8)):
        check(op.default, x)
        check(op.dim, x, 1, True)
        check(op.dims, x, [0, 1])
        check(op.dims, x, [])
    check(op.default, torch.empty(0))


@pytest.mark.parametrize("correction", [None, 0, 1, 5, 0.5])
def test_variance_corrections(correction: float | None) -> None:
    x = example(torch.float32, 3, 4) + 1000.0
    check(aten.var.correction, x, [1], correction=correction)
    check(aten.std_mean.correction, x, None, correction=correction, keepdim=True)


def test_variance_of_complex_and_low_precision() -> None:
    check(aten.var_mean.correction, example(torch.complex64, 3, 4), [0])
    check(aten.std.correction, example(torch.bfloat16, 3, 40), [1])
    check(aten.var.correction, torch.empty(0, 3), [0])


@pytest.mark.parametrize("order", [0, 1, 2, 3, 0.5, -1, INF, -INF])
def test_vector_norms(order: float) -> None:
    x = torch.tensor([[3.0, -4.0, 0.0], [1.0, NAN, 2.0]])
    check(aten.linalg_vector_norm.default, x, order, [1])
    check(aten.linalg_vector_norm.default, example(torch.complex64, 2, 3), order, None, True)
    check(aten.norm.ScalarOpt_dim, example(torch.float32, 2, 3), order, [0], True)


def test_logsumexp_of_infinities() -> None:
    x = torch.tensor([[-INF, -INF], [INF, 1.0], [INF, -INF], [NAN, 1.0], [1000.0, 1000.0]])
    check(aten.logsumexp.default, x, [1])
    check(aten.logsumexp.default, torch.empty(2, 0), [1])
    check(aten.logsumexp.default, example(torch.complex64, 2, 3), [1], True)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_scans(dim: int) -> None:
    x = example(torch.float32, 3, 37)
    for op in (aten.cumsum.default, aten.cumprod.default, aten.logcumsumexp.default, aten.cummax.default):
        check(op, x, dim)
    check(aten.cumsum.default, example(torch.uint8, 3, 300), dim)
    check(aten.cumsum.default, example(torch.bool, 3, 5), dim, dtype=torch.float32)


def test_running_extremes_with_nan_and_ties() -> None:
    x = torch.tensor([1.0, 3.0, 3.0, 2.0, NAN, 5.0, NAN])
    check(aten.cummax.default, x, 0)
    check(aten.cummin.default, x, 0)
    check(aten.cummin.default, torch.tensor([3, 1, 1, 0, 0]), 0)
    check(aten.cummax.default, torch.tensor(2.0), 0)
    check(aten.cumsum.default, torch.empty(0, 3), 0)


def test_complex_logcumsumexp_counts_turns() -> None:
    check(aten.logcumsumexp.default, example(torch.complex64, 20), 0)


def test_softmax_family() -> None:
    x = torch.tensor([[1.0, 2.0, 1000.0], [-INF, -INF, -INF], [-INF, 0.0, 1.0], [NAN, 0.0, 1.0]])
    check(aten._softmax.default, x, 1, False)
    check(aten._log_softmax.default, x, 0, False)
    check(aten._safe_softmax.default, x, -1)
    check(aten._softmax.default, torch.tensor(2.0), 0, False)
    check(aten._softmax.default, example(torch.bfloat16, 4, 33), 1, False)
    check(aten._log_softmax.default, torch.empty(0, 3), 1, False)


def test_softmax_gradients() -> None:
    g, x = example(torch.float32, 4, 5), example(torch.float32, 4, 5)
    check(aten._softmax_backward_data.default, g, torch.softmax(x, 1), 1, torch.float32)
    check(aten._log_softmax_backward_data.default, g, torch.log_softmax(x, 0), 0, torch.float32)


def test_other_reductions() -> None:
    check(aten.count_nonzero.dim_IntList, torch.tensor([[0.0, NAN], [1.0, 0.0]]), [1])
    check(aten.nansum.default, torch.tensor([[NAN, 1.0], [NAN, NAN]]), [1])
    check(aten.prod.dim_int, example(torch.int32, 3, 4), 1)
    check(aten.trace.default, example(torch.int32, 3, 5))
    check(aten.dist.default, example(torch.float32, 3), torch.tensor(1.0), 3)
    check(aten.aminmax.default, torch.tensor([[NAN, 1.0], [2.0, 0.0]]), dim=1)
    for dtype in (torch.float32, torch.int32, torch.bool):
        check(aten.hash_tensor.default, example(dtype, 3, 4), [1])
    assert math.isnan(check(aten.median.default, torch.empty(0)).item())
