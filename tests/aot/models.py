"""Small models that the tests of bundles ship."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    """Keyword arguments, nested arguments and nested results."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor, extra: dict) -> dict:
        hidden = F.gelu(self.first(x)) * scale + extra["bias"]
        if extra["double"]:
            hidden = hidden * 2
        return {"out": self.second(hidden), "rows": x.shape[0], "more": [hidden.t(), None, x, 7]}

    @staticmethod
    def inputs(rows: int = 6, device: str = "cpu") -> tuple[tuple, dict]:
        x, scale, bias = torch.randn(rows, 4), torch.randn(8), torch.randn(rows, 8)
        on = {"scale": scale.to(device), "extra": {"bias": bias.to(device), "double": True}}
        return (x.to(device),), on


class Transformer(nn.Module):
    """Causal, over tokens whose number varies."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.norm, self.qkv, self.proj = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.head = nn.Linear(16, 50)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        batch, length = ids.shape
        x = self.embed(ids)
        q, k, v = (t.view(batch, length, 2, 8).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(x + self.proj(y.transpose(1, 2).reshape(batch, length, 16)))


class Convolutions(nn.Module):
    """Batch norm in eval mode, and a buffer that counts the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return F.max_pool2d(self.norm(self.conv(x)).relu(), 2) + self.calls


class Cache(nn.Module):
    """A key-value cache that is written a slice at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(1, 16, 4))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        self.kept.index_copy_(1, at, x)
        return (self.kept @ x.transpose(1, 2)).softmax(1)


class Tied(nn.Module):
    """One matrix under two names, and a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("offset", torch.arange(4.0), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(ids) + self.offset)


def made(model: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return model().eval()
