"""Special functions against CPU torch over their whole domain, borders included."""

from __future__ import annotations

import pytest
import torch
from emulate import check, run

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")
POINTS = [
    NAN,
    INF,
    -INF,
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1e-4,
    2.0,
    3.7,
    -3.7,
    4.999,
    5.001,
    8.0,
    8.5,
    -8.5,
    12.3,
    30.0,
]

FUNCTIONS = {
    "digamma": 1e-9,
    "erfinv": 1e-9,
    "i0": 1e-10,
    "lgamma": 1e-9,
    "special_airy_ai": 1e-9,
    "special_bessel_j0": 1e-9,
    "special_bessel_j1": 1e-9,
    "special_bessel_y0": 1e-9,
    "special_bessel_y1": 1e-9,
    "special_entr": 1e-12,
    "special_erfcx": 1e-9,
    "special_i0e": 1e-10,
    "special_i1": 1e-10,
    "special_i1e": 1e-10,
    "special_log_ndtr": 1e-9,
    "special_modified_bessel_i0": 1e-10,
    "special_modified_bessel_i1": 1e-10,
    "special_modified_bessel_k0": 1e-9,
    "special_modified_bessel_k1": 1e-9,
    "special_ndtri": 1e-10,
    "special_scaled_modified_bessel_k0": 1e-9,
    "special_scaled_modified_bessel_k1": 1e-9,
    "special_spherical_bessel_j0": 1e-10,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_operand(name):
    op = getattr(aten, name).default
    x = torch.tensor(POINTS, dtype=torch.float64)
    if name in ("special_bessel_j0", "special_bessel_j1", "special_bessel_y0", "special_bessel_y1"):
        x = x[~x.isinf()]
    check(op, x.contiguous(), rtol=FUNCTIONS[name], atol=1e-12)
    check(op, x.float().contiguous(), rtol=2e-5, atol=2e-6)
    check(op, torch.arange(4))


def test_gamma_family():
    x = torch.tensor([0.0, 1.0, -1.0, -1.5, 0.3, 2.0, 10.0, 123.4, -0.9999])
    for n in range(4):
        check(aten.polygamma.default, n, x.double(), rtol=1e-8, atol=1e-9)
    check(aten.polygamma.default, 1, torch.arange(1, 5))
    check(aten.mvlgamma.default, x.abs() + 2, 3, rtol=1e-5, atol=1e-5)
    s = torch.tensor([1.0, 0.5, 2.0, 3.0, 3.5, 2.0, NAN, 60.0], dtype=torch.float64)
    q = torch.tensor([2.0, 2.0, -1.0, -2.5, -2.5, 1e-3, 1.0, 100.0], dtype=torch.float64)
    check(aten.special_zeta.default, s, q, rtol=1e-9, atol=0)
    check(aten.special_zeta.other_scalar, s, 1.5)
    check(aten.special_zeta.default, torch.tensor([2.0, 3.0]), torch.tensor([1e30, 1e13]))  # powers below float32


def test_incomplete_gamma():
    a = torch.tensor([0.0, 0.1, 1.0, 5.0, 30.0, 150.0, 500.0, 1e4, INF, -1.0], dtype=torch.float64)[:, None]
    x = torch.tensor([0.0, 1e-3, 0.5, 1.1, 4.0, 29.0, 160.0, 490.0, 1.001e4, INF, -1.0], dtype=torch.float64)
    a, x = (t.contiguous() for t in torch.broadcast_tensors(a, x))
    for op in (aten.igamma.default, aten.igammac.default):
        check(op, a, x, rtol=1e-7, atol=1e-9)


def test_incomplete_gamma_of_large_numbers() -> None:
    a = torch.tensor([9e4, 1e5, 1e6, 1e10], dtype=torch.float64)[:, None]
    around = torch.tensor([-9.0, -2.0, -0.1, 0.0, 0.3, 1.0, 7.0], dtype=torch.float64)
    x = a + around * a.sqrt()
    a = a.expand_as(x).contiguous()
    for op in (aten.igamma.default, aten.igammac.default):
        check(op, a, x, rtol=1e-6, atol=1e-12)
        check(op, a, a * 1e-6, rtol=1e-6, atol=1e-12)
        check(op, a, a * 1e6, rtol=1e-6, atol=1e-12)
        check(op, a.float(), a.float())
    a = torch.tensor([1e20, 1e30], dtype=torch.float64)[:, None]  # the normal distribution, which the CPU's ratio blurs
    x = a + around * a.sqrt()
    a = a.expand_as(x).contiguous()
    share = torch.special.ndtr((x - a) / a.sqrt())
    torch.testing.assert_close(run(aten.igamma.default, (a, x), {}), share, rtol=1e-6, atol=1e-9)


FAMILIES = (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w "
    "shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
    "shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l "
    "legendre_polynomial_p"
)


@pytest.mark.parametrize("name", FAMILIES.split())
def test_polynomials(name):
    packet = getattr(aten, f"special_{name}")
    x = torch.tensor([-2.0, -1.0, -0.3, 0.0, 0.4, 1.0, 1.7], dtype=torch.float64)[:, None]
    n = torch.tensor([-1.0, 0.0, 1.0, 2.0, 5.0, 9.0, 20.0], dtype=torch.float64)
    x, n = (t.contiguous() for t in torch.broadcast_tensors(x, n))
    check(packet.default, x, n, rtol=1e-8, atol=1e-8)
    check(packet.n_scalar, x[:, 0].contiguous(), 3)
    check(packet.x_scalar, 0.3, torch.arange(5))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.uint8])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4])
def test_polygamma_of_integers_and_their_poles(n: int, dtype: torch.dtype) -> None:
    x = torch.arange(0 if dtype is torch.uint8 else -9, 10, dtype=dtype)
    got, want = torch.polygamma(n, x.to("neuron")).cpu(), torch.polygamma(n, x)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)
