"""Equality of tensors of any layout, one on `neuron` and one on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

TOLERANCE = {torch.float64: 1e-6, torch.complex128: 1e-6, torch.float16: 1e-2, torch.bfloat16: 2e-2}
ROWS = (torch.sparse_csr, torch.sparse_bsr)


def to_device(x: Any) -> Any:
    """Tensors as new leaves on the device; everything else as it is."""
    return tree_map(lambda t: leaf(t, "neuron") if isinstance(t, Tensor) else t, x)


def leaf(t: Tensor, device: str) -> Tensor:
    moved = t.detach().clone() if device == "cpu" else t.detach().to(device)
    return moved.requires_grad_(t.requires_grad)


def tensors(x: Any) -> list[Tensor]:
    return [t for t in tree_leaves(x) if isinstance(t, Tensor)]


def parts(t: Tensor) -> list[Tensor]:
    """The dense tensors that a tensor is made of; an uncoalesced one's in the order of its indices."""
    if t.layout == torch.sparse_coo:
        t = t if t.is_coalesced() else t.coalesce()
        return [t.indices(), t.values()]
    if t.layout == torch.strided:
        return [t]
    if t.layout in ROWS:
        return [t.crow_indices(), t.col_indices(), t.values()]
    return [t.ccol_indices(), t.row_indices(), t.values()]


def agree(run: Callable[..., Any], *args: Any) -> Any:
    """Runs on both devices and compares; the device's result."""
    want = run(*tree_map(lambda t: leaf(t, "cpu") if isinstance(t, Tensor) else t, args))
    got = run(*to_device(args))
    assert_same(got, want)
    return got


def agree_backward(run: Callable[..., Any], *args: Any) -> None:
    """The result and the gradients of all tensors that require them."""
    wanted = tree_map(lambda t: leaf(t, "cpu") if isinstance(t, Tensor) else t, args)
    have = to_device(args)
    want, got = run(*wanted), run(*have)
    assert_same(got, want)
    cotangents = [t.detach() * 0.7 for t in tensors(want)]
    for x, y in zip(_gradients(got, have, to_device(cotangents)), _gradients(want, wanted, cotangents), strict=True):
        assert_same(x, y)


def _gradients(out: Any, inputs: Any, cotangents: list[Tensor]) -> Sequence[Tensor]:
    return torch.autograd.grad(tensors(out), [t for t in tensors(inputs) if t.requires_grad], cotangents)


def coo(*size: int, nnz: int, sparse: int | None = None, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """A COO tensor with entries at equal places: the same for equal arguments, so that few programs are compiled."""
    draw = torch.Generator().manual_seed(seed)
    sparse = len(size) if sparse is None else sparse
    indices = torch.stack([torch.randint(0, n, (nnz,), generator=draw) for n in size[:sparse]])
    kind = torch.float64 if dtype == torch.int64 else dtype
    values = torch.randn(nnz, *size[sparse:], dtype=kind, generator=draw).mul(3).to(dtype)
    return torch.sparse_coo_tensor(indices, values, size, check_invariants=True)


def holey(*size: int, seed: int = 0) -> Tensor:
    """A dense tensor of which about half is zero."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=draw) * (torch.rand(size, generator=draw) > 0.5)


def assert_same(got: Any, want: Any, *, values: bool = True) -> None:
    """Layout, dtype, shape, coalescence, indices and values."""
    have, wanted = tree_leaves(got), tree_leaves(want)
    assert len(have) == len(wanted)
    for x, y in zip(have, wanted, strict=True):
        if not isinstance(y, Tensor):
            assert x == y
            continue
        assert x.device.type == "neuron"
        same_tensor(x.detach().cpu(), y.detach(), values=values)


def same_tensor(x: Tensor, y: Tensor, *, values: bool) -> None:
    assert (x.layout, x.dtype, x.shape) == (y.layout, y.dtype, y.shape)
    if x.layout == torch.sparse_coo:
        assert (x.sparse_dim(), x.is_coalesced()) == (y.sparse_dim(), y.is_coalesced()), (x, y)
    if not values:
        return
    tolerance = TOLERANCE.get(y.dtype, 1e-4)
    for a, b in zip(parts(x), parts(y), strict=True):
        a, b = a.resolve_conj().resolve_neg(), b.resolve_conj().resolve_neg()
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
