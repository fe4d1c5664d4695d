"""Transformers' products by groups of rows in compiled graphs: group sizes are data. Equal to its Python on the CPU."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers.integrations.moe")

D = "neuron"
OFFSETS = {
    "even": [8, 16, 24],
    "ragged": [5, 19, 24],
    "empty groups": [0, 24, 24],
    "rows behind the last group": [3, 3, 10],
    "no rows in any": [0, 0, 0],
}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def grouped(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return torch.ops.transformers.grouped_mm_fallback(x * 1, w * 1, offsets)


def _results(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor, device: str) -> list[torch.Tensor]:
    x, w = (t.to(device, copy=True).requires_grad_() for t in (x, w))
    call = torch.compile(grouped, backend="neuron", fullgraph=True) if device == D else grouped
    out = call(x, w, offsets.to(device))
    out.backward(torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(out))
    return [t.detach().cpu() for t in (out, x.grad, w.grad)]


def _check(x: torch.Tensor, w: torch.Tensor, offsets: list[int], **tolerance: float) -> None:
    given = torch.tensor(offsets, dtype=torch.int32)
    for got, want in zip(_results(x, w, given, D), _results(x, w, given, "cpu"), strict=True):
        torch.testing.assert_close(got, want, **tolerance)


@pytest.mark.parametrize("name", OFFSETS)
def test_each_group_has_its_matrix(name: str) -> None:
    _check(torch.randn(24, 6), torch.randn(3, 6, 5), OFFSETS[name])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions(dtype: torch.dtype) -> None:
    _check(torch.randn(24, 6, dtype=dtype), torch.randn(3, 6, 5, dtype=dtype), OFFSETS["ragged"])


def test_more_rows_than_a_block_holds() -> None:
    _check(torch.randn(700, 4), torch.randn(2, 4, 3), [300, 700], rtol=1e-5, atol=1e-4)


def test_an_infinite_row_stays_in_its_group() -> None:
    x = torch.randn(24, 6)
    x[4, 2] = torch.inf
    _check(x, torch.randn(3, 6, 5), OFFSETS["ragged"])


def test_no_rows_at_all() -> None:
    _check(torch.randn(0, 6), torch.randn(3, 6, 5), OFFSETS["no rows in any"])
