"""debug.cpu_random() and TORCH_NEURONX_RNG=cpu: the numbers are the CPU's, whichever op draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torch_neuronx
from torch_neuronx import debug
from torch_neuronx.eager.cpu_random import REASON


@pytest.fixture(autouse=True)
def cpu_numbers() -> Iterator[None]:
    with debug.cpu_random():
        yield


def same(run: Callable[[str], Tensor], seed: int = 5) -> Tensor:
    """Runs on both devices with one seed, and returns the numbers both gave, bit for bit."""
    torch.manual_seed(seed)
    want = run("cpu")
    torch.manual_seed(seed)
    got = run("neuron")
    assert got.device.type == "neuron"
    assert (got.dtype, got.stride()) == (want.dtype, want.stride())
    assert torch.equal(got.cpu(), want)
    return want


SHAPE = (5, 40)
DRAWS: dict[str, Callable[[str], Tensor]] = {
    "rand": lambda d: torch.rand(SHAPE, device=d),
    "randn": lambda d: torch.randn(SHAPE, device=d, dtype=torch.bfloat16),
    "randn-complex": lambda d: torch.randn(SHAPE, device=d, dtype=torch.complex64),
    "randint": lambda d: torch.randint(-3, 9, SHAPE, device=d),
    "randperm": lambda d: torch.randperm(100, device=d),
    "rand_like": lambda d: torch.rand_like(torch.empty(4, 6, device=d).t()),
    "random_": lambda d: torch.empty(SHAPE, dtype=torch.int32, device=d).random_(),
    "normal": lambda d: torch.normal(torch.arange(20.0, device=d), 2.0),
    "normal-out": lambda d: torch.normal(1.0, torch.arange(20.0, device=d), out=torch.empty(20, device=d)),
    "cauchy_": lambda d: torch.empty(SHAPE, device=d).cauchy_(),
    "exponential_": lambda d: torch.empty(SHAPE, device=d).exponential_(2.0),
    "geometric_": lambda d: torch.empty(SHAPE, device=d).geometric_(0.3),
    "log_normal_": lambda d: torch.empty(SHAPE, device=d).log_normal_(),
    "bernoulli": lambda d: torch.bernoulli(torch.full(SHAPE, 0.3, device=d)),
    "bernoulli_": lambda d: torch.empty(SHAPE, device=d).bernoulli_(torch.full((40,), 0.3, device=d)),
    "multinomial": lambda d: torch.multinomial(torch.arange(1.0, 9.0, device=d), 4),
    "multinomial-again": lambda d: torch.multinomial(torch.ones(3, 4, device=d), 9, replacement=True),
    "poisson": lambda d: torch.poisson(torch.full(SHAPE, 4.0, device=d)),
    "binomial": lambda d: torch.binomial(torch.full(SHAPE, 9.0, device=d), torch.full(SHAPE, 0.4, device=d)),
    "gamma": lambda d: torch._standard_gamma(torch.full(SHAPE, 2.5, device=d)),
    "dirichlet": lambda d: torch._sample_dirichlet(torch.full(SHAPE, 2.5, device=d)),
    "dropout": lambda d: F.dropout(torch.ones(SHAPE, device=d), 0.1),
    "dropout-in-place": lambda d: F.dropout(torch.ones(SHAPE, device=d), 0.1, inplace=True),
    "dropout-inference": lambda d: torch.inference_mode()(F.dropout)(torch.ones(SHAPE, device=d), 0.1),
    "native_dropout": lambda d: torch.native_dropout(torch.ones(SHAPE, device=d), 0.1, True)[0],
    "dropout2d": lambda d: F.dropout2d(torch.ones(2, 9, 3, 3, device=d), 0.4),
    "alpha_dropout": lambda d: F.feature_alpha_dropout(torch.ones(2, 9, 3, device=d), 0.4, True),
    "rrelu": lambda d: F.rrelu(torch.linspace(-2, 2, 50, device=d), training=True),
    "gumbel_softmax": lambda d: F.gumbel_softmax(torch.zeros(6, 6, device=d), hard=True).argmax(1),
    "fractional": lambda d: F.fractional_max_pool2d(torch.arange(144.0, device=d).view(1, 1, 12, 12), 2, (5, 7)),
    "trunc_normal_": lambda d: nn.init.trunc_normal_(torch.empty(SHAPE, device=d), std=1e9).sign(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws(name: str) -> None:
    values = same(DRAWS[name])
    assert len(set(values.flatten().tolist())) > 1


@pytest.mark.parametrize("place", [lambda x: x[:, ::2], lambda x: x.t(), lambda x: x[1:, 3:9], lambda x: x[:, 1]])
def test_views_are_drawn_in_the_order_of_their_strides(place: Callable[[Tensor], Tensor]) -> None:
    def run(device: str) -> Tensor:
        x = torch.zeros(6, 20, device=device)
        place(x).normal_()
        return x

    same(run)


def test_sequences_of_draws_stay_together() -> None:
    same(lambda d: torch.cat([torch.rand(3, device=d), torch.randn(17, device=d), F.dropout(torch.ones(9, device=d))]))


def attention(device: str, **options: object) -> Tensor:
    q, k, v = (torch.linspace(-1, 1, 2 * 3 * 5 * 4, device=device).view(2, 3, 5, 4) * i for i in (1, 2, 3))
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.4, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_attention_drops_what_the_cpu_drops(options: dict[str, object]) -> None:
    torch.manual_seed(1)
    want = attention("cpu", **options)
    torch.manual_seed(1)
    torch.testing.assert_close(attention("neuron", **options).cpu(), want, rtol=1e-5, atol=1e-6)


def test_fused_attention_without_the_cpu_refuses() -> None:
    q = torch.ones(1, 1, 4, 4, device="neuron")
    fused = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    assert fused(q, q, q, None, 0.0)[0].shape == q.shape
    with pytest.raises(RuntimeError, match="CPU torch has not got"):
        fused(q, q, q, None, 0.5)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 12, 2, dropout=0.3, batch_first=True)
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).mean(1))


def mlp() -> nn.Module:
    hidden = nn.Sequential(nn.Linear(8, 32), nn.RReLU(), nn.Dropout(0.3), nn.Linear(32, 16), nn.AlphaDropout(0.1))
    return nn.Sequential(nn.Flatten(), nn.Unflatten(1, (5, 8)), hidden, nn.Flatten(), nn.Linear(80, 4))


def train(build: Callable[[], nn.Module], device: str, steps: int = 20) -> Tensor:
    torch.manual_seed(0)
    model = build().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        x, y = torch.randn(6, 5, 8, device=device), torch.randint(4, (6,), device=device)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu()


@pytest.mark.parametrize("build", [mlp, Encoder, Recurrent])
@pytest.mark.usefixtures("one_thread")
def test_training_with_dropout_equals_the_cpu_step_by_step(build: Callable[[], nn.Module]) -> None:
    torch_neuronx.clear_op_tracking()
    with torch_neuronx.no_fallback():  # what the mode asks for is allowed, and nothing else is needed
        got = train(build, "neuron")
    assert {r.reason for r in debug.fallback_report()} == {REASON}
    torch.testing.assert_close(got, train(build, "cpu"), rtol=1e-5, atol=1e-6)


def test_checkpointing_draws_the_same_again() -> None:
    def run(device: str) -> Tensor:
        x = torch.ones(30, device=device, requires_grad=True)
        y = torch.utils.checkpoint.checkpoint(lambda t: F.dropout(t, 0.5) * t, x, use_reentrant=False)
        y.sum().backward()
        assert x.grad is not None
        return x.grad

    same(run)


def test_generators_have_a_twin_with_their_seed() -> None:
    own, twin = torch.Generator("neuron").manual_seed(11), torch.Generator().manual_seed(11)
    for _ in range(2):
        got = torch.rand(7, generator=own, device="neuron")
        assert torch.equal(got.cpu(), torch.rand(7, generator=twin))
    got = torch.rand(3, generator=own.manual_seed(12), device="neuron")
    assert torch.equal(got.cpu(), torch.rand(3, generator=twin.manual_seed(12)))


def test_a_twin_is_part_of_the_state() -> None:
    generator = torch.Generator("neuron").manual_seed(11)
    fresh = generator.get_state()
    assert fresh.numel() == 16
    first = torch.rand(5, generator=generator, device="neuron")
    between, copy = generator.get_state(), generator.clone_state()
    second = torch.rand(5, generator=generator, device="neuron")
    assert torch.equal(torch.rand(5, generator=copy, device="neuron"), second)
    generator.set_state(between)
    assert torch.equal(torch.rand(5, generator=generator, device="neuron"), second)
    generator.set_state(fresh)
    assert torch.equal(torch.rand(5, generator=generator, device="neuron"), first)
    with pytest.raises(RuntimeError, match="wrong size"):
        generator.set_state(between[:-1])
    with pytest.raises(RuntimeError, match="no offset to move to"):
        generator.set_offset(4)


def test_the_default_generator_stands_for_the_cpus() -> None:
    generator = torch.neuron.default_generators[0]
    same(lambda d: torch.rand(4, device=d, generator=generator if d == "neuron" else None))
    with pytest.raises(RuntimeError, match="Expected a 'neuron' device type for generator"):
        torch.rand(4, device="neuron", generator=torch.Generator())


def test_draws_are_counted_with_their_reason() -> None:
    torch_neuronx.clear_op_tracking()
    torch.rand(3, device="neuron")
    (record,) = debug.fallback_report()
    assert (record.op, record.reason, record.count) == ("aten::uniform_", REASON, 1)
    assert "test_cpu_random" in next(iter(record.call_sites))


def test_errors_are_the_cpus() -> None:
    with pytest.raises(RuntimeError, match=r"normal expects std >= 0\.0"):
        torch.empty(4, device="neuron").normal_(0, -1)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.zeros(1, device="neuron").expand(3).normal_()


def test_the_mode_ends_with_its_last_holder() -> None:
    with debug.cpu_random():
        pass
    same(lambda d: torch.rand(4, device=d))


def test_the_variable(python: Callable[..., str]) -> None:
    code = """
import torch, torch_neuronx
def draw(device):
    torch.manual_seed(3)
    return torch.randn(4, device=device).tolist()
print("same", draw("cpu") == draw("neuron"))
"""
    assert "same True" in python(code, TORCH_NEURONX_RNG="cpu")
    assert "TORCH_NEURONX_RNG='mt19937' is not a source of random numbers" in python(
        code, check=False, TORCH_NEURONX_RNG="mt19937"
    )
