"""A tiny model of each family Transformers' users run, with random weights, and an input for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf

VOCABULARY = 99
_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
_TEXT: dict[str, Any] = {**_SIZES, "vocab_size": VOCABULARY, "max_position_embeddings": 64, "pad_token_id": 0}
_ENDS: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2}


def token_ids(rows: int = 2, length: int = 9) -> torch.Tensor:
    """No special tokens among them."""
    return torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(1))


def padded() -> dict[str, torch.Tensor]:
    """Two texts, the second shorter."""
    ids = token_ids()
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def images() -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))}


def source_and_target() -> dict[str, torch.Tensor]:
    return {"input_ids": token_ids(), "decoder_input_ids": token_ids(length=4)}


@dataclass(frozen=True)
class Family:
    name: str
    model: Callable[[], hf.PreTrainedModel]
    inputs: Callable[[], dict[str, torch.Tensor]]

    def build(self) -> hf.PreTrainedModel:
        torch.manual_seed(0)
        return self.model().eval()


def _bert() -> hf.PreTrainedModel:
    return hf.BertModel(hf.BertConfig(**_TEXT))


def _gpt2() -> hf.PreTrainedModel:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": VOCABULARY, "pad_token_id": 0}
    return hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, **_ENDS))


def _llama() -> hf.PreTrainedModel:
    """Rotary positions, and two query heads to each head of keys and values."""
    return hf.LlamaForCausalLM(hf.LlamaConfig(**_TEXT, **_ENDS, num_key_value_heads=2))


def _vit() -> hf.PreTrainedModel:
    return hf.ViTModel(hf.ViTConfig(**_SIZES, image_size=16, patch_size=4))


def _t5() -> hf.PreTrainedModel:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": VOCABULARY}
    return hf.T5ForConditionalGeneration(hf.T5Config(**sizes, decoder_start_token_id=0))


BERT = Family("bert", _bert, padded)
GPT2 = Family("gpt2", _gpt2, padded)
LLAMA = Family("llama", _llama, padded)
VIT = Family("vit", _vit, images)
T5 = Family("t5", _t5, source_and_target)
ALL = (BERT, GPT2, LLAMA, VIT, T5)
GENERATING = (GPT2, LLAMA, T5)


def classifier() -> hf.PreTrainedModel:
    """BERT with two labels and no dropout, so that two devices train it alike."""
    torch.manual_seed(0)
    return hf.BertForSequenceClassification(
        hf.BertConfig(**_TEXT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    )
