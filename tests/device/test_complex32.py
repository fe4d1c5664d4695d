"""complex32: a storage of 32-bit words, computed in complex64, each part rounded to float16 where the CPU rounds it."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch

import torch_neuronx

HALF = torch.complex32
pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.complex64).to(HALF)


def assert_same(got: torch.Tensor, want: torch.Tensor) -> None:
    """Equal in dtype, shape and every bit that is not a NaN's."""
    assert got.device.type == "neuron"
    assert got.dtype is want.dtype
    assert got.stride() == want.stride()
    got, want = (t.cpu().resolve_conj().resolve_neg() for t in (got, want))
    if want.is_complex():
        got, want = torch.view_as_real(got), torch.view_as_real(want)
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def check(compute: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
    with torch_neuronx.no_fallback():
        got = compute(*(t.to("neuron") for t in inputs))
    assert_same(got, compute(*inputs))


def test_every_bit_survives_a_round_trip():
    words = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(HALF)
    there = words.to("neuron")
    assert torch.equal(there.cpu().view(torch.int32), words.view(torch.int32))
    assert torch.equal(there.clone().cpu().view(torch.int32), words.view(torch.int32))
    assert torch.equal(there.view(torch.int32).cpu(), words.view(torch.int32))


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.cfloat])
def test_conversions(dtype):
    wide = (torch.randn(50, dtype=torch.complex128) * 10.0 ** torch.randint(-9, 7, (50,))).to(dtype)
    check(lambda x: x.to(HALF), wide)
    if dtype is not torch.int64:  # a float16 infinity has no integer
        check(lambda x: x.to(dtype), wide.to(HALF))


@pytest.mark.parametrize(
    "compute",
    [
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: torch.add(x, y, alpha=0.3 + 1j),
        lambda x, y: x * y,
        lambda x, y: x * (0.1 + 3j),
        lambda x, y: torch.addcmul(x, y, x, value=0.3j),
        lambda x, y: x.eq(y),
        lambda x, y: x.abs(),
        lambda x, y: -x,
        lambda x, y: torch.where(x.real > 0, x, y),
        lambda x, y: torch.cat([x, y]),
        lambda x, y: x.conj() * y,
        lambda x, y: x.masked_fill(x.real > 0, 0.1 + 2j),
        lambda x, y: x.sgn(),
    ],
)
def test_arithmetic_rounds_as_the_cpu_does(compute):
    check(compute, numbers(7, 5), numbers(7, 5))


def test_overflow_to_infinity():
    check(lambda x: x * x, torch.tensor([300 + 1j, 1e-4 + 1e-4j]).to(HALF))
    check(
        lambda x: x.abs(), torch.tensor([65000 + 65000j, complex("nan"), complex(float("inf"), float("nan"))]).to(HALF)
    )


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int32, torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_promotion(dtype):
    other = torch.randint(0, 2, (4, 3)).to(dtype)
    check(lambda x, y: x * y, numbers(4, 3), other)
    check(lambda x, y: x * y[0, 0], numbers(4, 3), other)
    check(lambda x, y: x[0, 0] * y, numbers(4, 3), other)
    check(lambda y: y * (1 + 2j), other)


@pytest.mark.parametrize("default", [torch.float16, torch.bfloat16, torch.float64])
def test_a_complex_number_counts_as_the_default_dtype(default):
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        check(lambda y: y * (1 + 2j), torch.arange(3))
    finally:
        torch.set_default_dtype(before)


def test_writes_through_views():
    def write(x: torch.Tensor) -> torch.Tensor:
        x[1:3].mul_(2)
        x[:, ::2].add_(1j)
        x.imag[0].fill_(7)
        torch.view_as_real(x)[..., 0, 1] = 3
        x.conj()[-1].copy_(x[0])
        x.imag.neg_()
        x.view(torch.float16)[2, :2] = 0
        return x

    check(lambda x: write(x.clone()), numbers(6, 5))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int16, torch.uint8, torch.complex64])
def test_bytes_as_another_dtype(dtype):
    check(lambda x: x.view(dtype).clone(), numbers(4, 6))
    check(lambda x: x.view(dtype).view(HALF) + 1, numbers(4, 6))


def test_real_views():
    check(lambda x: torch.view_as_complex(x) * 2, torch.randn(5, 2).half())
    check(lambda x: torch.view_as_real(x) * 2, numbers(5))
    check(torch.complex, torch.randn(5).half(), torch.randn(5).half())
    check(lambda x: x.conj().imag.clone(), numbers(5))


@pytest.mark.parametrize(
    "compute",
    [
        torch.sum,
        torch.exp,
        lambda x: x @ x,
        lambda x: torch.linspace(0, 1j, 3, dtype=x.dtype, device=x.device),
    ],
)
def test_what_the_cpu_has_no_kernel_for_equals_complex64(compute):
    x = numbers(6, 6)
    want = compute(x.to(torch.complex64)).to(HALF)
    got = compute(x.to("neuron"))
    assert got.dtype is HALF
    torch.testing.assert_close(torch.view_as_real(got).cpu(), torch.view_as_real(want), rtol=1e-3, atol=1e-3)


def test_what_has_no_order_is_refused_as_on_the_cpu():
    for x in (numbers(3), numbers(3).to("neuron")):
        with pytest.raises(RuntimeError, match=r"ComplexHalf|complex"):
            x.sort()


def test_gradient():
    def gradient(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        (x * x).abs().sum().backward()
        return x.grad

    check(gradient, numbers(5))


def test_factories_and_random_numbers():
    assert_same(torch.full((2,), 0.1 + 2j, dtype=HALF, device="neuron"), torch.full((2,), 0.1 + 2j, dtype=HALF))
    assert_same(torch.zeros(2, dtype=HALF, device="neuron"), torch.zeros(2, dtype=HALF))
    torch.manual_seed(1)
    drawn = torch.randn(20000, dtype=HALF, device="neuron").cpu().to(torch.complex64)
    assert abs(drawn.real.var() - 0.5) < 0.02
    assert abs(drawn.imag.var() - 0.5) < 0.02
    assert abs((drawn.real * drawn.imag).mean()) < 0.02
    uniform = torch.view_as_real(torch.rand(1000, dtype=HALF, device="neuron")).cpu()
    assert 0 <= uniform.min() < 0.01
    assert 0.99 < uniform.max() < 1


def test_saving_copying_and_showing():
    x = numbers(3, 2)
    there = x.to("neuron")
    file = io.BytesIO()
    torch.save(there, file)
    file.seek(0)
    assert_same(torch.load(file), x)
    assert_same(copy.deepcopy(there), x)
    assert there[1, 1].item() == x[1, 1].item()
    assert there.tolist() == x.tolist()
    assert "dtype=torch.complex32" in repr(there)


def test_a_dtype_that_stays_on_the_cpu():
    with pytest.raises(TypeError, match="cannot be on the neuron device"):
        torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2).to("neuron")
