"""Matrix products."""

from __future__ import annotations

from typing import Final

import torch

from tests.property.scene import Scene


def _alike(s: Scene, t: str) -> str:
    """Mostly the same dtype and a shape that goes with it, turned if need be."""
    if s.chance(10):
        return s.tensor()
    shape, dtype = s[t].shape, s[t].dtype
    if s.chance(50):
        return s.start((shape[-1], 2) if len(shape) == 2 and shape[-1] else shape[-1:], dtype)
    other = s.tensor(lambda x: x.dtype == dtype and x.dim() > 0)
    return f"{other}.mT" if s[other].dim() > 1 and s[other].shape[-2] != shape[-1] else other


def _numeric(t: torch.Tensor) -> bool:
    return 0 < t.dim() < 4 and t.dtype is not torch.bool


def _matmul(s: Scene) -> None:
    a = s.tensor(_numeric)
    b = _alike(s, a)
    form = s.pick(("matmul", "mm", "mv", "dot", "outer", "bmm", "inner"))
    s.do(f"torch.{form}({a}, {b})", form, "sum")


def _operator(s: Scene) -> None:
    a = s.tensor(_numeric)
    s.do(f"{a} @ {_alike(s, a)}", "@", "sum")


def _addmm(s: Scene) -> None:
    a = s.tensor(lambda t: _numeric(t) and t.dim() == 2)
    b = s.start((s[a].shape[1], 2), s[a].dtype)
    c = s.tensor(lambda t: t.dtype == s[a].dtype) if s.chance(40) else s.start((2,), s[a].dtype)
    whole = not (s[a].is_floating_point() or s[a].is_complex())
    beta = s.pick(("1", "0", "2") if whole else ("1", "0", "0.5"))
    alpha = s.pick(("1", "2") if whole else ("1", "0.5"))  # 0 with NaN is the BLAS library's affair
    s.do(f"torch.addmm({c}, {a}, {b}, beta={beta}, alpha={alpha})", "addmm", "sum")


def _einsum(s: Scene) -> None:
    a = s.tensor(lambda t: _numeric(t) and t.dim() == 2)
    equation = s.pick(("ij,kj->ik", "ij,ij->j", "ij,kl->", "ij,ij->ij"))
    s.do(f"torch.einsum({equation!r}, {a}, {a})", "einsum", "sum")


STEPS: Final = (_matmul, _operator, _addmm, _einsum)
