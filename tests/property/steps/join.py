"""Putting tensors together."""

from __future__ import annotations

from typing import Final

import torch

from tests.property.scene import Scene
from tests.property.steps.elementwise import out_of


def _cat(s: Scene) -> None:
    t = s.tensor(lambda t: t.numel() <= 24)
    dim = s.dim(s[t])
    parts = [t]

    def alike(x: torch.Tensor) -> bool:
        return x.shape == s[t].shape

    for _ in range(s.integer(1, 2)):
        parts.append(s.tensor(alike) if s.chance(85) else s.tensor(lambda x: x.numel() <= 24))
    form = s.pick(("cat", "stack", "hstack", "vstack", "cat"))
    listed = f"[{', '.join(parts)}]"
    if form in ("hstack", "vstack"):
        s.do(f"torch.{form}({listed})", form)
    elif form == "cat" and s.chance(20):  # stack lets out= grow before it looks at its dtype
        s.do(f"torch.{form}({listed}, {dim}, out={out_of(s, *parts)})", f"{form} out", statement=True)
    else:
        s.do(f"torch.{form}({listed}, {dim})", form)


def _broadcast(s: Scene) -> None:
    t = s.tensor()
    s.do(f"torch.broadcast_tensors({t}, {s.operand(t, numbers=False)})", "broadcast_tensors")


def _start(s: Scene) -> None:
    s.start()


STEPS: Final = (_cat, _start, _broadcast, _cat, _start)
