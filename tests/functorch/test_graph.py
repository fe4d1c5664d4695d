"""What watches or changes the graph: saved-tensor hooks, tensors saved on the CPU, checkpoints, anomaly mode."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import torch_neuronx
from tests.functorch.compare import D, same

F = torch.nn.functional


def _model() -> torch.nn.Sequential:
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 3)
    )


def _gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    return [p.grad.cpu() for p in model.parameters() if p.grad is not None]


def _close(got: list[torch.Tensor], want: list[torch.Tensor]) -> None:
    assert len(got) == len(want) > 0
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)


@pytest.fixture
def plain() -> tuple[torch.nn.Sequential, torch.Tensor, list[torch.Tensor]]:
    """A model, its input, and its gradients on the CPU."""
    model, x = _model(), torch.randn(2, 2, 6, 6)
    reference = copy.deepcopy(model)
    reference(x).square().sum().backward()
    return model.to(D), x.to(D), _gradients(reference)


def test_hooks_see_what_is_saved(plain: Any) -> None:
    model, x, want = plain
    packed: list[torch.device] = []

    def pack(t: torch.Tensor) -> Any:
        packed.append(t.device)
        return t.device, t.cpu()

    with saved_tensors_hooks(pack, lambda kept: kept[1].to(kept[0])):
        loss = model(x).square().sum()
    loss.backward()
    assert len(packed) >= 4 and {d.type for d in packed} == {D}
    _close(_gradients(model), want)


@pytest.mark.parametrize("pin_memory", [False, True])
def test_save_on_cpu(plain: Any, pin_memory: bool) -> None:
    model, x, want = plain
    with save_on_cpu(pin_memory=pin_memory, device_type=D):
        loss = model(x).square().sum()
    loss.backward()
    _close(_gradients(model), want)


def test_hooks_can_be_forbidden() -> None:
    x = torch.ones(3, device=D, requires_grad=True)
    with (
        torch.autograd.graph.disable_saved_tensors_hooks("not here"),
        pytest.raises(RuntimeError, match="not here"),
        saved_tensors_hooks(lambda t: t, lambda t: t),
    ):
        x * x


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints_in_a_model(plain: Any, use_reentrant: bool) -> None:
    model, x, want = plain
    checkpoint_sequential(model, 2, x.requires_grad_(), use_reentrant=use_reentrant).square().sum().backward()
    _close(_gradients(model), want)


def test_checkpoints_under_autocast() -> None:
    def run(device: str) -> torch.Tensor:
        torch.manual_seed(0)
        model, x = torch.nn.Linear(4, 4).to(device), torch.linspace(-1, 1, 8).view(2, 4).to(device)
        with torch.autocast(device, torch.bfloat16):
            out = checkpoint(lambda t: F.gelu(model(t)), x.requires_grad_(), use_reentrant=False)
        assert out.dtype is torch.bfloat16
        out.float().sum().backward()
        return x.grad.cpu()

    torch.testing.assert_close(run(D), run("cpu"), rtol=2e-2, atol=1e-2)


def test_selective_checkpoints() -> None:
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if "mm" in str(op) else CheckpointPolicy.PREFER_RECOMPUTE

    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x.requires_grad_()
        out = checkpoint(
            lambda t: torch.mm(t, w).sin().cos(),
            x,
            use_reentrant=False,
            context_fn=lambda: create_selective_checkpoint_contexts(policy),
        )
        return torch.autograd.grad(out.sum(), x)[0]

    torch_neuronx.clear_op_tracking()
    same(run, torch.randn(3, 4), torch.randn(4, 2))
    assert torch_neuronx.get_executed_ops()["aten::mm"] == 2, "one forward, one backward, none again"


def test_a_checkpoint_that_differs_is_refused() -> None:
    calls = [0]

    def block(x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return x.sin() if calls[0] == 1 else x[:2].sin()

    out = checkpoint(block, torch.ones(3, device=D, requires_grad=True), use_reentrant=False)
    with pytest.raises(torch.utils.checkpoint.CheckpointError):
        out.sum().backward()


def test_anomaly_mode_names_the_forward_line() -> None:
    x = torch.zeros(3, device=D, requires_grad=True)
    with pytest.warns(UserWarning, match="Error detected in SqrtBackward0"), torch.autograd.detect_anomaly():  # noqa: SIM117
        with pytest.raises(RuntimeError, match=r"'SqrtBackward0' returned nan values in its 0th output"):
            (x.sqrt() * 0).sum().backward()


def test_anomaly_mode_without_an_anomaly() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.set_detect_anomaly(True):
            return torch.autograd.grad(x.requires_grad_().exp().sum(), x)[0]

    same(run, torch.randn(4))


def test_hooks_of_tensors_and_nodes() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        seen: list[torch.Tensor] = []
        x.requires_grad_()
        x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
        y = x * 3
        y.register_hook(lambda g: g * 2)
        y.grad_fn.register_prehook(lambda g: seen.append(g[0].clone()))
        y.sum().backward()
        return [*seen, x.grad]

    same(run, torch.randn(4))


def test_a_write_after_saving_is_refused() -> None:
    x = torch.ones(3, device=D, requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_allow_mutation_on_saved_tensors() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        x.requires_grad_()
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            y = x.exp()
            y.sin_()
            return torch.autograd.grad(y.sum(), x)[0]

    same(run, torch.randn(4))
