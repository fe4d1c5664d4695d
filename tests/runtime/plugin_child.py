"""Runs on a plugin in its own process, and prints what it saw as JSON."""

import json
import os
from pathlib import Path

import torch
from torch import nn

import torch_neuronx
from torch_neuronx import debug
from torch_neuronx.runtime.targets import runtime


def train(device: str) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = torch.randn(32, 8).to(device), torch.randint(0, 3, (32,)).to(device)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def written_view() -> tuple[list[list[float]], bool]:
    x = torch.zeros(4, 4, device="neuron")
    block = x[1:3, ::2]
    block += 1
    x[0].fill_(7)
    return x.tolist(), torch.equal(x[1:3, ::2], block)


def wrong_index() -> str:
    try:
        torch.arange(3, device="neuron")[torch.tensor([7]).to("neuron")]
        torch.neuron.synchronize()
    except IndexError as error:
        return str(error)
    return ""


def donated_while_read() -> list[list[float]]:
    """A host copy taken before an in-place write must keep the old value."""
    x = torch.arange(4.0).to("neuron")
    before = x.cpu()
    x.add_(1)
    return [before.tolist(), x.tolist()]


def resident_megabytes_added() -> float:
    """By reading 300 arrays of a megabyte: a host copy that keeps its array alive would keep them all."""

    def resident() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    x = torch.zeros(1 << 18)
    for i in range(350):
        if i == 50:
            before = resident()
        x.to("neuron").add_(i).cpu()
    return resident() - before


a, b = torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(3, 4)
seen = {
    "host_visible": runtime().capabilities.host_visible,
    "fingerprint": runtime().fingerprint,
    "name": torch.neuron.get_device_name(),
    "target": torch.neuron.get_device_properties().target,
    "add": (a.to("neuron") + a.to("neuron")).tolist(),
    "matmul": (a.to("neuron") @ b.to("neuron")).cpu().tolist(),
    "expected_matmul": (a @ b).tolist(),
    "bfloat16": a.bfloat16().to("neuron").mul(2).cpu().float().tolist(),
    "empty": list(torch.empty(0, 3, device="neuron").cpu().shape),
    "view": written_view(),
    "nonzero": torch.nonzero(torch.tensor([0, 1, 1]).to("neuron")).tolist(),
    "resident_megabytes_added": resident_megabytes_added(),
    "donated": donated_while_read(),
    "losses": {device: train(device) for device in ("cpu", "neuron")},
    "wrong_index": wrong_index(),
    "fallbacks_before_linalg": torch_neuronx.get_fallback_ops(),
    "cholesky": torch.linalg.cholesky(4 * torch.eye(2).to("neuron")).tolist(),
    "fallback_reasons": [[r.op, r.reason] for r in debug.fallback_report()],
    "counters": debug.counters(),
}
print(json.dumps(seen))
