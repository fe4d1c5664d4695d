"""Conversions and copies."""

from __future__ import annotations

from typing import Final

from tests.property import tensors
from tests.property.scene import NotApplicable, Scene

_FORMATS: Final = ("preserve_format", "contiguous_format", "channels_last")


def _to(s: Scene) -> None:
    t, dtype = s.tensor(), s.dtype()
    if not tensors.fits(s[t], dtype):
        raise NotApplicable
    extra = s.pick(("", "", ", copy=True", f", memory_format=torch.{s.pick(_FORMATS)}"))
    s.do(f"{t}.to({dtype}{extra})", "to")


def _clone(s: Scene) -> None:
    t = s.tensor()
    form = s.pick(("clone(memory_format=torch.{})", "contiguous(memory_format=torch.{})", "clone()"))
    chosen = s.pick(_FORMATS)
    if form.startswith("contiguous") and chosen == "preserve_format":
        chosen = "contiguous_format"
    s.do(f"{t}.{form.format(chosen)}", form.partition("(")[0])


def _like(s: Scene) -> None:
    t = s.tensor()
    form = s.pick(("zeros_like({})", "full_like({}, 3)", "ones_like({}, dtype=torch.float32)",
                   "zeros_like({}, memory_format=torch.contiguous_format)"))  # fmt: skip
    s.do(f"torch.{form.format(t)}", form.partition("(")[0])


def _new(s: Scene) -> None:
    t = s.tensor()
    shape = s.pick(tensors.SHAPES)
    s.do(s.pick((f"{t}.new_zeros({shape})", f"{t}.new_full({shape}, 2)", f"{t}.new_ones({shape})")), "new")


STEPS: Final = (_to, _clone, _to, _like, _new)
