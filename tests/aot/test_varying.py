"""Bundles for sizes that vary: each size equal to CPU torch, one program a bucket, garbage in the padding."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim, export

import torch_neuronx
from tests.aot.models import Mlp, Transformer, made
from tests.aot.test_bundles import same, there
from torch_neuronx.aot import BundleError

D = "neuron"


@pytest.fixture(autouse=True)
def _garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_POISON_PADDING", "1")


def shipped(model: nn.Module, args: tuple, shapes, path: Path, kwargs: dict | None = None, **options):
    program = export(copy.deepcopy(model), args, kwargs or {}, dynamic_shapes=shapes)
    info = torch_neuronx.aot_compile(program, path, **options)
    return info, torch_neuronx.load(path)


class Function(nn.Module):
    def __init__(self, f) -> None:
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


def test_a_transformer_at_every_length(tmp_path: Path) -> None:
    model = made(Transformer)
    length = Dim("length", min=1, max=40)
    info, loaded = shipped(model, (torch.randint(50, (2, 7)),), {"ids": {1: length}}, tmp_path / "m.neff")
    assert info.sizing == "padded"
    assert [max(s.values()) for s in info.programs] == [8, 16, 24, 32, 40]
    for n in (1, 2, 7, 8, 9, 24, 25, 39, 40):
        ids = torch.randint(50, (2, n))
        same(loaded(ids.to(D)), model(ids))
    assert loaded.metrics.executables == 5


def test_two_sizes_and_a_structure(tmp_path: Path) -> None:
    model = made(Mlp)
    args, kwargs = Mlp.inputs()
    rows = Dim("rows", max=20)
    shapes = {"x": {0: rows}, "scale": None, "extra": {"bias": {0: rows}, "double": None}}
    info, loaded = shipped(model, args, shapes, tmp_path / "m.neff", kwargs, buckets=[4, 20])
    assert [max(s.values()) for s in info.programs] == [4, 20]
    for n in (2, 4, 5, 20):
        args, kwargs = Mlp.inputs(n)
        same(loaded(*there(args), **there(kwargs)), model(*args, **kwargs))


def test_two_symbols_with_buckets_of_their_own(tmp_path: Path) -> None:
    model = Function(lambda x: (x @ x.transpose(1, 2)).softmax(-1))
    shapes = {"x": {0: Dim("b", max=4), 1: Dim("s", max=32)}}
    info, loaded = shipped(
        model, (torch.randn(2, 5, 3),), shapes, tmp_path / "m.neff", buckets={"x": {0: [1, 4], 1: [32]}}
    )
    assert len(info.programs) == 2
    for b, s in ((1, 3), (2, 32), (4, 17)):
        x = torch.randn(b, s, 3)
        same(loaded(x.to(D)), model(x))


def test_sizes_that_need_their_own_program(tmp_path: Path) -> None:
    """Writes to an input of varying size cannot be padded: one program for each size there is."""

    class Adds(nn.Module):
        def forward(self, x):
            x.mul_(2)
            return x.sum()

    info, loaded = shipped(Adds(), (torch.ones(3),), {"x": {0: Dim("n", min=2, max=5)}}, tmp_path / "m.neff")
    assert info.sizing == "exact" and len(info.programs) == 4
    assert "a write to an input" in str(info.exact_because)
    for n in (2, 5):
        x = torch.ones(n, device=D)
        assert loaded(x).item() == 2 * n and x.tolist() == [2] * n
    with pytest.raises(BundleError, match=r"because of a write to an input of varying size\. Name the few"):
        shipped(Adds(), (torch.ones(3),), {"x": {0: Dim("n", max=500)}}, tmp_path / "n.neff")
    _, loaded = shipped(Adds(), (torch.ones(3),), {"x": {0: Dim("n", max=500)}}, tmp_path / "n.neff", buckets=[7, 9])
    assert loaded(torch.ones(9, device=D)).item() == 18
    with pytest.raises(
        ValueError, match=r"dimension 0 of x is 8, and this bundle has programs for exactly the sizes 7, 9"
    ):
        loaded(torch.ones(8, device=D))


def test_exact(tmp_path: Path) -> None:
    model = Function(lambda x: x.cumsum(0) / x.shape[0])
    info, loaded = shipped(
        model, (torch.randn(4),), {"x": {0: Dim("n", min=3, max=5)}}, tmp_path / "m.neff", buckets="exact"
    )
    assert info.sizing == "exact" and len(info.programs) == 3
    for n in (3, 4, 5):
        x = torch.randn(n)
        same(loaded(x.to(D)), model(x))


def test_sizes_derived_from_another(tmp_path: Path) -> None:
    """4 * n: no dimension is n itself, so every size has its program."""
    n = Dim("n", min=2, max=4)
    model = Function(lambda x: x.view(-1, 4).sum(0))
    info, loaded = shipped(model, (torch.randn(8),), {"x": {0: 4 * n}}, tmp_path / "m.neff")
    assert info.sizing == "exact" and len(info.programs) == 3
    for size in (8, 16):
        x = torch.randn(size)
        same(loaded(x.to(D)), model(x))
    with pytest.raises(ValueError, match=r"dimension 0 of x must be 4 \* n, which 10 is not"):
        loaded(torch.randn(10, device=D))
    with pytest.raises(ValueError, match="dimension 0 of x must be from 8 to 16, not 20"):
        loaded(torch.randn(20, device=D))


def test_numbers_that_are_sizes(tmp_path: Path) -> None:
    class Repeats(nn.Module):
        def forward(self, x, k):
            return x * k, x.shape[0] + k

    _, loaded = shipped(
        Repeats(), (torch.randn(4), 3), {"x": {0: Dim("n", max=16)}, "k": Dim.AUTO}, tmp_path / "m.neff", buckets=[16]
    )
    for n, k in ((4, 3), (16, 9)):
        x = torch.randn(n)
        same(loaded(x.to(D), k), Repeats()(x, k))
    with pytest.raises(TypeError, match="k must be an integer, not a float"):
        loaded(torch.randn(4, device=D), 1.5)
    with pytest.raises(ValueError, match="k must be from 0 to 16, not 17"):
        loaded(torch.randn(4, device=D), 17)


def test_conditions_of_the_program(tmp_path: Path) -> None:
    class Checks(nn.Module):
        def forward(self, x):
            torch._check(x.shape[0] % 4 == 0)
            return x * 2

    _, loaded = shipped(Checks(), (torch.randn(8),), {"x": {0: Dim.AUTO(max=16)}}, tmp_path / "m.neff")
    same(loaded(torch.ones(12, device=D)), torch.ones(12) * 2)
    with pytest.raises(ValueError, match=r"exported for sizes with .* % 4\) == 0.*; here .* = 10 by dimension 0 of x"):
        loaded(torch.ones(10, device=D))


def test_unbounded_sizes_need_buckets(tmp_path: Path) -> None:
    model, shapes = Function(lambda x: x * 2), {"x": {0: Dim("n")}}
    with pytest.raises(ValueError, match=r"dimension 0 of x has no upper bound.*buckets={'x': {0: \[128, 512\]}}"):
        shipped(model, (torch.ones(3),), shapes, tmp_path / "m.neff")
    _, loaded = shipped(model, (torch.ones(3),), shapes, tmp_path / "m.neff", buckets=[8])
    same(loaded(torch.ones(8, device=D)), torch.ones(8) * 2)
    with pytest.raises(ValueError, match="dimension 0 of x must be from 0 to 8, not 9"):
        loaded(torch.ones(9, device=D))


@pytest.mark.parametrize(
    ("buckets", "message"),
    [
        ("all", 'buckets takes "exact"'),
        ([], 'buckets takes "exact"'),
        ([8, 0], 'buckets takes "exact"'),
        ({"z": {0: [8]}}, "buckets names 'z', which is no argument. Arguments: x."),
        ({"x": {1: [8]}}, "buckets names dimension 1 of x, whose size does not vary"),
        ({"x": [8]}, r"buckets\['x'\] takes {dimension: list of sizes}"),
        ([1], "is a size of dimension 0 of x, which starts at 4"),
    ],
)
def test_buckets_that_make_no_sense(tmp_path: Path, buckets, message: str) -> None:
    shapes = {"x": {0: Dim("n", min=4, max=9)}}
    with pytest.raises(ValueError, match=message):
        shipped(Function(lambda x: x * 2), (torch.ones(5, 2),), shapes, tmp_path / "m.neff", buckets=buckets)


def test_too_many_programs(tmp_path: Path) -> None:
    shapes = {"x": {0: Dim("a", max=4000), 1: Dim("b", max=4000)}}
    with pytest.raises(ValueError, match=r"324 programs would be needed \(18 of .*more than 64"):
        shipped(Function(lambda x: x * 2), (torch.ones(5, 5),), shapes, tmp_path / "m.neff")
