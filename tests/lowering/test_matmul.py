"""Matrix products: dtypes, scalars, empty contractions, transposed operands."""

from __future__ import annotations

import pytest
import torch
from emulate import check

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.int64, torch.uint8]


def make(dtype, *shape):
    return torch.randint(0, 255, shape, dtype=dtype) if dtype is torch.uint8 else (torch.randn(shape) * 3).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_product(dtype):
    def r(*s):
        return make(dtype, *s)

    check(aten.mm.default, r(3, 4), r(4, 5))
    check(aten.mm.default, r(3, 0), r(0, 5))
    check(aten.addmm.default, r(5), r(3, 4), r(4, 5))
    check(aten.addmm.default, r(3, 5), r(4, 3).t(), r(5, 4).t(), beta=2, alpha=3)
    check(aten.baddbmm.default, r(2, 3, 5), r(2, 3, 4), r(2, 4, 5), beta=2)
    check(aten.addbmm.default, r(3, 5), r(2, 3, 4), r(2, 4, 5))
    check(aten.addmv.default, r(3), r(3, 4), r(4))
    check(aten.vdot.default, r(4), r(4))
    check(aten.addr.default, r(3, 4), r(3), r(4), beta=2, alpha=3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sums_of_products_are_rounded_at_the_cpus_steps(dtype):
    x, a, b = torch.randn(40, 30).to(dtype), torch.randn(40).to(dtype), torch.randn(30).to(dtype)
    for beta, alpha in ((1, 1), (0.2, 0.6), (0, 0.6)):
        check(aten.addr.default, x, a, b, beta=beta, alpha=alpha, rtol=0, atol=0)
    left, right = torch.randn(4, 40, 8).to(dtype), torch.randn(4, 8, 30).to(dtype)
    check(aten.addbmm.default, x, left, right, rtol=0, atol=0)
    check(aten.addbmm.default, x, left, right, beta=0.5, alpha=2, rtol=0, atol=0)


@pytest.mark.parametrize("beta", [0, 0.0, -0.0])
def test_beta_of_zero_does_not_read_self(beta):
    nan = torch.full((3, 5), float("nan"))
    check(aten.addmm.default, nan, torch.randn(3, 4), torch.randn(4, 5), beta=beta)


def test_fractional_factors_of_integers_are_truncated():
    x = torch.arange(12).reshape(3, 4)
    check(aten.addmv.default, torch.arange(3), x, torch.arange(4), beta=2.7, alpha=1.9)


def test_activation():
    args = torch.randn(3, 5), torch.randn(3, 4), torch.randn(4, 5)
    check(aten._addmm_activation.default, *args)
    check(aten._addmm_activation.default, *args, use_gelu=True)


def test_int8_to_int32():
    a, b = (torch.randint(-128, 127, s, dtype=torch.int8) for s in ((32, 16), (16, 32)))
    check(aten._int_mm.default, a, b)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("unroll_dim", [1, 2])
def test_trilinear_is_rounded_between_its_products(dtype, unroll_dim):
    args = torch.randn(6, 7).to(dtype), torch.randn(4, 7, 5).to(dtype), torch.randn(6, 5).to(dtype)
    check(aten._trilinear.default, *args, [1, 3], [0], [1, 2], [2, 3], unroll_dim, rtol=0, atol=0)


def test_trilinear():
    args = torch.randn(5, 3), torch.randn(7, 3, 4), torch.randn(5, 4)
    check(aten._trilinear.default, *args, [1, 3], [0], [1, 2], [2, 3])


def test_addr_of_bool():
    b = torch.tensor([True, False, True])
    check(aten.addr.default, b[:, None] & b, b, b)
