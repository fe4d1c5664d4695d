"""A wrong input is refused before anything runs, and the message names the argument."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim, export

import torch_neuronx

D = "neuron"


class Model(nn.Module):
    def forward(self, x, y, *, batch, flag):
        return x @ y + batch["bias"] + batch["more"][0]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory):
    n = Dim("n", min=2, max=8)
    batch = {"bias": torch.randn(3), "more": [torch.randn(4, 3)]}
    shapes = {"x": {0: n}, "y": None, "batch": {"bias": None, "more": [{0: n}]}, "flag": None}
    program = export(
        Model(), (torch.randn(4, 5), torch.randn(5, 3)), {"batch": batch, "flag": "fast"}, dynamic_shapes=shapes
    )
    path = tmp_path_factory.mktemp("bundle") / "m.neff"
    torch_neuronx.aot_compile(program, path, buckets=[8], model_name="scorer")
    return torch_neuronx.load(path)


def call(loaded, *, without: str | None = None, extra: dict | None = None, **changed):
    x, y = torch.randn(4, 5, device=D), torch.randn(5, 3, device=D)
    batch = {"bias": torch.randn(3, device=D), "more": [torch.randn(4, 3, device=D)]}
    given = {"x": x, "y": y, "batch": batch, "flag": "fast", **changed, **(extra or {})}
    given.pop(without, None)
    return loaded(**given)


def batch(**changed):
    return {"bias": torch.randn(3, device=D), "more": [torch.randn(4, 3, device=D)], **changed}


def test_it_takes_what_it_was_exported_with(loaded) -> None:
    assert call(loaded).shape == (4, 3)
    assert repr(loaded).startswith("<scorer from ") and repr(loaded).endswith(": x, y, batch, flag>")


@pytest.mark.parametrize(
    ("changed", "kind", "message"),
    [
        ({"without": "y"}, TypeError, "scorer needs the argument y. It takes x, y, batch, flag."),
        ({"without": "batch"}, TypeError, "scorer needs the argument batch"),
        ({"extra": {"z": 1}}, TypeError, "scorer takes no argument 'z'. It takes x, y, batch, flag."),
        ({"x": 3}, TypeError, "x must be a tensor, not a int"),
        ({"x": torch.zeros(4, 5)}, ValueError, r"x must be on neuron:0, not cpu. Move it with .to\('neuron:0'\)"),
        (
            {"x": torch.zeros(4, 5, device=D, dtype=torch.int32)},
            TypeError,
            "x must have dtype torch.float32, not torch.int",
        ),
        ({"x": torch.zeros(4, device=D)}, ValueError, r"x must have 2 dimensions, \[s\d+, 5\], not 1 as in \[4\]"),
        ({"x": torch.zeros(4, 6, device=D)}, ValueError, "dimension 1 of x must be 5, not 6"),
        ({"x": torch.zeros(9, 5, device=D)}, ValueError, "dimension 0 of x must be from 2 to 8, not 9"),
        ({"x": torch.zeros(1, 5, device=D)}, ValueError, "dimension 0 of x must be from 2 to 8, not 1"),
        (
            {"batch": batch(more=[torch.zeros(5, 3, device=D)])},
            ValueError,
            r"dimension 0 of batch\['more'\]\[0\] must be 4 \(s\d+ with s\d+ = 4 by dimension 0 of x\), not 5",
        ),
        (
            {"batch": batch(bias=torch.zeros(2, device=D))},
            ValueError,
            r"dimension 0 of batch\['bias'\] must be 3, not 2",
        ),
        (
            {"batch": {"bias": 1}},
            TypeError,
            r"the argument batch is built as dict with keys \['bias'\], .* exported with",
        ),
        ({"batch": batch(more=[])}, TypeError, "the argument batch is built as"),
        ({"flag": "slow"}, ValueError, "flag was exported as 'fast' and can be nothing else, not slow"),
        ({"flag": 1}, ValueError, "flag was exported as 'fast'"),
        (
            {"x": torch.eye(5, device=D).to_sparse()},
            TypeError,
            "x must be a dense tensor, not one of layout torch.sparse_coo",
        ),
    ],
)
def test_wrong_inputs(loaded, changed, kind, message: str) -> None:
    with pytest.raises(kind, match=message) as raised:
        call(loaded, **changed)
    assert str(raised.value).startswith("scorer")


def test_too_many_and_twice(loaded) -> None:
    x, y = torch.randn(4, 5, device=D), torch.randn(5, 3, device=D)
    with pytest.raises(TypeError, match="takes 2 positional arguments and was given 3"):
        loaded(x, y, batch(), flag="fast")
    with pytest.raises(TypeError, match="was given the argument x twice"):
        loaded(x, y, x=x, batch=batch(), flag="fast")
