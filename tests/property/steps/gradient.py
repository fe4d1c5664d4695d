"""Differentiable steps: real arithmetic, views, reductions, and writes to what is no leaf."""

from __future__ import annotations

from typing import Final

import torch

from tests.property import tensors
from tests.property.scene import NotApplicable, Scene
from tests.property.steps import view

_UNARY: Final = ("exp", "tanh", "sigmoid", "sin", "square", "neg", "relu", "cos", "erf", "atan", "abs", "softmax")
_BINARY: Final = ("mul", "add", "sub", "div", "maximum", "minimum", "where", "atan2")
_REDUCED: Final = ("sum", "mean", "logsumexp", "cumsum", "amax", "prod", "norm", "var")
_IN_PLACE: Final = ("mul_", "add_", "sub_", "copy_", "masked_fill_", "clamp_", "tanh_", "zero_", "exp_", "setitem")


def _tensor(s: Scene, wanted=lambda t: True) -> str:
    return s.tensor(lambda t: t.is_floating_point() and wanted(t))


def _other(s: Scene, t: str) -> str:
    dtype = s[t].dtype

    def good(x: torch.Tensor) -> bool:
        pairs = zip(reversed(x.shape), reversed(s[t].shape), strict=False)
        return x.dtype == dtype and x.dim() <= s[t].dim() and all(n in (m, 1) for n, m in pairs)

    return s.tensor(good)


def _unary(s: Scene) -> None:
    op, t = s.pick(_UNARY), _tensor(s)
    s.do(f"{t}.softmax(-1)" if op == "softmax" else f"{t}.{op}()", op, "sum")


def _binary(s: Scene) -> None:
    op, t = s.pick(_BINARY), _tensor(s)
    other = _other(s, t)
    code = f"torch.where({other} > 0.5, {t}, {other})" if op == "where" else f"torch.{op}({t}, {other})"
    s.do(code, op, "sum")


def _reduced(s: Scene) -> None:
    op, t = s.pick(_REDUCED), _tensor(s, lambda t: t.dim() > 0 and t.numel() > 0)
    s.do(f"{t}.{op}(dim={s.integer(0, s[t].dim() - 1)})", op, "sum")


def _indexed(s: Scene) -> None:
    t = _tensor(s, lambda t: t.dim() > 0 and t.shape[0] > 0)
    n = s[t].shape[0]
    places = f"torch.tensor({[s.integer(0, n - 1) for _ in range(2)]}, device=D)"
    form = s.pick((f"{t}[{places}]", f"{t}.index_select(0, {places})", f"torch.cat([{t}, {t}])", f"{t}.flip(0)"))
    s.do(form, "indexed", "sum")


def _product(s: Scene) -> None:
    t = _tensor(s, lambda t: t.dim() == 2)
    s.do(f"{t} @ {t}.mT", "@", "sum")


def _in_place(s: Scene) -> None:
    def writable(t: torch.Tensor) -> bool:
        leaf = t.is_leaf and t.requires_grad and not s.chance(5)
        return not leaf and not tensors.overlaps(t)

    op, t = s.pick(_IN_PLACE), _tensor(s, writable)
    if op in ("mul_", "add_", "sub_", "copy_"):
        other = _other(s, t)
        if s[other].untyped_storage()._cdata == s[t].untyped_storage()._cdata:
            raise NotApplicable
        code = f"{t}.{op}({other})"
    elif op == "setitem":
        if s[t].dim() == 0:
            raise NotApplicable
        code = f"{t}[{view.slice_text(s, s[t].shape[0])}] = 0.5"
    else:
        code = {"masked_fill_": f"{t}.masked_fill_({t}.detach() > 1, 0.25)", "clamp_": f"{t}.clamp_(-1.5, 1.5)"}.get(
            op, f"{t}.{op}()"
        )
    s.do(code, op, "sum", statement=True)


STEPS: Final = (_unary, _binary, _reduced, _in_place, _indexed, _binary, _product, _in_place)
VIEWS: Final = (view._turned, view._view, view._flatten, view._basic_index, view._narrow, view._expand, view._diagonal)
