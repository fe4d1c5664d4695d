"""Arithmetic against CPU torch: promotion, wrapping, division by zero, signed zeros, NaN and infinities."""

from __future__ import annotations

import itertools

import emulate
import pytest
import torch
from emulate import check

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")
FLOATS = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 7.3, -7.3, 1e30, -1e10]
INTEGERS = [0, 1, 2, 3, 7, 10, 63, 127, -1, -2, -7, -128]


def pairs(values, dtype):
    x, y = zip(*itertools.product(values, values), strict=True)
    return torch.tensor(x, dtype=torch.float64).to(dtype), torch.tensor(y, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "remainder", "fmod", "pow", "floor_divide"])
def test_floating_point_pairs(name, dtype):
    x, y = pairs(FLOATS, dtype)
    packet = getattr(aten, name)
    op = packet.Tensor_Tensor if name == "pow" else packet.default if name == "floor_divide" else packet.Tensor
    out = check(op, x, y)
    want = op(x, y)
    zeros = (want == 0) & (out == 0)
    assert torch.equal(torch.signbit(out)[zeros], torch.signbit(want)[zeros])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.int8], ids=str)
def test_integers_wrap(dtype):
    x, y = pairs(INTEGERS, torch.int64)
    x, y = x.to(dtype), y.to(dtype)
    for op in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.maximum.default, aten.gcd.default):
        check(op, x, y)
    power = y >= 0
    check(aten.pow.Tensor_Tensor, x[power].contiguous(), y[power].contiguous())
    whole = y != 0
    x, y = x[whole].contiguous(), y[whole].contiguous()
    for op in (aten.remainder.Tensor, aten.fmod.Tensor, aten.floor_divide.default):
        check(op, x, y)
    for mode in ("trunc", "floor", None):
        check(aten.div.Tensor_mode, x, y, rounding_mode=mode)


def test_integer_division_by_zero_is_reported():
    x, zero = torch.arange(3), torch.tensor([1, 0, 2])
    for op in (aten.floor_divide.default, aten.remainder.Tensor, aten.fmod.Tensor):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            emulate.run(op, (x, zero), {})


PROMOTIONS = [
    (torch.ones(2, dtype=torch.int32), 2.5),
    (torch.ones(2, dtype=torch.uint8), -1),
    (torch.ones(2, dtype=torch.bool), 3),
    (torch.ones(2, dtype=torch.bfloat16), torch.tensor(2.0)),
    (torch.ones(2, dtype=torch.bfloat16), torch.ones(2)),
    (torch.tensor(2.0), torch.ones(2, dtype=torch.float16)),
    (torch.ones(2, dtype=torch.int64), torch.tensor(2, dtype=torch.int32)),
    (torch.ones(2, dtype=torch.float32), 2j),
    (torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.complex64)),
    (torch.ones(2, dtype=torch.bool), torch.ones(2, dtype=torch.bool)),
    (torch.ones(2, dtype=torch.int8), torch.ones(2, dtype=torch.uint8)),
    (torch.ones((), dtype=torch.int64), 1.5),
]


@pytest.mark.parametrize(("x", "y"), PROMOTIONS)
def test_promotion(x, y):
    check(aten.mul.Tensor, x, y)
    check(aten.div.Tensor, x, y)


@pytest.mark.parametrize("shapes", [((3, 1), (1, 4)), ((), (2, 3)), ((0, 3), (1, 3)), ((2, 1, 3), (4, 1)), ((1,), ())])
def test_broadcasting(shapes):
    x, y = (torch.randn(s) for s in shapes)
    check(aten.add.Tensor, x, y, alpha=2)
    check(aten.where.self, x > 0, x, y)


def test_alpha_and_value_are_operands():
    x, y = torch.randn(6), torch.randn(6)
    emulate._programs.clear()
    for alpha in (0.25, 0.5, 3.0):
        check(aten.add.Tensor, x, y, alpha=alpha)
        check(aten.addcmul.default, x, y, y, value=alpha)
    assert len(emulate._programs) == 2
    check(aten.sub.Tensor, torch.arange(4), torch.arange(4), alpha=3)
    check(aten.rsub.Scalar, x, 2.0, 3)
    check(aten.addcdiv.default, x, y, y + 3, value=0.5)


def test_wrapped_numbers_keep_their_precision():
    """bf16 * 0.1 multiplies by 0.1 in float32; bf16 + 0.1 adds 0.1 rounded to bf16."""
    x = torch.linspace(-3, 3, 101).bfloat16()
    for op in (aten.mul.Tensor, aten.add.Tensor, aten.div.Tensor):
        assert torch.equal(emulate.run(op, (x, 0.1), {}), op(x, 0.1))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.5, True])
def test_power_of_a_number(exponent):
    x = torch.tensor([0.0, 0.5, 2.0, 3.0, INF, NAN])
    check(aten.pow.Tensor_Scalar, x, exponent)
    if not isinstance(exponent, float) and exponent >= 0:
        check(aten.pow.Tensor_Scalar, torch.tensor([-3, 0, 2, 100]), exponent)


def test_power_of_scalar_base_and_complex():
    check(aten.pow.Scalar, 2.0, torch.tensor([-1.0, 0.0, 3.5]))
    check(aten.pow.Scalar, 2, torch.tensor([0, 1, 62, 63, 64]))
    z = torch.randn(5, dtype=torch.complex64)
    check(aten.pow.Tensor_Tensor, z, torch.randn(5, dtype=torch.complex64), rtol=1e-4, atol=1e-5)
    check(aten.pow.Tensor_Scalar, z, 2)


def test_complex_division_neither_overflows_nor_meets_infinity():
    a = torch.tensor([1 + 1j, 1e30 + 0j, 1 + 0j, 0j, 3 - 4j], dtype=torch.complex64)
    b = torch.tensor([2 - 1j, 1e30 + 1e30j, complex(INF, 0), 2j, 0j], dtype=torch.complex64)
    check(aten.div.Tensor, a[:4].contiguous(), b[:4].contiguous())
    assert not torch.isfinite(torch.view_as_real(emulate.run(aten.div.Tensor, (a, b), {})[4])).any()


def test_lerp():
    x, y = torch.randn(5), torch.randn(5)
    check(aten.lerp.Scalar, x, y, 0.3)
    check(aten.lerp.Scalar, x, y, 1.0)
    check(aten.lerp.Tensor, x, y, torch.tensor([0.0, 0.2, 0.5, 0.9, 1.5]))
    z = torch.randn(5, dtype=torch.complex64)
    check(aten.lerp.Scalar, z, 2 * z, 0.25 + 1j)


def test_in_place_keeps_the_dtype():
    check(aten.add_.Tensor, torch.arange(4, dtype=torch.int16), 3)
    check(aten.mul_.Tensor, torch.randn(4).bfloat16(), torch.randn(4))
    check(aten.div.out, torch.arange(4), torch.arange(1, 5), out=torch.empty(4, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_false_times_what_is_not_finite_is_nan(dtype):
    check(aten.mul.Tensor, torch.tensor([True, False, False, False]), torch.tensor([NAN, NAN, INF, -2.0], dtype=dtype))
    check(aten.mul.Tensor, torch.tensor([True, False]), NAN)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8], ids=str)
def test_no_integers_are_divided(dtype):
    """The compiler must not see 0 / 0 in the constant that stands for them."""
    x = torch.empty(0, dtype=dtype)
    for op in (aten.fmod.Tensor, aten.remainder.Tensor, aten.floor_divide.default, aten.gcd.default):
        check(op, x, x)
    check(aten.div.Tensor_mode, x, x, rounding_mode="trunc")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int8])
@pytest.mark.parametrize("divisor", [-7, 3.0, 10, 0.1])
def test_a_quotient_is_rounded_once(dtype, divisor):
    x = torch.arange(1, 101).to(dtype).reshape(4, 25)
    there = x.to("neuron")
    by = torch.tensor(divisor)
    rows = torch.tensor([[3.0], [7.0], [10.0], [49.0]])
    assert torch.equal((there / divisor).cpu(), x / divisor)
    assert torch.equal((there / by.to("neuron")).cpu(), x / by)
    assert torch.equal((there / rows.to("neuron")).cpu(), x / rows)
    if dtype.is_floating_point:
        assert torch.equal(there.mean(1).cpu(), x.sum(1) / 25)
        compiled = torch.compile(lambda t: t / divisor, backend="neuron")
        assert torch.equal(compiled(there).cpu(), x / divisor)
