"""Small networks and batches for training on two devices side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SequenceClassifier(nn.Module):
    """Two LSTM layers and a linear head on the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, 2, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Block(nn.Module):
    """A GPT-2 block: causal attention and an MLP, both with a norm in front and a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class TinyGPT(nn.Module):
    def __init__(self, vocabulary: int = 50, width: int = 32, length: int = 16) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(Block(width, 4), Block(width, 4))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5))


def cnn() -> nn.Module:
    def stage(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(
        *stage(1, 8), nn.MaxPool2d(2), *stage(8, 16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
    )


@dataclass(frozen=True)
class Task:
    """A network and how to draw one batch for it."""

    build: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], tuple[Tensor, Tensor]]


def _labels(g: torch.Generator, count: int, classes: int) -> Tensor:
    return torch.randint(0, classes, (count,), generator=g)


TASKS: dict[str, Task] = {
    "mlp": Task(mlp, lambda g: (torch.randn(16, 20, generator=g), _labels(g, 16, 5))),
    "cnn": Task(cnn, lambda g: (torch.randn(8, 1, 8, 8, generator=g), _labels(g, 8, 10))),
    "lstm": Task(SequenceClassifier, lambda g: (torch.randn(4, 6, 8, generator=g), _labels(g, 4, 4))),
    "gpt": Task(TinyGPT, lambda g: (torch.randint(0, 50, (2, 16), generator=g), _labels(g, 32, 50))),
}
