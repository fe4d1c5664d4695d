"""What changes every step stays out of the key: no compile storms."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torch_neuronx.debug import counters


def obtained() -> int:
    """Executables this process has compiled or loaded."""
    now = counters()
    return now["compiled"] + now["loaded"]


@pytest.mark.parametrize("fused", [False, True])
def test_a_learning_rate_schedule_compiles_once(fused: bool) -> None:
    model = nn.Linear(7, 3).to("neuron")
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=fused, foreach=not fused)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)
    x = torch.randn(5, 7, device="neuron")

    def step() -> None:
        opt.zero_grad()
        model(x).square().mean().backward()
        opt.step()
        schedule.step()

    step()
    step()  # the first step has no state yet
    before = obtained()
    for _ in range(18):
        step()
    assert obtained() == before


def test_indexing_rows_compiles_once() -> None:
    x = torch.randn(100, 6, device="neuron")
    host = x.cpu()
    assert torch.equal((x[0] + 1).cpu(), host[0] + 1)
    before = obtained()
    for i in range(1, 100):
        assert torch.equal((x[i] + 1).cpu(), host[i] + 1)
    assert obtained() - before <= 1  # row 0 may have its own key: its offset is zero


def test_writing_rows_compiles_once() -> None:
    x, host = torch.zeros(64, 4, device="neuron"), torch.zeros(64, 4)
    x[1] = 1.5
    host[1] = 1.5
    before = obtained()
    for i in range(2, 64):
        x[i] = i * 0.5
        host[i] = i * 0.5
    assert obtained() == before
    assert torch.equal(x.cpu(), host)


def test_new_scalars_and_seeds_compile_once() -> None:
    x = torch.ones(9, device="neuron")
    torch.manual_seed(0)
    (x * 0.5 + 1.25, torch.randn(9, device="neuron"), x.clamp(-0.5, 0.5), torch.nn.functional.dropout(x, 0.3))
    before = obtained()
    for i in range(20):
        torch.manual_seed(i)
        assert torch.equal((x * i).cpu(), torch.full((9,), float(i))) or i == 0
        x * (0.1 * i) + (0.2 * i + 0.1)
        torch.randn(9, device="neuron")
        x.clamp(-0.1 * i, 0.1 * i)
    assert obtained() - before <= 1  # x * i has an integer scalar: another dtype, another key


def test_flattened_keys_keep_layouts_apart() -> None:
    a = torch.randn(4, 6).to("neuron")
    b = torch.randn(6, 4).to("neuron").t()
    before = obtained()
    assert (a + a).stride() == (6, 1)
    assert (b + b).stride() == (1, 4)
    assert torch.equal((b + b).cpu(), b.cpu() * 2)
    c = torch.randn(24).to("neuron")
    assert torch.equal((c + c).cpu(), c.cpu() * 2)
    assert obtained() - before <= 2  # one for 24 elements, one for the multiplication-free add
