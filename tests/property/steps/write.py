"""Writing by index, in place and functionally."""

from __future__ import annotations

from typing import Final

import torch

from tests.property import tensors
from tests.property.scene import NotApplicable, Scene
from tests.property.steps.index import advanced, index_literal, indices
from tests.property.steps.view import slice_text


def _value(s: Scene, t: str) -> str:
    """A number, or a tensor whose conversion is specified."""
    if s.chance(50):
        return s.number()
    if s.chance(30):
        return s.start((), s[t].dtype)
    return s.beside(t, lambda x: tensors.fits(x, s[t].dtype))


def _set(s: Scene) -> None:
    t = s.target(lambda t: t.dim() > 0, plain=True)
    index, data = advanced(s, t, unique=True)
    s.do(f"{t}[{index}] = {_value(s, t)}", "setitem", statement=True, data=data)


def _set_slice(s: Scene) -> None:
    t = s.target(lambda t: t.dim() > 0)
    items = [slice_text(s, n) for n in s[t].shape[: s.integer(1, s[t].dim())]]
    s.do(f"{t}[{', '.join(items)}] = {_value(s, t)}", "setitem slice", statement=True)


def _augmented(s: Scene) -> None:
    t = s.target(lambda t: t.dim() > 0)
    items = [slice_text(s, n) for n in s[t].shape[: s.integer(1, s[t].dim())]]
    value = s.number() if s.chance(60) else s.beside(t)
    op = s.pick(("+", "*", "-"))
    precision = "sum" if s[t].is_complex() else "exact"
    s.do(f"{t}[{', '.join(items)}] {op}= {value}", f"setitem {op}", precision, statement=True)


def _along(s: Scene) -> None:
    """index_add, index_copy, index_fill."""
    op = s.pick(("index_add", "index_copy", "index_fill"))
    here = s.chance(60)
    t = s.target(plain=True) if here else s.tensor()
    dim = s.dim(s[t])
    n = s[t].shape[dim] if -s[t].dim() <= dim < s[t].dim() else 1
    # Which class of error index_add has for a place that is not there depends on the kernel that the CPU chose.
    places = [min(p, max(n - 1, 0)) for p in indices(s, n, s.integer(1, 3), unique=op == "index_copy", signed=False)]
    index = index_literal(places)
    name = op + "_" * here
    if op == "index_fill":
        s.do(f"{t}.{name}({dim}, {index}, {s.number()})", name, statement=here, data=True)
        return
    shape = list(s[t].shape)
    if shape and -len(shape) <= dim < len(shape):
        shape[dim] = len(places)
    dtype = s[t].dtype if s.chance(90) else s.dtype()
    source = s.literal(shape, dtype)
    extra = f", alpha={s.pick(('2', '-1', '0.5'))}" if op == "index_add" and s.chance(30) else ""
    s.do(f"{t}.{name}({dim}, {index}, {source}{extra})", name, "sum", statement=here, data=True)


def _scatter(s: Scene) -> None:
    op = s.pick(("scatter_add", "scatter", "scatter_reduce"))
    here = s.chance(60)

    def small(t: torch.Tensor) -> bool:
        return 0 < t.dim() < 4 and 0 < t.numel() <= 24

    t = s.target(small, plain=True) if here else s.tensor(small)
    dim = s.integer(0, s[t].dim() - 1)
    shape = [s.integer(1, min(n, 2)) for n in s[t].shape]
    if op == "scatter":  # one index along dim, so that no place is written twice
        shape[dim] = 1
    count = 1
    for n in shape:
        count *= n
    index = index_literal(indices(s, s[t].shape[dim], count, signed=False), shape=f".reshape({tuple(shape)})")
    name = op + "_" * here
    dtype = s[t].dtype if s.chance(93) else s.dtype()
    source = s.number() if op == "scatter" and s.chance(40) else s.literal(shape, dtype)
    extra = ""
    if op == "scatter_reduce":
        reduce = s.pick(("sum", "prod", "amax", "amin", "mean"))
        extra = f", reduce={reduce!r}, include_self={s.chance(60)}"
    s.do(f"{t}.{name}({dim}, {index}, {source}{extra})", name, "sum", statement=here, data=True)


def _put(s: Scene) -> None:
    t = s.target(lambda t: t.dim() > 0 and t.numel() > 0, plain=True)
    accumulate = s.chance(50)
    if s.chance(40):
        n = s[t].numel()
        places = indices(s, n, s.integer(1, min(n, 3)), unique=not accumulate)
        source = s.literal((len(places),), s[t].dtype)
        s.do(
            f"{t}.put_({index_literal(places)}, {source}, accumulate={accumulate})",
            "put_",
            "sum",
            statement=True,
            data=True,
        )
        return
    n = s[t].shape[0]
    places = indices(s, n, s.integer(1, min(n, 3)), unique=not accumulate)
    if s[t].numel() // n * len(places) > 24:
        raise NotApplicable
    source = s.literal((len(places), *s[t].shape[1:]) if s.chance(60) else (), s[t].dtype)
    s.do(
        f"{t}.index_put_(({index_literal(places)},), {source}, accumulate={accumulate})",
        "index_put_", "sum", statement=True, data=True,
    )  # fmt: skip


def _masked_scatter(s: Scene) -> None:
    t = s.target(lambda t: t.numel() > 0, plain=True)
    mask = s.draw_mask(s[t].shape)
    source = s.beside(t)
    s.do(f"{t}.masked_scatter_({mask}, {source})", "masked_scatter_", statement=True, data=True)


def _scattered_views(s: Scene) -> None:

    def whole(t: torch.Tensor) -> bool:  # of a view, the CPU copies the storage around it, too
        return t.dim() > 0 and t.numel() * t.itemsize == t.untyped_storage().nbytes()

    t = s.tensor(whole)
    dim = s.integer(0, s[t].dim() - 1)
    form = s.pick(("select_scatter", "slice_scatter", "diagonal_scatter"))
    if form == "select_scatter":
        shape = [n for d, n in enumerate(s[t].shape) if d != dim]
        code = f"{t}.select_scatter({s.literal(shape, s[t].dtype)}, {dim}, {s.integer(0, max(s[t].shape[dim] - 1, 0))})"
    elif form == "slice_scatter":
        start = s.integer(0, s[t].shape[dim])
        shape = [s[t].shape[dim] - start if d == dim else n for d, n in enumerate(s[t].shape)]
        code = f"{t}.slice_scatter({s.literal(shape, s[t].dtype)}, {dim}, {start})"
    else:
        if s[t].dim() != 2:
            raise NotApplicable
        code = f"{t}.diagonal_scatter({s.literal((min(s[t].shape),), s[t].dtype)})"
    s.do(code, form)


STEPS: Final = (_set, _set_slice, _augmented, _along, _scatter, _put, _masked_scatter, _scattered_views, _set_slice)
