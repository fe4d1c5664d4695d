"""The same call on CPU torch and on neuron: arguments copied over, results compared with their dtypes and shapes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map

TOLERANCE = {
    torch.float64: (1e-7, 1e-9),
    torch.complex128: (1e-7, 1e-9),
    torch.float32: (1e-4, 1e-5),
    torch.complex64: (1e-4, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.float16: (1e-3, 1e-3),
}


def tensors(x: Any) -> list[torch.Tensor]:
    return [t for leaf in tree_leaves(x, is_leaf=_packed) for t in _inner(leaf)]


def _packed(x: Any) -> bool:
    return isinstance(x, PackedSequence)


def _inner(leaf: Any) -> list[torch.Tensor]:
    if _packed(leaf):
        return [leaf.data]
    return [leaf] if isinstance(leaf, torch.Tensor) else []


def on(x: Any, device: str) -> Any:
    """A copy on `device`; tensors that want gradients are leaves there."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return _laid_out_like(leaf, device).requires_grad_(leaf.requires_grad)
        return leaf.to(device) if _packed(leaf) else copy.deepcopy(leaf)

    return tree_map(one, x, is_leaf=_packed)


def _laid_out_like(t: torch.Tensor, device: str) -> torch.Tensor:
    if t.layout != torch.strided:
        return t.detach().clone().to(device)
    storage = torch.empty(0, dtype=t.dtype).set_(t.detach().untyped_storage()).clone().to(device)
    return storage.as_strided(t.shape, t.stride(), t.storage_offset())


def equal(got: Any, want: Any, what: str) -> None:
    """Values within the dtype's tolerance; dtype, shape and significant strides exactly."""
    found, wanted = tensors(got), tensors(want)
    assert len(found) == len(wanted), f"{what}: {len(found)} tensors, CPU torch has {len(wanted)}"
    for i, (g, w) in enumerate(zip(found, wanted, strict=True)):
        assert g.device.type == "neuron" or w.dim() == 0, f"{what} {i} is on {g.device}"
        assert (g.dtype, g.shape) == (w.dtype, w.shape), f"{what} {i}: {g.dtype}{g.shape}, CPU {w.dtype}{w.shape}"
        rtol, atol = TOLERANCE.get(w.dtype, (0, 0))
        a, b = (x.detach().cpu() for x in (g, w))
        a, b = (x.to_dense() if x.layout != torch.strided else x for x in (a, b))
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m, i=i: f"{what} {i}: {m}")


@dataclass(frozen=True)
class Outcome:
    """What one call gave on both devices, and how to compute it in float64 on the CPU."""

    what: str
    got: Any
    want: Any
    exact: Callable[[], Any]


def equal_or_no_further(outcomes: list[Outcome]) -> None:
    """As `equal`; else, all calls together, no further from the same computation in float64 than CPU torch is.

    The CPU adds the products of a convolution in another order on another processor, and rounds in between. Together,
    because of the few elements of one small call any may be several rounding steps off, on either device.
    """
    try:
        for x in outcomes:
            equal(x.got, x.want, x.what)
    except AssertionError as apart:
        wanted = [t for x in outcomes for t in tensors(x.want)]
        if "not close" not in str(apart) or any(t.dtype is torch.float64 for t in wanted):
            raise
        true = [t for x in outcomes for t in tensors(x.exact())]
        ours, theirs = _distance([t for x in outcomes for t in tensors(x.got)], true), _distance(wanted, true)
        assert ours <= 1.25 * theirs, f"{apart}\n{ours} of the size from float64, CPU {theirs}"


def _distance(found: list[torch.Tensor], true: list[torch.Tensor]) -> float:
    """Root mean square over all elements, each by the largest of its tensor."""
    pairs = [(f.detach().cpu().double(), t.detach()) for f, t in zip(found, true, strict=True) if t.numel()]
    parts = [((f - t) / t.abs().max().clamp_min(1e-30)).flatten() for f, t in pairs]
    return float(torch.cat(parts).square().mean().sqrt())


def same_refusal(refused: Exception, call: Callable[[], Any]) -> None:
    """What CPU torch refuses is refused here; a dtype that only its kernels lack may work."""
    if "not implemented for" in str(refused):
        return
    with pytest.raises((type(refused), RuntimeError, TypeError)):
        for t in tensors(call()):
            t.cpu()


def repeats(call: Callable[[], Any]) -> bool:
    """Whether the CPU gives the same under two seeds: otherwise there are no values to compare."""
    runs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        runs.append([t.detach() for t in tensors(call())])
    return all(
        torch.equal(a, b) or bool((a.isnan() == b.isnan()).all() and a.isnan().any())
        for a, b in zip(*runs, strict=True)
    )
