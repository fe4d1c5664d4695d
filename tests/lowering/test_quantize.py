"""Fake quantisation and products of quantised operands."""

from __future__ import annotations

import pytest
import torch
from emulate import check

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SPECIAL = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.5, 1.5, -0.5, 2.5, 1e30, -1e30])


def spread(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    x = torch.randn(*shape) * 3
    return torch.cat([x, SPECIAL]).to(dtype) if x.ndim == 1 else x.to(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_per_tensor(dtype):
    x = spread(dtype, 50)
    check(aten.fake_quantize_per_tensor_affine_cachemask.default, x, 0.1, 3, 0, 255)
    check(aten.fake_quantize_per_tensor_affine_cachemask.default, x, 0.037, 0, -128, 127)


@pytest.mark.parametrize("enabled", [0, 1])
def test_parameters_in_tensors(enabled):
    scale, zero_point, on = torch.tensor([0.05]), torch.tensor([7], dtype=torch.int32), torch.tensor([enabled])
    op = aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default
    check(op, spread(torch.float32, 50), scale, zero_point, on, 0, 255)


@pytest.mark.parametrize("zero_point", [torch.tensor([0, 3, 9], dtype=torch.int32), torch.tensor([0.3, 3.7, 9.5])])
def test_per_channel(zero_point):
    x, scale = spread(torch.float32, 4, 3, 5), torch.tensor([0.1, 0.013, 0.2])
    check(aten.fake_quantize_per_channel_affine_cachemask.default, x, scale, zero_point, 1, 0, 15)


@pytest.mark.parametrize("zero_point", [0.0, 2.5, 3.4, -7.0, 300.0])
def test_learned_per_tensor(zero_point):
    x, scale, zero = spread(torch.float32, 4, 3, 5), torch.tensor([0.1]), torch.tensor([zero_point])
    check(aten._fake_quantize_learnable_per_tensor_affine.default, x, scale, zero, 0, 15, 0.7)
    grad = torch.randn_like(x)
    check(aten._fake_quantize_learnable_per_tensor_affine_backward.default, grad, x, scale, zero, 0, 15, 0.7)


def test_learned_per_channel():
    x, scale, zero = spread(torch.float32, 4, 3, 5), torch.rand(3) + 0.1, torch.tensor([0.0, 3.5, 2.2])
    check(aten._fake_quantize_learnable_per_channel_affine.default, x, scale, zero, 1, 0, 15, 0.7)
    grad = torch.randn_like(x)
    check(aten._fake_quantize_learnable_per_channel_affine_backward.default, grad, x, scale, zero, 1, 0, 15, 0.7)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize("scales", [((), ()), ((4, 1), (1, 32))], ids=["tensor", "rows"])
def test_scaled_matmul(dtype, scales):
    a, b = torch.randn(4, 16).to(dtype), torch.randn(32, 16).to(dtype).t()
    scale_a, scale_b = (torch.rand(shape) + 0.5 for shape in scales)
    bias = torch.randn(32, dtype=torch.bfloat16)
    check(aten._scaled_mm.default, a, b, scale_a, scale_b, out_dtype=torch.float32)
    check(aten._scaled_mm.default, a, b, scale_a, scale_b, bias, out_dtype=torch.bfloat16)


def test_int8_weights():
    x, weight = torch.randn(4, 64).bfloat16(), torch.randint(-128, 127, (64, 64), dtype=torch.int8)
    check(aten._weight_int8pack_mm.default, x, weight, torch.rand(64).bfloat16())
