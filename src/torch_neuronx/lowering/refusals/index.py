"""Indices and sources that indexing ops refuse."""

from __future__ import annotations

from typing import Final

import torch

from torch_neuronx.lowering.iteration import Sizes, broadcast
from torch_neuronx.lowering.refusals.operands import Refusal, dtype_of, left_to_the_cpu, short
from torch_neuronx.lowering.refusals.reduce import in_range
from torch_neuronx.lowering.spec import Call, TensorSpec

_INDEX: Final = (torch.int64, torch.int32, torch.uint8, torch.bool)
MASKS: Final = (torch.bool, torch.uint8)


def same_dtype(source: int) -> Refusal:
    def check(name: str, call: Call) -> None:
        target, other = call.args[0], call.args[source]
        if isinstance(other, TensorSpec) and other.dtype != target.dtype:
            raise RuntimeError(
                f"{name}: self ({target.dtype}) and the source ({other.dtype}) must have the same dtype. "
                "Convert the source with .to(self.dtype)."
            )

    return check


def integer_indices(name: str, call: Call) -> None:
    for index in call.args[1]:
        if isinstance(index, TensorSpec) and index.dtype not in _INDEX:
            raise IndexError(
                f"{name}: tensors used as indices must be long, int, byte or bool tensors, but one is {index.dtype}. "
                "Convert it with .long()."
            )


def _somewhere_to_point(name: str, call: Call) -> None:
    """An index into a dimension of extent 0."""
    dim, sizes = 0, call.args[0].layout.sizes
    for index in call.args[1]:
        mask = isinstance(index, TensorSpec) and index.dtype in MASKS
        if isinstance(index, TensorSpec) and not mask and dim < len(sizes) and not sizes[dim] and index.layout.numel:
            raise IndexError(f"{name}: index is out of bounds for dimension with size 0")
        dim += len(index.layout.sizes) if mask else 1


def _broadcast(name: str, call: Call) -> Sizes | None:
    """The common shape of integer indices; None when there are masks, whose shape depends on data."""
    given = [i for i in call.args[1] if isinstance(i, TensorSpec)]
    shapes = [i.layout.sizes for i in given if i.dtype not in MASKS]
    try:
        shape = broadcast(shapes)
    except RuntimeError:
        shown = ", ".join(str(list(s)) for s in shapes)
        raise IndexError(
            f"{name}: shape mismatch: indexing tensors could not be broadcast together with shapes {shown}"
        ) from None
    return shape if len(shapes) == len(given) else None


def take(name: str, call: Call) -> None:
    integer_indices(name, call)
    _broadcast(name, call)


def _filled(call: Call) -> TensorSpec | None:
    """The mask, where one value is written under one: torch does so as masked_fill does, which converts it."""
    values, accumulate = call.args[2], call.args[3]
    given = [i for i in call.args[1] if isinstance(i, TensorSpec)]
    alone = len(given) == 1 and given[0].dtype in MASKS and not accumulate and values.layout.numel == 1
    return given[0] if alone else None


def take_somewhere(name: str, call: Call) -> None:
    take(name, call)
    _somewhere_to_point(name, call)


def put(name: str, call: Call) -> None:
    take_somewhere(name, call)
    if mask := _filled(call):
        if mask.dtype is not torch.bool:
            raise RuntimeError(
                f"{name}: masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype}. "
                "Convert it with .bool()."
            )
        return
    same_dtype(2)(name, call)
    _value_fits(name, call)


def _value_fits(name: str, call: Call) -> None:
    """The value broadcasts to what is indexed, where that is known from shapes."""
    shape = _broadcast(name, call)
    sizes, dims = call.args[0].layout.sizes, [d for d, i in enumerate(call.args[1]) if i is not None]
    if shape is None or not dims or dims[-1] >= len(sizes):
        return
    first = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    rest = [n for d, n in enumerate(sizes) if d not in dims]
    target = (*rest[:first], *shape, *rest[first:])
    value = call.args[2].layout.sizes
    if len(value) > len(target) or any(n not in (1, m) for n, m in zip(value[::-1], target[::-1], strict=False)):
        raise RuntimeError(
            f"{name}: shape mismatch: value tensor of shape {list(value)} cannot be broadcast to indexing result of "
            f"shape {list(target)}"
        )


def _index_dtype(position: int, *allowed: torch.dtype, then: Refusal | None = None) -> Refusal:
    def check(name: str, call: Call) -> None:
        index = call.args[position]
        if isinstance(index, TensorSpec) and index.dtype not in allowed:
            left_to_the_cpu(f"{short(name)} with an index of {index.dtype}")
        if then is not None:
            then(name, call)

    return check


def _fill(name: str, call: Call) -> None:
    value = dtype_of(call.args[3])
    if value is not None and value.is_complex and not call.args[0].dtype.is_complex:
        left_to_the_cpu("index_fill of a complex number")


def _along(then: Refusal | None = None) -> Refusal:
    """The dimension is there."""

    def check(name: str, call: Call) -> None:
        sizes, index = call.args[0].layout.sizes, call.args[2]
        in_range(name, call.args[1], len(sizes))
        nowhere = bool(sizes) and not sizes[call.args[1]] and index.layout.numel > 0
        if nowhere or (short(name) == "index_fill" and 0 in sizes):
            left_to_the_cpu(f"{short(name)} into an extent of 0")
        if then is not None:
            then(name, call)

    return check


def _rows(name: str, call: Call) -> None:
    """A source is like self but for the indexed dimension, where it has a row for each index."""
    target, dim, index, source = call.args[:4]
    ndim = len(target.layout.sizes)
    sizes = [list(x.layout.sizes) if ndim else [1, *x.layout.sizes][-1:] for x in (target, source)]
    rows = sizes[1][dim] if len(sizes[1]) == max(ndim, 1) else -1
    for s in sizes:
        if rows >= 0:
            s[dim] = 0
    if target.dtype != source.dtype or rows != index.layout.numel or sizes[0] != sizes[1]:
        left_to_the_cpu(f"{short(name)} of a source of {source.dtype}{list(source.layout.sizes)}")


def _one_for_a_number(name: str, call: Call) -> None:
    if not call.args[0].layout.sizes and call.args[2].layout.numel != 1:
        left_to_the_cpu(f"{short(name)} of a number at {call.args[2].layout.numel} places")


_LONG: Final = (torch.int64,)
_WIDE: Final = (torch.int64, torch.int32)
CHECKS: Final[dict[str, Refusal]] = {
    "index": take_somewhere,
    "_unsafe_index": take,
    "index_put": put,
    "_index_put_impl": put,
    **dict.fromkeys(("gather", "scatter", "scatter_add", "scatter_reduce"), _along()),
    "index_add": _along(_index_dtype(2, *_WIDE, then=_rows)),
    "index_copy": _along(_index_dtype(2, *_LONG, then=same_dtype(3))),
    "index_fill": _along(_index_dtype(2, *_LONG, then=_fill)),
    "index_reduce": _along(_index_dtype(2, *_WIDE, then=_rows)),
    "index_select": _along(_index_dtype(2, *_WIDE, then=_one_for_a_number)),
    "put": _index_dtype(1, *_LONG),
}
