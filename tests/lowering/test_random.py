"""The generator against published Philox vectors, its bookkeeping, and the moments of every distribution."""

from __future__ import annotations

import math

import emulate
import pytest
import torch
from emulate import check

from torch_neuronx.lowering import hlo, philox
from torch_neuronx.lowering.module import Argument, build_module
from torch_neuronx.lowering.spec import Result
from torch_neuronx.lowering.views import Layout
from torch_neuronx.runtime.protocol import ResultType

aten = torch.ops.aten
N = 20000


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1234)


def draw(op, *args, **kwargs):
    return emulate.run(op, args, kwargs)


def words(counter, key):
    """Four words of one block, through StableHLO."""
    given = torch.tensor([*counter, *key], dtype=torch.int64).to(torch.uint32)

    def body(_, values):
        parts = [hlo.slice_dim(values[0], 0, i, i + 1) for i in range(6)]
        return [hlo.concatenate(philox.philox(parts[:4], [hlo.reshape(p, ()) for p in parts[4:]]), 0)]

    built = build_module("philox", [Argument((6,), torch.uint32)], body)
    executable = emulate._runtime.compile(built.bytecode, 0, [ResultType(torch.uint32, 4)])
    array = emulate._runtime.put(given.numpy(), torch.uint32, 0)
    (out,) = executable.execute([array], with_tokens=True).consume_with_handlers(executable.handlers)
    return [int(w) for w in emulate._to_host(out, Result("fresh", torch.uint32, Layout((4,), (1,))))]


def test_philox_known_answers():
    """The vectors of Random123's kat_vectors for philox4x32-10."""
    ones = 0xFFFFFFFF
    assert words([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert words([ones] * 4, [ones] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]
    assert words(*pi) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def blocks(op, *args):
    call, _ = emulate.build_call(op, args, {})
    lowered, _ = emulate._program(call)
    return lowered.built.rng_blocks


def test_blocks_used_are_counted():
    assert blocks(aten.uniform_.default, torch.empty(9)) == 3
    assert blocks(aten.uniform_.default, torch.empty(8, dtype=torch.float64)) == 4
    assert blocks(aten.normal_.default, torch.empty(9)) == 3
    assert blocks(aten.normal_.default, torch.empty(2, dtype=torch.complex64)) == 2
    assert blocks(aten.uniform_.default, torch.empty(0)) == 0


def test_same_state_same_numbers_and_other_offsets_others(monkeypatch):
    first = draw(aten.uniform_.default, torch.empty(100))
    assert torch.equal(first, draw(aten.uniform_.default, torch.empty(100)))
    torch.manual_seed(99)
    assert not torch.equal(first, draw(aten.uniform_.default, torch.empty(100)))


def test_later_blocks_continue_the_sequence():
    """Offset k gives what offset 0 gives k blocks later."""

    def run(offset, count):
        def body(program, values):
            program.rng_seed, program.rng_offset = hlo.constant(7, torch.int64), hlo.constant(offset, torch.int64)
            return [hlo.concatenate(philox.Draw(count).words(), 0)]

        built = build_module("draw", [], body)
        executable = emulate._runtime.compile(built.bytecode, 0, [ResultType(torch.uint32, 4 * count)])
        (out,) = executable.execute([], with_tokens=True).consume_with_handlers(executable.handlers)
        host = emulate._to_host(out, Result("fresh", torch.uint32, Layout((4 * count,), (1,))))
        return torch.from_numpy(host.astype("int64")).reshape(4, count)

    assert torch.equal(run(5, 10), run(0, 15)[:, 5:])
    assert torch.equal(run(2**40, 4), run(2**40 - 1, 5)[:, 1:])


MOMENTS = {
    "uniform": (aten.uniform_.default, (-1.0, 3.0), 1.0, 4 / math.sqrt(12)),
    "normal": (aten.normal_.default, (2.0, 3.0), 2.0, 3.0),
    "exponential": (aten.exponential_.default, (2.0,), 0.5, 0.5),
    "geometric": (aten.geometric_.default, (0.25,), 4.0, math.sqrt(12)),
    "log_normal": (aten.log_normal_.default, (0.0, 0.5), math.exp(0.125), math.sqrt(math.expm1(0.25) * math.exp(0.25))),
    "bernoulli": (aten.bernoulli_.float, (0.3,), 0.3, math.sqrt(0.21)),
    "random": (aten.random_.to, (10,), 4.5, math.sqrt(99 / 12)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MOMENTS)
def test_moments(name, dtype):
    op, args, mean, std = MOMENTS[name]
    x = draw(op, torch.empty(N, dtype=dtype), *args).double()
    assert abs(x.mean() - mean) < 5 * std / math.sqrt(N) + (0.01 if dtype is torch.bfloat16 else 0)
    assert abs(x.std() / std - 1) < 0.06


def test_uniform_stays_below_its_end():
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        x = draw(aten.uniform_.default, torch.empty(N, dtype=dtype), 0.0, 1.0)
        assert x.min() >= 0
        assert x.max() < 1
    fine = draw(aten.uniform_.default, torch.empty(N))
    assert ((fine.double() * 2**24) % 1 == 0).all()
    assert ((fine.double() * 2**20) % 1 != 0).any()


def test_normal_tails():
    x = draw(aten.normal_.default, torch.empty(1 << 20))
    assert x.abs().max() > 4.5
    for bound in (1.0, 2.0, 3.0):
        share = (x.abs() > bound).double().mean()
        assert abs(share - math.erfc(bound / math.sqrt(2))) < 3e-3 / bound


def test_exponential_is_never_zero():
    assert (draw(aten.exponential_.default, torch.empty(N, dtype=torch.float16)) >= 0).all()
    assert (draw(aten.exponential_.default, torch.empty(N)) > 0).all()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.int8, torch.bool], ids=str)
def test_integer_ranges(dtype):
    x = draw(aten.random_.default, torch.empty(N, dtype=dtype))
    top = 1 if dtype is torch.bool else torch.iinfo(dtype).max
    assert x.min() >= 0
    assert x.double().max() > 0.99 * top
    if dtype is not torch.bool:
        x = draw(getattr(aten.random_, "from"), torch.empty(N, dtype=dtype), 3, 9)
        assert sorted(set(x.tolist())) == [3, 4, 5, 6, 7, 8]


def test_wide_integer_ranges():
    x = draw(getattr(aten.random_, "from"), torch.empty(N, dtype=torch.int64), -(2**62), 2**62)
    assert abs(x.double().mean()) < 5 * 2**63 / math.sqrt(12 * N)
    assert x.min() < -(2**61)


def test_permutation():
    out = draw(aten.randperm.generator_out, 1000, generator=None, out=torch.empty(1000, dtype=torch.int64))
    assert torch.equal(out.sort()[0], torch.arange(1000))
    assert not torch.equal(out, torch.arange(1000))


def test_dropout():
    x = torch.ones(N)
    out, mask = draw(aten.native_dropout.default, x, 0.25, True)
    assert abs(mask.double().mean() - 0.75) < 0.02
    assert torch.equal(out, mask * (1 / 0.75))
    check(aten.native_dropout_backward.default, x, mask, 4 / 3)
    out, mask = draw(aten.native_dropout.default, x, 1.0, True)
    assert not out.any()
    assert not mask.any()
    out, mask = draw(aten.native_dropout.default, x, 0.5, False)
    assert torch.equal(out, x)
    assert mask.all()


def test_bad_parameters_are_reported():
    for op, args in (
        (aten.bernoulli_.float, (1.5,)),
        (aten.normal_.default, (0.0, -1.0)),
        (aten.exponential_.default, (-1.0,)),
        (aten.uniform_.default, (2.0, 1.0)),
    ):
        with pytest.raises(RuntimeError, match="expects"):
            emulate.run(op, (torch.empty(4), *args), {})


def test_rrelu_keeps_its_slopes():
    x, noise = torch.randn(N), torch.empty(N)
    out = draw(aten.rrelu_with_noise.default, x, noise, 0.1, 0.3, True)
    assert torch.allclose(out, x * noise)
    slopes = noise[x <= 0]
    assert slopes.min() >= 0.1
    assert slopes.max() <= 0.3
    assert (noise[x > 0] == 1).all()
    check(aten.rrelu_with_noise.default, x, torch.empty(N), 0.1, 0.3, False, values=False)
