"""Embedding tables and bags."""

from __future__ import annotations

import pytest
import torch
from emulate import Lowered, check, run
from torch.nn import functional

aten = torch.ops.aten
W = torch.randn(7, 4)
INDEX = torch.tensor([[1, 2, 2], [6, 0, 2]])


def test_embedding():
    check(aten.embedding.default, W, INDEX)
    check(aten.embedding.default, W.to(torch.bfloat16), INDEX.int(), 2)
    check(aten.embedding.default, W, torch.tensor(3))
    check(aten.embedding.default, W, torch.empty(0, dtype=torch.int64))


@pytest.mark.parametrize("padding", [-1, 2])
@pytest.mark.parametrize("by_frequency", [False, True])
def test_embedding_gradient(padding, by_frequency):
    for dtype in (torch.float32, torch.bfloat16):
        grad = torch.randn(2, 3, 4).to(dtype)
        check(aten.embedding_dense_backward.default, grad, INDEX, 7, padding, by_frequency)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 0.0, float("inf")])
def test_renorm(p):
    check(aten.embedding_renorm_.default, W * 3, INDEX.flatten(), 1.5, p)


def test_indices_are_checked():
    for bad in (7, -1):
        with pytest.raises(IndexError):
            run(aten.embedding.default, (W, torch.tensor([bad])), {})


BAGS = {
    "plain": {"input": torch.tensor([1, 2, 4, 5, 4, 3]), "offsets": torch.tensor([0, 2, 2, 5])},
    "last offset": {
        "input": torch.tensor([1, 2, 4, 5, 4, 3]),
        "offsets": torch.tensor([0, 4, 4, 6]),
        "include_last_offset": True,
    },
    "padding": {"input": torch.tensor([1, 2, 4, 4, 4, 3]), "offsets": torch.tensor([0, 2, 5]), "padding_idx": 4},
    "matrix": {"input": INDEX},
    "int32": {"input": INDEX.int()},
    "empty": {"input": torch.empty(0, dtype=torch.int64), "offsets": torch.tensor([0, 0])},
}


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", BAGS)
def test_bags(name, mode):
    kwargs = dict(BAGS[name])
    index = kwargs.pop("input")

    def forward(w):
        return functional.embedding_bag(index, w, mode=mode, **kwargs)

    check(forward, W)

    def gradient(w):
        w = w.detach().requires_grad_()
        out = forward(w)
        return torch.autograd.grad(out, w, torch.arange(out.numel()).reshape(out.shape).to(out.dtype))

    check(gradient, W)


def test_weighted_bags():
    index, offsets = torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 2, 2, 5])

    def both(w, s):
        w, s = w.detach().requires_grad_(), s.detach().requires_grad_()
        out = functional.embedding_bag(index, w, offsets, mode="sum", per_sample_weights=s)
        return torch.autograd.grad(out, (w, s), torch.ones_like(out))

    check(both, W, torch.randn(6))


def test_offsets_are_checked():
    with Lowered(strict=True), pytest.raises(RuntimeError, match="has to be 0"):
        functional.embedding_bag(torch.tensor([1, 2]), W, torch.tensor([1]))
