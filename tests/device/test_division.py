"""Quotients cut to integers must be those of a correctly rounded division."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("divisor", [3.0, 49.0, 0.1, 1e-3])
@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_rounded_division_by_a_scalar(dtype: torch.dtype, divisor: float, mode: str) -> None:
    x = torch.arange(-2000, 2000).to(dtype) * divisor
    got = torch.div(x.to("neuron"), divisor, rounding_mode=mode)
    assert torch.equal(got.cpu(), torch.div(x, divisor, rounding_mode=mode))


def test_integer_linspace_hits_every_step() -> None:
    want = torch.linspace(50, 1, 50, dtype=torch.int64)
    assert torch.equal(torch.linspace(50, 1, 50, dtype=torch.int64, device="neuron").cpu(), want)
