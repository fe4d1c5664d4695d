"""The models of the zoo from Transformers: small, with random weights, without dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

from benchmarks.zoo_models import Entry, Subject, regression, whole

VOCABULARY, WIDTH, LAYERS, HEADS, LENGTH = 1000, 256, 4, 8, 64
NEW_TOKENS = 12
_SIZES: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 2 * WIDTH,
}
_TEXT: dict[str, Any] = {**_SIZES, "vocab_size": VOCABULARY, "max_position_embeddings": 256, "pad_token_id": 0}
_ENDS: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2}
_NO_DROPOUT: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def _ids(rows: int = 2, length: int = LENGTH) -> Tensor:
    """No special tokens among them."""
    return torch.randint(3, VOCABULARY, (rows, length))


def _padded() -> dict[str, Tensor]:
    ids = _ids()
    mask = torch.ones_like(ids)
    mask[1, LENGTH // 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


def _predicting(model: nn.Module, **more: Any) -> Subject:
    """A language model: its first result with labels is the loss."""
    ids = _ids()
    return Subject(model, named={"input_ids": ids, "labels": ids, "use_cache": False, **more}, loss=lambda out: out[0])


def _gpt2_model() -> nn.Module:
    sizes: dict[str, Any] = {
        "n_embd": WIDTH,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_positions": 256,
        "vocab_size": VOCABULARY,
    }
    quiet: dict[str, Any] = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "pad_token_id": 0}
    return hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, **quiet, **_ENDS))


def llama() -> nn.Module:
    """Rotary positions, and four query heads to each head of keys and values."""
    return hf.LlamaForCausalLM(hf.LlamaConfig(**_TEXT, **_ENDS, num_key_value_heads=2))


def _mixtral() -> nn.Module:
    experts: dict[str, Any] = {"num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
    return hf.MixtralForCausalLM(hf.MixtralConfig(**_TEXT, **_ENDS, **experts))


def _bert() -> Subject:
    return Subject(hf.BertModel(hf.BertConfig(**_TEXT, **_NO_DROPOUT)), named=_padded(), loss=regression)


def _vit() -> Subject:
    model = hf.ViTModel(hf.ViTConfig(**_SIZES, **_NO_DROPOUT, image_size=64, patch_size=8))
    return Subject(model, named={"pixel_values": torch.randn(2, 3, 64, 64)}, loss=regression)


def _whisper() -> Subject:
    sizes: dict[str, Any] = {"d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2}
    sizes |= {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}
    sizes |= {"encoder_ffn_dim": 2 * WIDTH, "decoder_ffn_dim": 2 * WIDTH}
    config = hf.WhisperConfig(
        **sizes,
        **_ENDS,
        vocab_size=VOCABULARY,
        max_source_positions=100,
        max_target_positions=64,
        pad_token_id=0,
        decoder_start_token_id=1,
    )
    named = {"input_features": torch.randn(1, 80, 200), "labels": _ids(1, 32), "use_cache": False}
    return Subject(hf.WhisperForConditionalGeneration(config), named=named, loss=lambda out: out[0])


def _t5() -> Subject:
    sizes: dict[str, Any] = {
        "d_model": WIDTH,
        "d_kv": WIDTH // HEADS,
        "d_ff": 2 * WIDTH,
        "num_layers": 2,
        "num_heads": HEADS,
    }
    config = hf.T5Config(**sizes, vocab_size=VOCABULARY, dropout_rate=0.0)
    config.decoder_start_token_id = 0
    return _predicting(hf.T5ForConditionalGeneration(config))


class Generation(nn.Module):
    """Tokens that a model writes greedily after a text, and the scores of the last one."""

    def __init__(self, model: nn.Module, **how: Any) -> None:
        super().__init__()
        self.model, self.how = model, how

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        model: Any = self.model
        settings = {"min_new_tokens": NEW_TOKENS, "max_new_tokens": NEW_TOKENS, "do_sample": False} | self.how
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), return_dict_in_generate=True, output_scores=True, **settings
        )
        last = out.scores[-1]
        return out.sequences, last.masked_fill(last.isinf(), 0.0)  # -inf: forbidden, as the end is


def _generating(model: Callable[[], nn.Module]) -> Subject:
    """The cache grows; what is compiled is the model's forward."""

    def forward_only(generation: nn.Module) -> Callable[..., Any]:
        inner: Any = generation.model
        inner.forward = whole(inner.forward)
        return generation

    return Subject(Generation(model().eval()), (_ids(1, 10),), compiled=forward_only)


def _generating_static(model: Callable[[], nn.Module]) -> Subject:
    """The cache has its full size from the start; generate compiles the model by itself."""

    def by_itself(generation: nn.Module) -> Callable[..., Any]:
        assert isinstance(generation, Generation)
        generation.how = {"cache_implementation": "static"}
        return generation

    generation = Generation(model().eval(), cache_implementation="static", disable_compile=True)
    return Subject(generation, (_ids(1, 10),), compiled=by_itself)


_SOURCE = "Transformers, random"
ENTRIES = (
    Entry(
        "GPT-2", _SOURCE, lambda: _predicting(_gpt2_model()), "Transformers logs a warning when it chooses GPT-2's loss"
    ),
    Entry("Llama", _SOURCE, lambda: _predicting(llama())),
    Entry("Mixtral", _SOURCE, lambda: _predicting(_mixtral())),
    Entry("BERT", _SOURCE, _bert),
    Entry("ViT", _SOURCE, _vit),
    Entry("Whisper", _SOURCE, _whisper),
    Entry("T5", _SOURCE, _t5),
    Entry("GPT-2, generate", _SOURCE, lambda: _generating(_gpt2_model)),
    Entry("Llama, generate", _SOURCE, lambda: _generating(llama)),
    Entry(
        "Llama, generate, static cache",
        _SOURCE,
        lambda: _generating_static(llama),
        "generate itself compiles all steps but the first, which reads the whole text",
    ),
)
