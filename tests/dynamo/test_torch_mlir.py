"""Torch-MLIR's StableHLO and ours give the same results: two independent ways from a graph to a program."""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torch_neuronx.dynamo import metrics

D = "neuron"
R = torch.randn


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    metrics.clear()
    torch.manual_seed(0)


def cnn() -> nn.Module:
    head = nn.Linear(8 * 9, 4)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), head)


class Logits(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.model(x, return_dict=True)
        return out.logits if hasattr(out, "logits") else out.last_hidden_state


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    drop = {"attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0}
    tokens = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 0}
    return Logits(GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=32, n_head=4, use_cache=False, **drop, **tokens)))


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTModel

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return Logits(ViTModel(ViTConfig(image_size=32, patch_size=8, **sizes), add_pooling_layer=False))


def ids(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "cnn": (cnn, lambda: R(2, 3, 8, 8)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), lambda: R(2, 5, 16)),
    "gpt2": (gpt2, lambda: ids(50, 2, 7)),
    "vit": (vit, lambda: R(2, 3, 32, 32)),
}


def _step(model: nn.Module, x: torch.Tensor, frontend: str) -> list[torch.Tensor]:
    torch._dynamo.reset()
    model = copy.deepcopy(model).to(D)
    call = torch.compile(model, backend="neuron", dynamic=False, fullgraph=True, options={"frontend": frontend})
    out = call(x.to(D))
    out.square().mean().backward()
    made = [out, *(p.grad for p in model.parameters() if p.grad is not None), *model.buffers()]
    return [t.detach().cpu() for t in made]


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_is_the_same(name: str) -> None:
    make, draw = MODELS[name]
    model, x = make(), draw()
    ours, theirs = (_step(model, x, frontend) for frontend in ("table", "torch-mlir"))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.dtype, a.stride()) == (b.dtype, b.stride())
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert not any(m["fallback"] for m in metrics.get_dynamo_metrics())


def test_they_are_two_programs() -> None:
    for frontend in ("table", "torch-mlir", "torch-mlir"):
        torch._dynamo.reset()
        call = torch.compile(torch.sin, backend="neuron", dynamic=False, options={"frontend": frontend})
        torch.testing.assert_close(call(torch.ones(3, device=D)).cpu(), torch.ones(3).sin())
    assert sum(m["executables"] for m in metrics.get_dynamo_metrics()) == 3


def _compiled(f: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    return torch.compile(f, backend="neuron", options={"frontend": "torch-mlir"}, **how)


def test_what_it_does_not_lower_is_an_error_that_says_so() -> None:
    with pytest.raises(RuntimeError, match="Torch-MLIR does not lower it"):
        _compiled(lambda x: torch.linalg.svdvals(x), dynamic=False)(R(3, 3, device=D))


def test_random_numbers_come_from_the_table_only() -> None:
    with pytest.raises(RuntimeError, match="Torch-MLIR does not draw from the device's generator"):
        _compiled(lambda x: F.dropout(x, 0.5), dynamic=False)(R(3, 3, device=D))


def test_varying_sizes_are_refused() -> None:
    with pytest.raises(RuntimeError, match="fixed sizes: pass dynamic=False"):
        _compiled(torch.sin, dynamic=True)(R(3, 3, device=D))


def test_it_has_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(Exception, match="pip install torch-mlir"):
        _compiled(torch.cos, dynamic=False)(R(3, device=D))


def test_an_unknown_frontend_is_refused() -> None:
    with pytest.raises(Exception, match=r"no frontend 'xla'\. Valid frontends: table, torch-mlir"):
        torch.compile(torch.sin, backend="neuron", options={"frontend": "xla"})(R(3, device=D))
