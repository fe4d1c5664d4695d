"""Ranges, patterns and fills; factories have no tensor argument, so their out forms and rows are called directly."""

from __future__ import annotations

import emulate
import pytest
import torch
from emulate import check

aten = torch.ops.aten


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16, torch.float64, torch.uint8], ids=str)
@pytest.mark.parametrize("bounds", [(0, 5, 1), (1, 7, 3), (5, 0, -2), (0.0, 1.0, 0.1), (2, 2, 1)])
def test_arange(dtype, bounds):
    if dtype in (torch.uint8, torch.int64) and isinstance(bounds[2], float):
        return
    size = len(torch.arange(*bounds, dtype=dtype))
    check(aten.arange.start_out, *bounds, out=torch.empty(size, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.complex64], ids=str)
@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_linspace(dtype, steps):
    check(aten.linspace.out, -2, 3.5, steps, out=torch.empty(steps, dtype=dtype))
    check(aten.logspace.out, 0.0, 3.0, steps, 2.0, out=torch.empty(steps, dtype=dtype), rtol=1e-5, atol=1e-5)


def test_linspace_of_complex_ends():
    out = torch.empty(5, dtype=torch.complex64)
    check(aten.linspace.out, 1, 2 - 3j, 5, out=out)
    check(aten.logspace.out, 0.5j, 1 + 1j, 5, 3.0, out=out, rtol=1e-5, atol=1e-5)


def test_linspace_of_tensors():
    start, end = torch.tensor(1.0), torch.tensor(2.0)
    check(aten.linspace.Tensor_Tensor_out, start, end, 5, out=torch.empty(5))
    check(aten.linspace.Tensor_Scalar_out, start, 4, 5, out=torch.empty(5))
    check(aten.linspace.Scalar_Tensor_out, 0, end, 5, out=torch.empty(5))


def test_linspace_ends_are_exact():
    out = emulate.run(aten.linspace.out, (0.1, 0.7, 1000), {"out": torch.empty(1000)})
    assert out[0] == torch.tensor(0.1)
    assert out[-1] == torch.tensor(0.7)


def test_patterns():
    check(aten.eye.out, 3, out=torch.empty(3, 3))
    check(aten.eye.m_out, 2, 4, out=torch.empty(2, 4, dtype=torch.bool))
    check(aten.range.out, 1, 4, 0.5, out=torch.empty(7))
    for op in (aten.tril_indices.default, aten.triu_indices.default):
        for shape in ((3, 4, 0), (4, 3, 1), (3, 3, -2), (0, 3, 0)):
            got = emulate.run(op, shape, {})
            assert torch.equal(got, op(*shape))


def test_fills():
    x = torch.randn(3, 4)
    check(aten.fill_.Scalar, x.clone(), 2.5)
    check(aten.fill_.Tensor, torch.arange(6), torch.tensor(7.9))
    check(aten.zero_.default, x.t())
    check(lambda v: v[1:].fill_(1), x.clone())
    check(aten.fill_.Scalar, torch.zeros(2, dtype=torch.complex64), 1 + 2j)
    check(aten.fill.Scalar, torch.zeros(3, dtype=torch.bool), 5)


@pytest.mark.parametrize("bounds", [(0.0, -8.000001, -4.0), (1.0, 5.000001, 2.0), (-0.9, 2.1, 2.0), (2.1, -2.9, -1.0)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32], ids=str)
def test_arange_of_fractions(bounds, dtype):
    """int64 cuts the bounds before it counts the steps, other dtypes after."""
    check(aten.arange.start_step, *bounds, dtype=dtype)
    assert torch.arange(*bounds, dtype=dtype, device="neuron").tolist() == torch.arange(*bounds, dtype=dtype).tolist()
