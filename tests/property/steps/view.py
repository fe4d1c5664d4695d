"""Views: nothing is computed, but what they say about memory is used by all that follows."""

from __future__ import annotations

from typing import Final

import torch
from hypothesis import strategies as st

from tests.property import tensors
from tests.property.scene import NotApplicable, Scene


def slice_text(s: Scene, size: int) -> str:
    start = s.integer(-size, size) if s.chance(60) else None
    stop = s.integer(-size - 1, size + 1) if s.chance(50) else None
    step = s.integer(1, 3) if s.chance(40) else None
    text = ":".join("" if x is None else str(x) for x in (start, stop))
    return text + (f":{step}" if step else "")


def _basic_index(s: Scene) -> None:
    t = s.tensor(lambda t: t.dim() > 0)
    items = [slice_text(s, n) for n in s[t].shape[: s.integer(1, s[t].dim())]]
    if s.chance(20):
        items.insert(s.integer(0, len(items)), "None")
    if s.chance(25) and s[t].shape[0]:
        items[0] = str(s.integer(-s[t].shape[0], s[t].shape[0] - 1))
    if s.chance(20):
        items = ["...", items[-1]]
    s.do(f"{t}[{', '.join(items)}]", "slice")


def _select(s: Scene) -> None:
    t = s.tensor()
    dim = s.dim(s[t])
    n = s[t].shape[dim] if -s[t].dim() <= dim < s[t].dim() else 1
    s.do(f"{t}.select({dim}, {s.integer(-n, n)})", "select")


def _narrow(s: Scene) -> None:
    t = s.tensor(lambda t: t.dim() > 0)
    dim = s.integer(0, s[t].dim() - 1)
    start = s.integer(0, s[t].shape[dim])
    s.do(f"{t}.narrow({dim}, {start}, {s.integer(0, s[t].shape[dim] - start + s.chance(5))})", "narrow")


def _turned(s: Scene) -> None:
    t = s.tensor()
    form = s.pick(("t", "transpose", "permute", "movedim", "mT", "swapaxes", "T"))
    if form in ("transpose", "swapaxes", "movedim"):
        s.do(f"{t}.{form}({s.dim(s[t])}, {s.dim(s[t])})", form)
    elif form == "permute":
        order = s.draw(st.permutations(range(s[t].dim())))
        s.do(f"{t}.permute({tuple(order)})", form)
    else:
        s.do(f"{t}.t()" if form == "t" else f"{t}.{form}", form)


def _expand(s: Scene) -> None:
    t = s.tensor()
    shape = [s.pick((2, 3, 1)) if n == 1 else s.pick((n, -1)) for n in s[t].shape]
    if s.chance(40) and len(shape) < 4:
        shape.insert(0, s.pick((2, 1, 3)))
    s.do(f"{t}.{s.pick(('expand', 'broadcast_to'))}({tuple(shape)})", "expand")


def _diagonal(s: Scene) -> None:
    t = s.tensor(lambda t: t.dim() > 1)
    a, b = s.dim(s[t]), s.dim(s[t])
    s.do(f"{t}.diagonal({s.integer(-2, 2)}, {a}, {b})", "diagonal")


def _as_strided(s: Scene) -> None:
    t = s.tensor(lambda t: t.untyped_storage().nbytes() >= t.itemsize and not t.is_conj())
    room = s[t].untyped_storage().nbytes() // s[t].itemsize
    sizes, strides, last = [], [], 0
    for _ in range(s.integer(1, 3)):
        stride = s.integer(0 if s.chance(10) else 1, 4)
        size = s.integer(1, 3)
        if last + (size - 1) * stride >= room:
            size = 1
        sizes.append(size)
        strides.append(stride)
        last += (size - 1) * stride
    offset = s.integer(0, room - 1 - last) if s.chance(60) else 0
    s.do(f"{t}.as_strided({tuple(sizes)}, {tuple(strides)}, {offset})", "as_strided")


def _unfold(s: Scene) -> None:
    t = s.tensor(lambda t: t.dim() < 4)
    dim = s.dim(s[t])
    s.do(f"{t}.unfold({dim}, {s.integer(0, 3)}, {s.integer(1, 2)})", "unfold")


def _shapes(n: int) -> list[tuple[int, ...]]:
    pairs = [(a, n // a) for a in (1, 2, 3, 4, n) if a and n % a == 0]
    return [(n,), (-1,), *pairs, *[(a, 1, b) for a, b in pairs], *[(2, -1)] * (n % 2 == 0), (n + 1,)]


def _view(s: Scene) -> None:
    t = s.tensor()
    shape = s.pick(_shapes(s[t].numel()))
    form = s.pick(("view", "reshape"))
    s.do(f"{t}.{form}({shape})", form)


def _flatten(s: Scene) -> None:
    t = s.tensor()
    form = s.pick(("flatten", "ravel", "squeeze", "unsqueeze", "squeeze one", "flatten some"))
    if form == "flatten some":
        s.do(f"{t}.flatten({s.dim(s[t])}, {s.dim(s[t])})", "flatten")
    elif form == "squeeze one":
        s.do(f"{t}.squeeze({s.dims(s[t])})", "squeeze")
    elif form == "unsqueeze":
        s.do(f"{t}.unsqueeze({s.integer(-s[t].dim() - 1, s[t].dim())})", form)
    else:
        s.do(f"{t}.{form}()", form)


def _other_dtype(s: Scene) -> None:
    t = s.tensor(lambda t: t.dtype is not torch.bool and not t.is_conj())
    kinds = [d for d in (*tensors.DTYPES, torch.complex128) if d is not torch.bool]
    if s[t].dtype is torch.uint8:
        kinds.append(torch.uint8)
    s.do(f"{t}.view({s.pick(kinds)})", "view dtype")


def _complex(s: Scene) -> None:
    t = s.tensor(lambda t: t.is_complex() or (t.is_floating_point() and t.dim() > 0 and t.dtype is not torch.bfloat16))
    forms = ("{}.real", "{}.imag", "{}.conj()", "torch.view_as_real({})") if s[t].is_complex() else (
        "torch.view_as_complex({})", "{}.conj()", "{}.real")  # fmt: skip
    if s[t].dtype is torch.float16:
        raise NotApplicable
    form = s.pick(forms)
    s.do(form.format(t), form.format("").strip("().").removeprefix("torch."))


def _pieces(s: Scene) -> None:
    t = s.tensor(lambda t: t.dim() > 0)
    dim = s.dim(s[t])
    form = s.pick(("chunk", "split", "tensor_split", "unbind", "split sizes"))
    if form == "unbind":
        s.do(f"{t}.unbind({dim})", form)
    elif form == "split sizes":
        n = s[t].shape[dim] if -s[t].dim() <= dim < s[t].dim() else 1
        first = s.integer(0, n)
        s.do(f"{t}.split([{first}, {n - first}], {dim})", "split")
    else:
        s.do(f"{t}.{form}({s.integer(1, 3)}, {dim})", form)


def _unflatten(s: Scene) -> None:
    t = s.tensor(lambda t: t.dim() > 0)
    dim = s.integer(0, s[t].dim() - 1)
    n = s[t].shape[dim]
    pair = s.pick([(a, n // a) for a in (1, 2, 3, n) if a and n % a == 0])
    s.do(f"{t}.unflatten({dim}, {pair})", "unflatten")


def _other_name(s: Scene) -> None:
    t = s.tensor()
    form = s.pick(("{}.detach()", "{}[...]", "{}.view_as({})", "{}.data", "{}.contiguous()", "{}.expand_as({})"))
    s.do(form.format(t, t), form.format("", "").strip("().[]"))


STEPS: Final = (
    _basic_index, _turned, _view, _flatten, _select, _narrow, _expand, _diagonal, _as_strided, _unfold, _other_dtype,
    _complex, _pieces, _unflatten, _other_name, _basic_index, _turned,
)  # fmt: skip
