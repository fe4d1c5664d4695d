"""In-place programs are compiled with other options than the rest: the same numbers, and vectorised loops."""

from __future__ import annotations

import pytest
import torch

SIZE = 1 << 18
UNARY = ("abs", "ceil", "cos", "erf", "exp", "expm1", "floor", "log1p", "neg", "reciprocal", "relu", "round", "rsqrt")
UNARY += ("sigmoid", "sign", "sin", "sqrt", "square", "tanh", "trunc")


def values(dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.randn(SIZE).mul_(3)
    x[:6] = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.2e-38])  # subnormals are flushed
    return x.to(dtype).to("neuron")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_same_numbers_in_place(name, dtype):
    x = values(dtype)
    expected = getattr(torch, name)(x).cpu()
    getattr(x, f"{name}_")()
    torch.testing.assert_close(x.cpu(), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "atan2", "copysign"])
def test_same_numbers_of_two_operands(name):
    x, y = values(torch.float32), values(torch.float32).flip(0)
    expected = getattr(torch, name)(x, y).cpu()
    getattr(x, f"{name}_")(y)
    torch.testing.assert_close(x.cpu(), expected, rtol=0, atol=0, equal_nan=True)
