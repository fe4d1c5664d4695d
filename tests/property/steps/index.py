"""Reading by index."""

from __future__ import annotations

from typing import Final

import torch
from hypothesis import strategies as st

from tests.property.scene import NotApplicable, Scene
from tests.property.steps.view import slice_text

_INDEX_DTYPES: Final = (torch.int64, torch.int64, torch.int64, torch.int32)


def indices(s: Scene, size: int, count: int, *, unique: bool = False, signed: bool = True) -> list[int]:
    """`count` places below `size`, now and then one that is not there."""
    if size == 0:
        if count:
            raise NotApplicable
        return []
    if unique:
        return s.draw(st.permutations(range(size)))[:count]
    places = [s.integer(-size if signed else 0, size - 1) for _ in range(count)]
    if places and s.chance(3):
        places[-1] = size
    return places


def index_literal(places: list[int], dtype: torch.dtype = torch.int64, shape: str = "") -> str:
    return f"torch.tensor({places}, dtype={dtype}, device=D){shape}"


def advanced(s: Scene, t: str, *, unique: bool = False) -> tuple[str, bool]:
    """An index expression with tensors, masks, slices, integers; whether it may point nowhere."""
    shape = s[t].shape
    if s.chance(25):
        mask = s.draw_mask(shape[: s.integer(0 if s.chance(5) else 1, len(shape))])
        return mask, True
    items: list[str] = []
    tensors_used = 0
    count = s.integer(1, 3)
    for n in shape[: s.integer(1, len(shape))]:
        kind = s.pick(("tensor", "slice", "tensor", "int", "list"))
        if unique and tensors_used and kind in ("tensor", "list"):
            kind = "slice"
        if kind == "slice":
            items.append(slice_text(s, n))
        elif kind == "int":
            items.append(str(indices(s, n, 1, unique=unique)[0]))
        else:
            places = indices(s, n, min(count, n) if unique else count, unique=unique)
            if unique and len(places) != count:
                places = places[:count]
            column = ".unsqueeze(1)" if kind == "tensor" and not tensors_used and s.chance(15) and not unique else ""
            items.append(index_literal(places, s.pick(_INDEX_DTYPES), column) if kind == "tensor" else str(places))
            tensors_used += 1
    if s.chance(10):
        items.insert(s.integer(0, len(items)), "None")
    if s.chance(10):
        items.append("...")
    return ", ".join(items), True


def _get(s: Scene) -> None:
    t = s.tensor(lambda t: t.dim() > 0)
    index, data = advanced(s, t)
    s.do(f"{t}[{index}]", "index", data=data)


def _select(s: Scene) -> None:
    t = s.tensor()
    dim = s.dim(s[t])
    n = s[t].shape[dim] if -s[t].dim() <= dim < s[t].dim() else 1
    index = index_literal(indices(s, n, s.integer(0, 3), signed=False), s.pick(_INDEX_DTYPES))
    s.do(f"{t}.index_select({dim}, {index})", "index_select", data=True)


def _gather(s: Scene) -> None:
    t = s.tensor(lambda t: 0 < t.dim() < 4 and t.numel() > 0)
    dim = s.integer(0, s[t].dim() - 1)
    shape = [s.integer(1, n) for n in s[t].shape]
    count = 1
    for n in shape:
        count *= n
    if count > 12:
        raise NotApplicable
    index = index_literal(indices(s, s[t].shape[dim], count, signed=False), shape=f".reshape({tuple(shape)})")
    form = s.pick(("gather", "take_along_dim"))
    code = f"{t}.gather({dim}, {index})" if form == "gather" else f"torch.take_along_dim({t}, {index}.abs(), {dim})"
    s.do(code, form, data=True)


def _take(s: Scene) -> None:
    t = s.tensor(lambda t: t.numel() > 0)
    s.do(f"{t}.take({index_literal(indices(s, s[t].numel(), s.integer(1, 3)))})", "take", data=True)


def _masked_select(s: Scene) -> None:
    t = s.tensor()
    s.do(f"{t}.masked_select({s.operand(t, numbers=False)} > 0)", "masked_select")


def _nonzero(s: Scene) -> None:
    t = s.tensor()
    form = s.pick(("torch.nonzero({})", "torch.argwhere({})", "torch.nonzero({}, as_tuple=True)"))
    s.do(form.format(t), "nonzero")


def _copies(s: Scene) -> None:
    t = s.tensor(lambda t: t.dim() > 0)
    form = s.pick(
        ("flip", "roll", "repeat", "tile", "repeat_interleave", "rot90", "tril", "triu", "diag_embed", "fliplr")
    )
    d = s.dim(s[t])
    code = {
        "flip": lambda: f"{t}.flip({s.dims(s[t])})",
        "roll": lambda: f"{t}.roll({s.integer(-2, 3)}, {d})",
        "repeat": lambda: f"{t}.repeat({', '.join(str(s.integer(1, 2)) for _ in s[t].shape)})",
        "tile": lambda: f"{t}.tile({s.integer(1, 2)}, {s.integer(1, 2)})",
        "repeat_interleave": lambda: f"{t}.repeat_interleave({s.integer(1, 2)}, {d})",
        "rot90": lambda: f"{t}.rot90({s.integer(-1, 3)}, {'(0, 1)' if s[t].dim() > 1 else '(0,)'})",
        "tril": lambda: f"{t}.tril({s.integer(-1, 1)})",
        "triu": lambda: f"{t}.triu({s.integer(-1, 1)})",
        "diag_embed": lambda: f"{t}.diag_embed({s.integer(-1, 1)})",
        "fliplr": lambda: f"{t}.fliplr()",
    }[form]()
    if s[t].numel() > 24:
        raise NotApplicable
    s.do(code, form)


STEPS: Final = (_get, _select, _gather, _masked_select, _copies, _take, _nonzero, _get, _copies)
