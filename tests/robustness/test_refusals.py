"""Calls that CPU torch refuses are refused on the device, with the same class of error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

D = "neuron"
ONES = torch.ones


def _zero_strided(device: str) -> torch.Tensor:
    return torch.zeros(1, device=device).expand(3)


REFUSED: dict[str, Callable[[str], object]] = {
    "mm of two dtypes": lambda d: ONES(2, 3, device=d) @ ONES(3, 3, device=d).double(),
    "bmm of two dtypes": lambda d: torch.bmm(ONES(1, 2, 3, device=d), ONES(1, 3, 2, device=d).double()),
    "addmm of two dtypes": lambda d: torch.addmm(
        ONES(2, 2, device=d), ONES(2, 2, device=d).half(), ONES(2, 2, device=d).half()
    ),
    "convolution of two dtypes": lambda d: torch.nn.functional.conv2d(
        ONES(1, 3, 5, 5, device=d).double(), ONES(2, 3, 3, 3, device=d)
    ),
    "softmax over no dimension": lambda d: ONES(2, 3, device=d).softmax(3),
    "log_softmax over no dimension": lambda d: ONES(2, 3, device=d).log_softmax(-3),
    **{
        f"{name} of a dtype that out= has not": lambda d, name=name: getattr(torch, name)(
            ONES(2, 3, device=d), dim=0, dtype=torch.float64, out=ONES(*((2, 3) if "cum" in name else (3,)), device=d)
        )
        for name in ("sum", "prod", "mean", "nansum", "cumsum", "cumprod")
    },
    "softmax into another dtype": lambda d: torch.softmax(ONES(2, 3, device=d), 0, out=ONES(2, 3, device=d).double()),
    "norm into another dtype": lambda d: torch.norm(ONES(2, 3, device=d), dim=0, out=ONES(3, device=d).double()),
    "clamp of complex numbers, whatever the shapes": lambda d: torch.clamp(
        ONES(4, dtype=torch.complex64, device=d), ONES(0, device=d), ONES(3, device=d)
    ),
    "max of nothing": lambda d: ONES(0, device=d).max(),
    "min of nothing": lambda d: ONES(2, 0, device=d).min(),
    "max along nothing": lambda d: ONES(0, 3, device=d).max(0),
    "min along nothing": lambda d: ONES(0, 3, device=d).min(-2),
    "a float as an index": lambda d: ONES(3, device=d)[torch.tensor([1.0], device=d)],
    "index_put of another dtype": lambda d: ONES(3, device=d).index_put(
        (torch.tensor([0], device=d),), ONES(1, dtype=torch.float64, device=d)
    ),
    "index_add of another dtype": lambda d: ONES(3, device=d).index_add(
        0, torch.tensor([0], device=d), ONES(1, dtype=torch.float64, device=d)
    ),
    "lerp to another dtype": lambda d: ONES(3, device=d).lerp(ONES(3, dtype=torch.float64, device=d), 0.5),
    "a mask of floats": lambda d: ONES(3, device=d).masked_fill(ONES(3, device=d), 1),
    "an empty range of integers": lambda d: torch.randint(5, 3, (2,), device=d),
    "random_ of an empty range": lambda d: torch.zeros(2, device=d).random_(5, 3),
    "integer to a negative power": lambda d: torch.arange(3, device=d) ** -1,
    "add_ to a stride of 0": lambda d: _zero_strided(d).add_(1),
    "copy_ to a stride of 0": lambda d: _zero_strided(d).copy_(ONES(3, device=d)),
    "uniform_ to a stride of 0": lambda d: _zero_strided(d).uniform_(),
    "clamp_ of a stride of 0": lambda d: _zero_strided(d).clamp_(1),
    "scatter_ to a stride of 0": lambda d: _zero_strided(d).scatter_(0, torch.tensor([0], device=d), 1.0),
    "out= with a stride of 0": lambda d: torch.add(ONES(3, device=d), 1, out=_zero_strided(d)),
    "a complex number into floats in place": lambda d: ONES(3, device=d).add_(1j),
    "a complex number into floats of a list": lambda d: torch._foreach_add_([ONES(3, device=d)], 1j),
    "a complex factor of floats": lambda d: torch.addcmul(
        ONES(3, device=d), ONES(3, device=d), ONES(3, device=d), value=1j
    ),
    "a complex weight of floats": lambda d: torch.lerp(ONES(3, device=d), ONES(3, device=d), 1j),
    "floats into out= of integers": lambda d: torch.exp(
        ONES(3, device=d), out=torch.ones(3, dtype=torch.int64, device=d)
    ),
    "foreach with a stride of 0": lambda d: torch._foreach_add_([_zero_strided(d)], 1),
    "add_ of a larger tensor": lambda d: ONES(4, device=d).add_(ONES(3, 4, device=d)),
    "hypot_ of a larger tensor": lambda d: ONES(4, device=d).hypot_(ONES(3, 4, device=d)),
    "mul_ of integers by a fraction": lambda d: torch.arange(3, device=d).mul_(2.0),
    "mul_ of no integers by a fraction": lambda d: torch.zeros(3, 0, dtype=torch.int64, device=d).mul_(2.0),
    "div_ of integers": lambda d: torch.arange(3, device=d).div_(2),
    "add_ of a complex number": lambda d: ONES(3, device=d).add_(1j),
    "exp into integers": lambda d: torch.sigmoid(ONES(3, device=d), out=torch.zeros(3, dtype=torch.int64, device=d)),
    "neg into another dtype": lambda d: torch.neg(ONES(3, device=d), out=torch.zeros(3, dtype=torch.float64, device=d)),
    "out= an input that is too small": lambda d: torch.add(x := ONES(3, device=d), ONES(2, 3, device=d), out=x),
    "copy_ from an overlapping part": lambda d: (x := torch.arange(6.0, device=d))[1:].copy_(x[:-1]),
    "add_ of an overlapping part": lambda d: (x := torch.arange(6.0, device=d))[1:].add_(x[:-1]),
    "out= overlaps a part": lambda d: torch.add((x := torch.arange(6.0, device=d))[1:], 1, out=x[:-1]),
    "cat into what it reads": lambda d: torch.cat([x := ONES(2, device=d), x], out=x),
    "gather into what it reads": lambda d: torch.gather(
        x := ONES(2, device=d), 0, torch.tensor([0, 1], device=d), out=x
    ),
    "index_add_ of itself": lambda d: (x := ONES(2, device=d)).index_add_(0, torch.tensor([0, 1], device=d), x),
    "scatter_add_ of itself": lambda d: (x := ONES(2, device=d)).scatter_add_(0, torch.tensor([0, 1], device=d), x),
    "index_put_ of itself": lambda d: (x := ONES(2, device=d)).index_put_((torch.tensor([0, 1], device=d),), x),
    "copy_ of nothing to nothing else": lambda d: torch.zeros(0, 3, device=d).copy_(torch.zeros(0, device=d)),
    "copy_ from the host of nothing else": lambda d: torch.zeros(0, 3, device=d).copy_(torch.zeros(2, 0)),
    "an int16 index": lambda d: ONES(3, device=d)[torch.tensor([1], dtype=torch.int16, device=d)],
    "an int16 index behind a slice": lambda d: ONES(3, 3, device=d)[
        ::2, torch.tensor([1], dtype=torch.int16, device=d), None
    ],
    "where of a float": lambda d: torch.where(ONES(3, device=d), 1.0, 2.0),
    "a difference of truth values": lambda d: ONES(3, device=d) - True,
    "a truth value as alpha": lambda d: torch.add(ONES(3, device=d), 1, alpha=True),
    "a fractional alpha for integers": lambda d: torch.add(torch.arange(3, device=d), 1, alpha=0.5),
    "relu of truth values": lambda d: torch.tensor([True], device=d).relu(),
    "addcdiv of integers": lambda d: torch.addcdiv(x := torch.arange(1, 4, device=d), x, x),
    "heaviside of two dtypes": lambda d: torch.heaviside(ONES(3, device=d), torch.arange(3, device=d)),
    "amax of nothing": lambda d: ONES(2, 0, device=d).amax(),
    "amax along nothing": lambda d: ONES(2, 0, device=d).amax(1),
    "argmin of nothing": lambda d: ONES(0, device=d).argmin(),
    "mode along nothing": lambda d: ONES(0, device=d).mode(0),
    "an index into an extent of 0": lambda d: ONES(0, 3, device=d).index_put(
        (torch.tensor([0], device=d),), ONES(1, dtype=torch.float64, device=d)
    ),
    "cat of numbers": lambda d: torch.cat([torch.tensor(1.0, device=d)] * 2),
    "cat along no dimension": lambda d: torch.cat([ONES(2, 3, 2, device=d), ONES(2, 3, device=d)], -5),
    "stack of two shapes": lambda d: torch.stack([ONES(4, 6, device=d), ONES(4, device=d)], 2),
    "index_copy of no elements of another dtype": lambda d: ONES(2, 0, 1, device=d).index_copy_(
        2, torch.tensor([0], device=d), torch.ones(2, 0, 1, dtype=torch.int32, device=d)
    ),
    "a dimension of a number to sort by": lambda d: torch.tensor(1.0, device=d).argsort(dim=-5, stable=True),
    "no place in a number": lambda d: torch.tensor(1.0, device=d).index_select(0, torch.arange(0, device=d)),
    "a bool to a power of uint16": lambda d: torch.pow(
        torch.tensor([True], device=d), torch.tensor(2, dtype=torch.uint16, device=d)
    ),
    "a logical op of uint64 and bool": lambda d: torch.ones(2, dtype=torch.uint64, device=d).logical_and_(
        torch.tensor([True], device=d)
    ),
    "lerp of integers of two shapes": lambda d: torch.lerp(
        torch.arange(2, device=d), torch.arange(3, device=d), torch.arange(2, device=d)
    ),
    "amax along nothing into another dtype": lambda d: torch.amax(
        torch.arange(0, device=d), 0, out=torch.ones(2, device=d)
    ),
    "hardtanh of unsigned integers between negative limits": lambda d: torch.nn.functional.hardtanh(
        _bytes(d), -2, 3
    ).cpu(),
    "hardtanh of truth values": lambda d: torch.nn.functional.hardtanh(_bytes(d).bool(), 0, 1),
    "polar of integers": lambda d: torch.polar(torch.arange(3, device=d), torch.arange(3, device=d)),
    "unique along no dimension": lambda d: ONES(3, 2, device=d).unique(dim=2),
    "unique_consecutive along no dimension": lambda d: ONES(3, 2, device=d).unique_consecutive(dim=-3),
    "bincount of floats": lambda d: torch.bincount(ONES(3, device=d)),
    "bincount of truth values": lambda d: torch.bincount(ONES(3, device=d) > 0),
    "an output padding as large as the stride": lambda d: torch.nn.functional.conv_transpose2d(
        ONES(1, 1, 3, 3, device=d), ONES(1, 1, 2, 2, device=d), output_padding=1
    ),
    "random integers past their dtype": lambda d: torch.randint(0, 300, (2,), dtype=torch.uint8, device=d),
    "random integers below their dtype": lambda d: torch.randint(-1, 3, (2,), dtype=torch.uint8, device=d),
    "random integers like ones that hold less": lambda d: torch.randint_like(_bytes(d), 257),
    "random_ past the dtype": lambda d: _shorts(d).random_(70_000),
    "random_ from below the dtype": lambda d: _bytes(d).random_(-1, 3),
    "random integers past float16": lambda d: torch.randint(70_000, (2,), dtype=torch.half, device=d),
    "random integers as complex numbers": lambda d: torch.randint(3, (2,), dtype=torch.complex64, device=d),
    "a permutation past its dtype": lambda d: torch.randperm(257, dtype=torch.uint8, device=d),
    "a permutation past float16": lambda d: torch.randperm(2050, dtype=torch.half, device=d),
    "a permutation of truth values": lambda d: torch.randperm(2, dtype=torch.bool, device=d),
    "smooth_l1_loss with a negative beta": lambda d: torch.nn.functional.smooth_l1_loss(
        ONES(2, device=d), ONES(2, device=d), beta=-1.0
    ).item(),
    "huber_loss without a delta": lambda d: torch.nn.functional.huber_loss(
        ONES(2, device=d), ONES(2, device=d), delta=0.0
    ).item(),
    "a sorter that points nowhere": lambda d: torch.searchsorted(
        ONES(2, device=d), ONES(1, device=d), sorter=torch.tensor([0, 7], device=d)
    ).tolist(),
    "a bag with an index out of range": lambda d: torch.nn.functional.embedding_bag(
        torch.tensor([1, 9], device=d), ONES(5, 2, device=d), torch.tensor([0], device=d), mode="sum"
    ).tolist(),
    "a Poisson rate of NaN": lambda d: torch.poisson(torch.tensor([float("nan")], device=d)).tolist(),
    "cholesky of NaN": lambda d: torch.linalg.cholesky(torch.full((3, 3), float("nan"), device=d)).tolist(),
    "cholesky_inverse of a singular factor": lambda d: torch.cholesky_inverse(torch.zeros(3, 3, device=d)).tolist(),
}


_WARNS = "ignore:An output with one or more elements was resized"


@pytest.mark.filterwarnings(_WARNS)
@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_as_on_the_cpu(name: str) -> None:
    call = REFUSED[name]
    with pytest.raises((RuntimeError, IndexError)) as cpu:
        call("cpu")
    with pytest.raises(cpu.type) as device:
        call(D)
    assert device.type is cpu.type


@pytest.mark.parametrize(("dim", "shape"), [(0, (3,)), (0, (3, 2)), (1, (2, 3)), (1, (2, 3, 2)), (2, (2, 2, 3))])
def test_a_place_that_is_not_there_is_refused_as_on_the_cpu(dim: int, shape: tuple[int, ...]) -> None:
    with pytest.raises((RuntimeError, IndexError)) as cpu:
        ONES(shape).index_select(dim, torch.tensor([3]))
    with pytest.raises(cpu.type) as device:
        ONES(shape, device=D).index_select(dim, torch.tensor([3], device=D)).cpu()
    assert device.type is cpu.type


REFUSED_OUT: dict[str, tuple[torch.dtype, Callable[[torch.Tensor, torch.Tensor], object]]] = {
    "cat": (torch.int16, lambda x, out: torch.cat([x, x], out=out)),
    "clamp": (torch.bfloat16, lambda x, out: torch.clamp(x, None, 1.0, out=out)),
    "frac": (torch.float16, lambda x, out: torch.frac(x, out=out)),
    "all": (torch.int8, lambda x, out: torch.all(x, 0, keepdim=True, out=out)),
    "add": (torch.int64, lambda x, out: torch.add(x, x, out=out)),
}


@pytest.mark.parametrize("name", REFUSED_OUT)
def test_a_refused_out_argument_keeps_its_shape(name: str) -> None:
    dtype, call = REFUSED_OUT[name]
    out = torch.ones(5, dtype=dtype, device=D)
    with pytest.raises((RuntimeError, TypeError)):
        call(ONES(3, 2, device=D), out)
    assert (out.shape, out.tolist()) == ((5,), [1] * 5)


ALLOWED: dict[str, Callable[[str], torch.Tensor]] = {
    "fill_": lambda d: _zero_strided(d).fill_(2),
    "zero_": lambda d: _zero_strided(d).zero_(),
    "max along something": lambda d: ONES(0, 3, device=d).max(1).values,
    "integer to a power": lambda d: torch.arange(3, device=d) ** 3,
    "a dimension of a 0-d tensor": lambda d: torch.tensor(2.0, device=d).softmax(-1),
    "a number that fits the result": lambda d: torch.addcmul(
        torch.arange(2, dtype=torch.int32, device=d), ONES(2, device=d), ONES(2, device=d), value=1e30
    ),
    "an alpha that fits the result": lambda d: torch.add(
        torch.arange(2, dtype=torch.int8, device=d), torch.arange(2, dtype=torch.int32, device=d), alpha=300
    ),
    "every integer of a dtype": lambda d: torch.randint(-128, 128, (99,), dtype=torch.int8, device=d).isnan(),
    "a permutation that fills its dtype": lambda d: torch.randperm(256, dtype=torch.uint8, device=d).sort()[0],
    "a permutation that fills float16": lambda d: torch.randperm(2049, dtype=torch.half, device=d).sort()[0],
    "an output padding below the dilation": lambda d: torch.nn.functional.conv_transpose2d(
        ONES(1, 1, 3, 3, device=d), ONES(1, 1, 2, 2, device=d), output_padding=1, dilation=2
    ),
    "draws without replacement of weight 0": lambda d: torch.multinomial(torch.tensor([0.0, 1.0], device=d), 2),
    "smooth_l1_loss with beta 0": lambda d: torch.nn.functional.smooth_l1_loss(
        ONES(2, device=d), torch.zeros(2, device=d), beta=0.0
    ),
    "float to a negative power": lambda d: torch.arange(1.0, 4.0, device=d) ** -1,
    "hardtanh of unsigned integers": lambda d: torch.nn.functional.hardtanh(_bytes(d), 0, 6),
    "clamp_ by tensors of another integer dtype": lambda d: _shorts(d).clamp_(_ints(d, -1), _ints(d, 300)),
    "clamp_min_ by a tensor of another integer dtype": lambda d: _shorts(d).clamp_min_(_ints(d, 70_000)),
    "clamp_max into another integer dtype": lambda d: torch.clamp_max(
        _shorts(d), _shorts(d), out=torch.empty(3, dtype=torch.int32, device=d)
    ),
}


def _bytes(device: str) -> torch.Tensor:
    return torch.tensor([1, 0, 9], dtype=torch.uint8, device=device)


def _shorts(device: str) -> torch.Tensor:
    return torch.tensor([5, -7, 400], dtype=torch.int16, device=device)


def _ints(device: str, bound: int) -> torch.Tensor:
    return torch.full((3,), bound, dtype=torch.int32, device=device)


@pytest.mark.parametrize("name", ALLOWED)
def test_is_allowed_as_on_the_cpu(name: str) -> None:
    torch.testing.assert_close(ALLOWED[name](D).cpu(), ALLOWED[name]("cpu"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_float8_saturates(dtype: torch.dtype) -> None:
    values = [447.0, 465.0, 480.0, 1e30, -500.0, float("inf"), float("-inf"), float("nan"), 0.1, -0.0]
    x = torch.tensor(values, dtype=dtype)
    got = x.to(D).to(torch.float8_e4m3fn).cpu().float()
    torch.testing.assert_close(got, x.to(torch.float8_e4m3fn).float(), equal_nan=True, rtol=0, atol=0)


def test_a_number_above_int64() -> None:
    got = torch.full((2,), 2**63 + 5, dtype=torch.uint64, device=D)
    assert got.cpu().tolist() == [2**63 + 5] * 2


def test_nothing_to_index():
    index = torch.tensor([0], device="neuron")
    with pytest.raises(IndexError, match="out of bounds for dimension with size 0"):
        torch.ones(0, 2, device="neuron")[index]
    assert torch.ones(0, 2, device="neuron")[index[:0]].shape == (0, 2)
