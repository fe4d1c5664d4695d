"""Indices and sources that indexing ops refuse."""

from __future__ import annotations

from typing import Final

import torch

from torch_neuronx.lowering.refusals.operands import Refusal, dtype_of, left_to_the_cpu, short
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


def _fills(call: Call) -> bool:
    """torch writes one value under masks as masked_fill does, which converts it."""
    values, accumulate = call.args[2], call.args[3]
    given = [i for i in call.args[1] if isinstance(i, TensorSpec)]
    return values.layout.numel == 1 and not accumulate and bool(given) and all(i.dtype in MASKS for i in given)


def _pointing(name: str, call: Call) -> None:
    integer_indices(name, call)
    _somewhere_to_point(name, call)


def put(name: str, call: Call) -> None:
    _pointing(name, call)
    if isinstance(call.args[2], TensorSpec) and not _fills(call):
        same_dtype(2)(name, call)


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


_LONG: Final = (torch.int64,)
_WIDE: Final = (torch.int64, torch.int32)
CHECKS: Final[dict[str, Refusal]] = {
    "index": _pointing,
    "_unsafe_index": integer_indices,
    "index_put": put,
    "_index_put_impl": put,
    "index_add": _index_dtype(2, *_WIDE, then=same_dtype(3)),
    "index_copy": _index_dtype(2, *_LONG),
    "index_fill": _index_dtype(2, *_LONG, then=_fill),
    "index_reduce": _index_dtype(2, *_WIDE),
    "index_select": _index_dtype(2, *_WIDE),
    "put": _index_dtype(1, *_LONG),
}
