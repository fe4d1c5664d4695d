"""torch.use_deterministic_algorithms: who refuses, who warns, and what memory nobody wrote holds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from torch_neuronx.eager import deterministic
from torch_neuronx.runtime.targets import runtime

D = "neuron"
F = torch.nn.functional


@pytest.fixture(autouse=True)
def deterministic_mode() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True


def _put(d: str, accumulate: bool = False) -> torch.Tensor:
    index = torch.tensor([0, 1], device=d)
    return torch.zeros(3, device=d).put_(index, torch.ones(2, device=d), accumulate=accumulate)


def _unpool(d: str, dims: int) -> torch.Tensor:
    unpool = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[dims - 1]
    return unpool(
        torch.ones(1, 1, *[1] * dims, device=d), torch.zeros(1, 1, *[1] * dims, dtype=torch.int64, device=d), 2
    )


REFUSED: dict[str, Callable[[str], Any]] = {
    "put_": _put,
    "put": lambda d: torch.zeros(3, device=d).put(torch.tensor([0], device=d), torch.ones(1, device=d)),
    "max_unpool1d": lambda d: _unpool(d, 1),
    "max_unpool2d": lambda d: _unpool(d, 2),
    "max_unpool3d": lambda d: _unpool(d, 3),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_each_time_in_the_cpus_words(name: str) -> None:
    with pytest.raises(RuntimeError) as want:
        REFUSED[name]("cpu")
    for _ in range(2):
        with pytest.raises(RuntimeError) as got:
            REFUSED[name](D)
        assert str(got.value) == str(want.value)
    torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(REFUSED[name](D).cpu(), REFUSED[name]("cpu"))
    torch.use_deterministic_algorithms(True)
    with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
        REFUSED[name](D)


@pytest.mark.parametrize("name", REFUSED)
def test_warned_of(name: str) -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match=r"does not have a deterministic implementation.*warn_only=True"):
        got = REFUSED[name](D)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(got.cpu(), REFUSED[name]("cpu"))


def _gradient(function: Callable[[torch.Tensor], torch.Tensor], *shape: int) -> Callable[[str], torch.Tensor]:
    def run(d: str) -> torch.Tensor:
        x = torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape).to(d).requires_grad_()
        return torch.autograd.grad(function(x).sum(), x)[0]

    return run


def _zeros(d: str) -> torch.Tensor:
    return torch.tensor([0, 0], device=d)


# What CUDA refuses, and what it has a slower way for: the host target's order is fixed.
TAKEN: dict[str, Callable[[str], Any]] = {
    "put_ that adds": lambda d: _put(d, accumulate=True),
    "index_put of one place": lambda d: torch.zeros(3, device=d).index_put_((_zeros(d),), torch.arange(2.0, device=d)),
    "index_put that adds": lambda d: torch.zeros(3, device=d).index_put_((_zeros(d),), torch.ones(2, device=d), True),
    "index_copy": lambda d: torch.zeros(3, device=d).index_copy(0, _zeros(d), torch.arange(2.0, device=d)),
    "index_add": lambda d: torch.zeros(3, device=d).index_add(0, _zeros(d), torch.arange(2.0, device=d)),
    "scatter": lambda d: torch.zeros(3, device=d).scatter(0, _zeros(d), torch.arange(2.0, device=d)),
    "scatter_add": lambda d: torch.zeros(3, device=d).scatter_add(0, _zeros(d), torch.arange(2.0, device=d)),
    "scatter_reduce": lambda d: torch.ones(3, device=d).scatter_reduce(
        0, _zeros(d), torch.ones(2, device=d) * 3, "prod"
    ),
    "histc": lambda d: torch.histc(torch.arange(5.0, device=d), 3),
    "bincount": lambda d: torch.bincount(_zeros(d), torch.ones(2, device=d)),
    "median": lambda d: torch.arange(5.0, device=d).median(0),
    "nanmedian": lambda d: torch.arange(5.0, device=d).nanmedian(0),
    "mode": lambda d: torch.tensor([1.0, 1.0, 2.0], device=d).mode(0),
    "kthvalue": lambda d: torch.arange(5.0, device=d).kthvalue(2),
    "cumsum": lambda d: torch.arange(5.0, device=d).cumsum(0),
    "nll_loss2d": lambda d: F.nll_loss(torch.ones(2, 3, 2, 2, device=d), torch.zeros(2, 2, 2, device=d).long()),
    "avg_pool3d": _gradient(lambda x: F.avg_pool3d(x, 2), 1, 1, 4, 4, 4),
    "adaptive_avg_pool2d": _gradient(lambda x: F.adaptive_avg_pool2d(x, 2), 1, 1, 4, 4),
    "adaptive_max_pool2d": _gradient(lambda x: F.adaptive_max_pool2d(x, 2), 1, 1, 4, 4),
    "interpolate": _gradient(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), 1, 1, 4, 4),
    "reflection_pad": _gradient(lambda x: F.pad(x, (1, 1), mode="reflect"), 1, 4, 4),
    "embedding": _gradient(lambda x: F.embedding(_zeros(x.device.type), x), 3, 4),
    "embedding_bag": _gradient(lambda x: F.embedding_bag(_zeros(x.device.type)[None], x, mode="max"), 3, 4),
    "indexing": _gradient(lambda x: x[_zeros(x.device.type)] * 2, 3, 4),
    "repeat_interleave": _gradient(lambda x: x.repeat_interleave(2, 0), 3, 4),
}


@pytest.mark.parametrize("name", TAKEN)
def test_taken_on_the_host_target(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = torch.utils._pytree.tree_leaves(TAKEN[name](D))
    for g, w in zip(got, torch.utils._pytree.tree_leaves(TAKEN[name]("cpu")), strict=True):
        torch.testing.assert_close(g.cpu(), w)


def test_the_same_bits_each_time() -> None:
    index = torch.randint(0, 7, (5000,), device=D)
    values = torch.randn(5000, device=D)
    runs = [torch.zeros(7, device=D).scatter_add(0, index, values).cpu() for _ in range(5)]
    assert all(torch.equal(run, runs[0]) for run in runs)


class _Unordered:
    """The host target without its promise."""

    capabilities = replace(runtime().capabilities, fixed_order=False)


def test_a_target_without_a_fixed_order_refuses_as_cuda_does(monkeypatch: pytest.MonkeyPatch) -> None:
    x, i = torch.ones(3, device=D), torch.zeros(3, dtype=torch.int64, device=D)
    assert not deterministic.may_alert("aten::cumsum") and deterministic.caller("aten::cumsum", (x, 0, None)) is None
    monkeypatch.setattr(deterministic, "runtime", lambda: _Unordered)
    assert deterministic.may_alert("aten::cumsum") and not deterministic.may_alert("aten::add.Tensor")
    assert deterministic.caller("aten::cumsum", (x, 0, None)) == "cumsum_cuda_kernel"
    assert deterministic.caller("aten::cumsum", (i, 0, None)) is None
    assert deterministic.caller("aten::cumsum", (i, 0, 6)) == "cumsum_cuda_kernel"  # dtype=torch.float32
    assert deterministic.caller("aten::bincount", (i, None, 0)) is None
    assert deterministic.caller("aten::bincount", (i, x, 0)) == "_bincount_cuda"
    assert deterministic.caller("aten::put_", (x, i, x, True)) == "put_"
    assert deterministic.caller("aten::scatter_reduce_.two", (x, 0, i, x, "sum", True)) is None
    assert deterministic.caller("aten::avg_pool3d_backward.grad_input", (x,) * 9) == "avg_pool3d_backward_cuda"


DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.complex64,
    torch.bool,
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
]
MADE: dict[str, Callable[[str, torch.dtype], torch.Tensor]] = {
    "empty": lambda d, t: torch.empty(3, dtype=t, device=d),
    "empty_strided": lambda d, t: torch.empty_strided((2, 2), (4, 2), dtype=t, device=d),
    "empty_like": lambda d, t: torch.empty_like(torch.ones(2, 2, dtype=t, device=d)),
    "new_empty": lambda d, t: torch.ones(1, dtype=t, device=d).new_empty(2, 3),
    "empty_permuted": lambda d, t: torch.empty_permuted((2, 3), (1, 0), dtype=t, device=d),
    "resize_": lambda d, t: torch.ones(2, dtype=t, device=d).resize_(5),
    "resize_ of nothing": lambda d, t: torch.ones(0, dtype=t, device=d).resize_(3),
    "resize_ to fewer": lambda d, t: torch.ones(4, dtype=t, device=d).resize_(2),
    "resize_ of a transposed one": lambda d, t: torch.ones(2, 2, dtype=t, device=d).t().resize_(3, 3),
    "resize_as_": lambda d, t: torch.ones(2, dtype=t, device=d).resize_as_(torch.ones(3, 2, device=d)),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_memory_nobody_wrote(dtype: torch.dtype) -> None:
    for name, make in MADE.items():
        got, want = make(D, dtype), make("cpu", dtype)
        assert got.stride() == want.stride()
        torch.testing.assert_close(
            got.cpu(), want, rtol=0, atol=0, equal_nan=True, msg=lambda m, name=name: f"{name}: {m}"
        )


def test_filling_can_be_switched_off() -> None:
    torch.utils.deterministic.fill_uninitialized_memory = False
    assert not torch.empty(3, device=D).isnan().any()
    assert torch.ones(2, device=D).resize_(5)[:2].tolist() == [1.0, 1.0]


def test_filling_writes_no_other_view() -> None:
    base = torch.ones(4, device=D)
    base[1:3].resize_(3)
    assert base.tolist() == [1.0] * 4
