"""One callable a network and device; the call has ended when it returns."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from benchmarks import models

Workload = Callable[[], torch.Tensor]


def wait(device: str) -> None:
    if device == "neuron":
        torch.neuron.synchronize()  # type: ignore[attr-defined]


def mlp_step(device: str) -> Workload:
    """Forward, backward and AdamW."""
    torch.manual_seed(0)
    model = models.mlp().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(models.MLP_BATCH, models.MLP_WIDTHS[0]).to(device)
    y = torch.randint(0, models.MLP_WIDTHS[-1], (models.MLP_BATCH,)).to(device)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        wait(device)
        return loss.detach()

    return step


def resnet18_forward(device: str) -> Workload:
    torch.manual_seed(0)
    return _forward(models.resnet18(), torch.randn(models.RESNET_INPUT), device)


def gpt2_forward(device: str) -> Workload:
    torch.manual_seed(0)
    return _forward(models.GPT2(), torch.randint(0, models.GPT2_VOCABULARY, models.GPT2_INPUT), device)


def _forward(model: nn.Module, x: torch.Tensor, device: str) -> Workload:
    model, x = model.eval().to(device), x.to(device)

    @torch.no_grad()
    def run() -> torch.Tensor:
        y: torch.Tensor = model(x)
        wait(device)
        return y

    return run


NETWORKS: dict[str, Callable[[str], Workload]] = {
    "mlp_step": mlp_step,
    "resnet18": resnet18_forward,
    "gpt2": gpt2_forward,
}
