"""torch.vmap: dimensions, chunks, nesting, writes, randomness, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import vmap

from tests.functorch import sweep
from tests.functorch.compare import D, same


def _x() -> torch.Tensor:
    return torch.randn(4, 3, 5)


def _spd(x: torch.Tensor) -> torch.Tensor:
    return x @ x.mT + 3 * torch.eye(x.shape[-2], dtype=x.dtype, device=x.device)


def _filled(row: torch.Tensor) -> torch.Tensor:
    out = row.clone()
    out[0].fill_(2)
    out.mul_(row).add_(1, alpha=3)
    return out.clamp_(-1, 1)


def _put(row: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(row)
    out[1:] = row[:-1]
    return out.index_add_(0, torch.tensor([0, 0, 2], device=row.device), row)


CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "in_dims": lambda x: vmap(torch.mv, in_dims=(0, None))(x, x[0, 0]),
    "in_dims at the end": lambda x: vmap(torch.mv, in_dims=(-1, 1))(x, x[0].contiguous()),
    "out_dims": lambda x: vmap(lambda row: (row.sin(), row.sum()), out_dims=(2, 0))(x),
    "out_dims at the end": lambda x: vmap(torch.sin, out_dims=-1)(x),
    "nested structures": lambda x: vmap(lambda d: {"a": d["b"][0] + d["b"][1]}, in_dims=({"b": (0, None)},))(
        {"b": (x, x[0])}
    ),
    "chunk_size": lambda x: vmap(lambda row: row.softmax(0).sum(1), chunk_size=3)(x),
    "nested": lambda x: vmap(vmap(torch.dot))(x, x.cos()),
    "nested over different dimensions": lambda x: vmap(vmap(torch.outer, in_dims=(0, None)), in_dims=(0, 0))(
        x, x[:, 0]
    ),
    "three levels": lambda x: vmap(vmap(vmap(torch.sin, out_dims=0)))(x),
    "writes": lambda x: vmap(_filled)(x),
    "writes to slices and indices": lambda x: vmap(_put)(x),
    "writes to the argument": lambda x: (vmap(lambda row: row.mul_(2))(x), x),
    "an unmapped factory": lambda x: vmap(lambda row: row + torch.arange(5, device=row.device))(x),
    "a new tensor inside": lambda x: vmap(lambda row: row.new_zeros(3, 5) + row)(x),
    "indexing": lambda x: vmap(lambda row, i: row[i])(
        x, torch.tensor([[0, 2], [1, 1], [2, 0], [0, 0]], device=x.device)
    ),
    "gather and scatter": lambda x: vmap(lambda row: row.scatter(1, row.argsort(1), row).gather(1, row.argsort(1)))(x),
    "where and comparison": lambda x: vmap(lambda row: torch.where(row > 0, row, row.exp()))(x),
    "sort, topk, cumsum": lambda x: vmap(lambda row: (row.sort().values, row.topk(2).values, row.cumsum(1)))(x),
    "reductions": lambda x: vmap(lambda row: (row.mean(), row.var(1), row.max(1), row.logsumexp(0), row.norm()))(x),
    "a convolution over its weights": lambda x: vmap(torch.nn.functional.conv1d, in_dims=(None, 0))(
        x[:2], x[:, :, :3].reshape(4, 1, 3, 3)
    ),
    "a convolution over both": lambda x: vmap(torch.nn.functional.conv1d)(x[:, None], x[:, None, :, :2]),
    "batch_norm": lambda x: vmap(lambda row: torch.nn.functional.batch_norm(row, None, None, training=True))(x),
    "attention": lambda x: vmap(torch.nn.functional.scaled_dot_product_attention)(x[:, None], x[:, None], x[:, None]),
    "embedding": lambda x: vmap(torch.nn.functional.embedding, in_dims=(None, 0))(
        torch.tensor([2, 0], device=x.device), x
    ),
    "cross_entropy": lambda x: vmap(torch.nn.functional.cross_entropy, in_dims=(0, None))(
        x, torch.tensor([0, 4, 2], device=x.device)
    ),
    "einsum": lambda x: vmap(lambda row: torch.einsum("ij,kj->ik", row, row))(x),
    "linalg.inv": lambda x: vmap(lambda row: torch.linalg.inv(_spd(row)))(x),
    "linalg.solve": lambda x: vmap(lambda row: torch.linalg.solve(_spd(row), row))(x),
    "linalg.det and slogdet": lambda x: vmap(lambda r: (torch.linalg.det(_spd(r)), *torch.linalg.slogdet(_spd(r))))(x),
    "linalg.cholesky": lambda x: vmap(lambda row: torch.linalg.cholesky(_spd(row)))(x),
    "linalg.eigvalsh": lambda x: vmap(lambda row: torch.linalg.eigvalsh(_spd(row)))(x),
    "linalg.svdvals": lambda x: vmap(torch.linalg.svdvals)(x),
    "linalg.qr": lambda x: vmap(lambda row: torch.linalg.qr(row).R.abs())(x),
    "linalg.lstsq": lambda x: vmap(lambda row: torch.linalg.lstsq(row.t(), row.t()[:, :2]).solution)(x),
    "linalg.pinv": lambda x: vmap(torch.linalg.pinv)(x),
    "linalg.matrix_power": lambda x: vmap(lambda row: torch.linalg.matrix_power(_spd(row), 3))(x),
    "fft": lambda x: vmap(torch.fft.rfft)(x),
    "complex": lambda x: vmap(lambda row: torch.complex(row, row.sin()).conj().angle())(x),
    "int64": lambda x: vmap(lambda row: (row * 10).long() // 3)(x),
    "bfloat16": lambda x: vmap(lambda row: row.bfloat16() @ row.bfloat16().t())(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_call(name: str) -> None:
    same(CALLS[name], _x())


REFUSED: dict[str, Callable[[torch.Tensor], Any]] = {
    "randomness": lambda x: vmap(lambda row: row + torch.rand(3, 5, device=row.device))(x),
    "dropout": lambda x: vmap(torch.nn.functional.dropout)(x),
    "a value": lambda x: vmap(lambda row: row.sum().item())(x),
    "a condition": lambda x: vmap(lambda row: row if row.sum() > 0 else -row)(x),
    "sizes that differ": lambda x: vmap(torch.add)(x, x[:3]),
    "a mapped value into an unmapped tensor": lambda x: vmap(
        lambda row: torch.zeros(3, 5, device=row.device).add_(row)
    )(x),
    "a size from data": lambda x: vmap(lambda row: row[row > 0])(x),
    "a system of other sizes": lambda x: vmap(lambda row: torch.linalg.lstsq(row.t(), row[0]).solution)(x),
    "the same numbers for a mapped tensor": lambda x: vmap(torch.bernoulli, randomness="same")(x.sigmoid()),
    "other numbers into an unmapped tensor": lambda x: vmap(
        lambda row: torch.zeros(3, device=row.device).uniform_(), randomness="different"
    )(x),
    "in_dims beyond": lambda x: vmap(torch.sin, in_dims=4)(x),
    "a result that is no tensor": lambda x: vmap(lambda row: "x")(x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_the_same_words(name: str) -> None:
    with pytest.raises((RuntimeError, ValueError)) as want:
        REFUSED[name](_x())
    with pytest.raises(want.type) as got:
        REFUSED[name](_x().to(D))
    assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]


RANDOM: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rand": lambda row: torch.rand(3, 5, device=row.device) + 0 * row,
    "randn_like": torch.randn_like,
    "randint": lambda row: torch.randint(0, 1000, (3, 5), device=row.device),
    "bernoulli": lambda row: torch.bernoulli(torch.full((3, 5), 0.5, device=row.device)) + 0 * row,
    "dropout": lambda row: torch.nn.functional.dropout(torch.ones_like(row)),
    "normal_": lambda row: torch.zeros_like(row).normal_(),
    "randperm": lambda row: torch.randperm(20, device=row.device),
}


@pytest.mark.parametrize("name", RANDOM)
def test_randomness(name: str) -> None:
    x = torch.ones(4, 3, 5, device=D)
    different = vmap(RANDOM[name], randomness="different")(x).cpu()
    one = vmap(RANDOM[name], randomness="same")(x).cpu()
    want = vmap(RANDOM[name], randomness="different")(x.cpu())
    assert (different.shape, different.dtype) == (want.shape, want.dtype)
    assert not any(torch.equal(different[0], different[i]) for i in range(1, 4))
    if name != "normal_":  # a mapped tensor written in place: torch draws the whole batch
        assert all(torch.equal(one[0], one[i]) for i in range(1, 4))


def test_the_cpus_randomness() -> None:
    import torch_neuronx

    def run(device: str) -> torch.Tensor:
        torch.manual_seed(3)
        return vmap(lambda row: torch.randn(5, device=row.device), randomness="different")(
            torch.ones(4, 3, device=device)
        )

    with torch_neuronx.debug.cpu_random():
        got = run(D)
    assert torch.equal(got.cpu(), run("cpu"))


# A family an entry; all of op_db: python -m tests.functorch.sweep
PINNED = (
    "add|sin|clamp|where|addcmul|nn.functional.gelu|pow",
    "sum|var_mean|amax|logsumexp|norm.fro|cumsum",
    "mm|bmm|addmm|einsum|nn.functional.linear|matmul",
    "index_select|index_put|gather|scatter_add|masked_fill|take_along_dim",
    "cat|stack|roll|tril|repeat|unfold|movedim|as_strided_copy",
    "nn.functional.conv2d|nn.functional.max_pool2d|nn.functional.layer_norm|nn.functional.batch_norm",
    "linalg.solve|linalg.cholesky|linalg.eigh|linalg.svdvals|linalg.det",
    "sort|topk|unique_consecutive|searchsorted|argmax",
    "nn.functional.embedding|nn.functional.nll_loss|nn.functional.mse_loss|softmax.with_dtype",
)


@pytest.mark.parametrize("regex", PINNED)
def test_op_db(regex: str) -> None:
    found = sweep.entries(regex)
    assert found
    for op in found:
        outcome = sweep.run(op, most=1)
        assert not outcome.differ, f"{sweep.name_of(op)}: {outcome.why}"
