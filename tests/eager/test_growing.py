"""Calls whose sizes grow: exact executables at first, one for all sizes of a bucket from the fourth size on."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torch_neuronx.compiler import residents
from torch_neuronx.compiler.executables import compile_counters
from torch_neuronx.eager import growing
from torch_neuronx.lowering.padded.poison import POISON

D = "neuron"
SIZES = (5, 7, 9, 10, 11, 13, 14, 21, 22, 23)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(POISON, "1")
    residents.let_go()
    yield
    residents.let_go()


def _made() -> int:
    counted = compile_counters()
    return counted["compiled"] + counted["loaded"]


def _programs() -> int:
    return sum(len(f.programs) for f in growing._families.values())


def _same(got: Any, want: Any) -> None:
    if isinstance(want, (tuple, list)):
        for x, y in zip(got, want, strict=True):
            _same(x, y)
        return
    assert got.stride() == want.stride()
    assert got.untyped_storage().nbytes() == want.untyped_storage().nbytes()
    torch.testing.assert_close(got.cpu(), want, equal_nan=True)


R = torch.randn
CALLS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[torch.Tensor, ...]]]] = {
    "cat": (lambda x, y: torch.cat([x, y], -2), lambda n: (R(2, 3, n, 4), R(2, 3, 1, 4))),
    "cat of other strides": (
        lambda x, y: torch.cat([x, y.transpose(1, 2)], -2),
        lambda n: (R(2, 3, n, 4), R(2, 1, 3, 4)),
    ),
    "sum": (lambda x: x.sum(1), lambda n: (R(3, n, 4),)),
    "mean of all": (lambda x: x.mean(), lambda n: (R(3, n),)),
    "softmax": (lambda x: x.softmax(-1), lambda n: (R(3, 3, n),)),
    "softmax of other rows": (lambda x: x.softmax(-1), lambda n: (R(3, n, 3),)),
    "max": (lambda x: x.max(1), lambda n: (R(3, n),)),
    "min over int": (lambda x: x.amin(0), lambda n: (torch.randint(1, 9, (n, 3)),)),
    "add, broadcast": (lambda x, y: x + y, lambda n: (R(3, n, 1), R(n, 4))),
    "add, transposed": (lambda x: x.t() + 1, lambda n: (R(n, 3),)),
    "add, of a slice": (lambda x: x[:, 1:] * 2, lambda n: (R(3, n),)),
    "mul by a number": (lambda x: x[:, ::2] * 2.5, lambda n: (R(n, 6),)),
    "where": (lambda m, x: torch.where(m, x, -1.0), lambda n: (torch.rand(1, 1, 1, n) > 0.5, R(1, 2, 1, n))),
    "matmul": (lambda x, y: x @ y, lambda n: (R(2, n, 4), R(2, 4, 3))),
    "matmul over it": (lambda x, y: x @ y, lambda n: (R(2, 4, n), R(2, n, 3))),
    "linear": (lambda x, w: F.linear(x, w), lambda n: (R(1, n, 6), R(3, 6))),
    "layer norm": (lambda x: F.layer_norm(x, (6,)), lambda n: (R(2, n, 6),)),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        lambda n: (R(2, 4, 1, 8), R(2, 4, n, 8), R(2, 4, n, 8)),
    ),
    "attention, masked": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
        lambda n: (R(2, 4, 1, 8), R(2, 4, n, 8), R(2, 4, n, 8), R(2, 1, 1, n)),
    ),
    "embedding": (lambda w, i: F.embedding(i, w), lambda n: (R(12, 3), torch.randint(0, 12, (2, n)))),
    "cumsum": (lambda x: x.cumsum(1), lambda n: (R(2, n),)),
    "topk": (lambda x: x.topk(2, dim=1), lambda n: (R(3, n),)),
    "argmax": (lambda x: x.argmax(-1), lambda n: (R(3, n),)),
    "gather": (lambda x, i: x.gather(1, i), lambda n: (R(3, n), torch.randint(0, 5, (3, 2)))),
    "the last column": (lambda x: x[:, -1:].clone() + 1, lambda n: (torch.arange(3 * n).reshape(3, n),)),
    "is in": (
        lambda x, y: torch.isin(x[:, -1], y),
        lambda n: (torch.arange(3 * n).reshape(3, n), torch.tensor([4, 10, 20])),
    ),
    "expanded": (lambda x: x[:, None].expand(-1, 2, -1, -1).clone(), lambda n: (R(3, n, 4),)),
    "channels last": (lambda x: F.relu(x) + x.sum(), lambda n: (R(1, 3, n, n).to(memory_format=torch.channels_last),)),
    "both of two": (lambda x: x @ x.transpose(1, 2), lambda n: (R(2, n, 3),)),
    "bool": (lambda x: x.any(1) | x.all(1), lambda n: (torch.rand(3, n) > 0.9,)),
    "half": (lambda x: x.softmax(-1), lambda n: (R(3, 3, n).bfloat16(),)),
    "complex": (lambda x: x * x.conj().resolve_conj(), lambda n: (R(3, n, 3, dtype=torch.complex64)[..., :2],)),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_a_call_of_many_sizes_gives_what_the_cpu_gives(name: str) -> None:
    call, inputs = CALLS[name]
    torch.manual_seed(0)
    for n in SIZES:
        given = inputs(n)
        _same(call(*(x.to(D) for x in given)), call(*given))
    assert not [reason for reason in growing.refusals() if "Error" in reason]


@pytest.mark.parametrize("name", ["cat", "softmax", "attention", "add, broadcast", "the last column", "linear"])
def test_it_runs_in_one_program_a_bucket(name: str) -> None:
    call, inputs = CALLS[name]
    made = []
    for n in range(33, 48):
        before = _made()
        call(*(x.to(D) for x in inputs(n)))
        made.append(_made() - before)
    assert sum(made[3:]) <= 4 * max(made[:3])  # one for each operator, and one when the tensor itself was padded
    assert _programs() > 0
    assert growing.refusals() == {}


def test_a_cache_that_grows() -> None:
    """Each step takes the last one's result, which lies in an array of its bucket."""
    torch.manual_seed(0)
    here = R(2, 2, 1, 8)
    there = here.to(D)
    before = _made()
    for _ in range(90):
        row, query = R(2, 2, 1, 8), R(2, 4, 1, 8)
        here, there = torch.cat([here, row], -2), torch.cat([there, row.to(D)], -2)
        _same(there, here)
        want = F.scaled_dot_product_attention(query, here, here, enable_gqa=True)
        _same(F.scaled_dot_product_attention(query.to(D), there, there, enable_gqa=True), want)
    assert _made() - before < 60
    assert growing.refusals() == {}


def _in_bucket() -> torch.Tensor:
    """A (2, 11) tensor in an array of 32 elements, its elements from 0 to 21."""
    for n in (5, 7, 9, 10):
        x = torch.arange(2.0 * n).reshape(2, n).to(D)
        out = torch.cat([x, x[:, :1]], 1)
    assert _programs() == 1
    assert out.shape == (2, 11)
    return torch.cat([torch.arange(20.0).reshape(2, 10).to(D), torch.tensor([[20.0], [21.0]]).to(D)], 1)


WANT = torch.cat([torch.arange(20.0).reshape(2, 10), torch.tensor([[20.0], [21.0]])], 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.add_(1),
        lambda x: x[:, -1].fill_(7),
        lambda x: x.t().contiguous(),
        lambda x: x.view(-1)[::3],
        lambda x: x.resize_(2, 5),
        lambda x: x.resize_(5, 11).fill_(1),
        lambda x: torch.empty(0, device=x.device).set_(x.untyped_storage(), 3, (4,), (2,)),
        lambda x: x.as_strided((3, 3), (5, 1), 2),
        lambda x: x.view(torch.int32),
        lambda x: x.clone().copy_(x.flip(0)),
        lambda x: torch.stack([x, x]).sum(0),
        lambda x: x.index_put_((torch.tensor([0], device=x.device),), torch.tensor(3.0, device=x.device)),
        lambda x: x.cpu().numpy(),
        lambda x: x.to("cpu", torch.float64),
    ],
    ids=range(14),
)
def test_what_comes_out_is_a_tensor_like_any_other(change: Callable[[torch.Tensor], Any]) -> None:
    got, want = change(_in_bucket()), change(WANT.clone())
    if not isinstance(want, torch.Tensor):
        assert (got == want).all()
        return
    assert got.stride() == want.stride()
    assert torch.equal(got.cpu(), want)


def test_it_is_saved_at_its_own_size() -> None:
    file = io.BytesIO()
    torch.save(_in_bucket(), file)
    assert len(file.getvalue()) < 2000
    file.seek(0)
    assert torch.equal(torch.load(file, map_location="cpu"), WANT)


def test_gradients() -> None:
    torch.manual_seed(0)
    w = R(4, 4)
    for n in SIZES:
        x = R(2, n, 4)
        grads = []
        for device in ("cpu", D):
            xs, ws = (t.to(device, copy=True).requires_grad_() for t in (x, w))
            F.gelu(xs @ ws).softmax(1).square().sum().backward()
            grads.append([xs.grad, ws.grad])
        for got, want in zip(grads[1], grads[0], strict=True):
            torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [12, 17])
def test_errors_are_those_of_every_size(n: int) -> None:
    table = R(6, 3)
    for k in (5, 7, 9, 10):
        F.embedding(torch.zeros(2, k, dtype=torch.int64, device=D), table.to(D))
    with pytest.raises((IndexError, RuntimeError), match=r"index|indices|range"):
        F.embedding(torch.full((2, n), 6, device=D), table.to(D)).cpu()


def test_sizes_that_are_buckets_do_not_count() -> None:
    """The widths of layers: each is compiled for itself, at full speed."""
    for n in (8, 16, 32, 64, 128, 256, 48, 96):
        x = R(3, n)
        _same(x.to(D).softmax(-1), x.softmax(-1))
    assert _programs() == 0


def test_flattened_calls_count_when_they_grow_by_equal_steps() -> None:
    for n in (25, 49, 14, 11, 100, 51, 10):
        R(n).to(D).exp()
    assert _programs() == 0
    for n in range(17, 23):
        x = R(n)
        _same(x.to(D).exp(), x.exp())
    assert _programs() == 1


@pytest.mark.parametrize("how", ["variable", "deterministic"])
def test_switched_off(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "variable":
        monkeypatch.setenv(growing.SWITCH, "0")
    else:
        torch.use_deterministic_algorithms(True)
    try:
        for n in SIZES:
            R(3, 3, n).to(D).softmax(-1)
    finally:
        torch.use_deterministic_algorithms(False)
    assert _programs() == 0
    assert growing._families == {}


def test_what_was_seen_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for n in (5, 7, 9, 10):
        R(3, 3, n).to(D).softmax(-1)
    monkeypatch.setattr(growing, "MOST_FAMILIES", 20)
    for n in range(33, 47):
        R(n, 2).to(D).sum()
        R(3, n - 20).to(D).mean(0)
    assert len(growing._families) <= 24
    assert _programs() > 0  # those in use stay


def test_threads_that_grow_at_once() -> None:
    failed: list[BaseException] = []

    def grow(seed: int) -> None:
        try:
            generator = torch.Generator().manual_seed(seed)
            here = torch.randn(2, 3, 1, 4, generator=generator)
            there = here.to(D)
            for _ in range(30):
                row = torch.randn(2, 3, 1, 4, generator=generator)
                here, there = torch.cat([here, row], 2), torch.cat([there, row.to(D)], 2)
                assert torch.equal(there.cpu(), here)
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            failed.append(error)

    threads = [threading.Thread(target=grow, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failed == []
