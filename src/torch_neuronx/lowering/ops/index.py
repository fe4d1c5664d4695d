"""Advanced indexing: index, index_put and their unchecked forms.

Integer indices become one gather or scatter whose windows are dimensions not indexed, so rows move as
rows. A mask among None entries needs no scatter: writing through it is a select, reading through a
leading one packs rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.bounds import out_of_bounds, wrapped
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.ops.nonzero import coordinates
from torch_neuronx.lowering.ops.scatter import Combine, scatter_blocks
from torch_neuronx.lowering.table import in_steps, lower
from torch_neuronx.lowering.value import Scalar, Sized, Value

MASKS = (torch.bool, torch.uint8)


@dataclass(frozen=True)
class Placement:
    """Integer indices broadcast to one shape, and where its dimensions sit in the result."""

    dims: list[int]  # indexed dimensions of self
    rest: list[int]  # the others
    shape: tuple[int, ...]  # broadcast shape of the indices
    vectors: Value  # (prod(shape), len(dims))
    first: int  # position of the index dimensions in the result

    def result(self, x: Value) -> list[int]:
        kept = [x.shape[d] for d in self.rest]
        return [*kept[: self.first], *self.shape, *kept[self.first :]]


def _is_mask(i: Value | None) -> bool:
    return i is not None and i.dtype in MASKS


def _place(x: Value, entries: dict[int, Value], check: bool) -> Placement:
    dims = sorted(entries)
    shape = hlo.broadcast_shapes(*(entries[d].shape for d in dims))
    count = math.prod(shape)
    rest = [d for d in range(x.ndim) if d not in entries]
    check = check and all(x.shape[d] for d in rest)  # torch looks at an index when it takes an element by it
    columns = []
    for d in dims:
        i = hlo.convert(entries[d], torch.int64)
        if check:
            i = wrapped(i, x.shape[d], "IndexError", out_of_bounds(d, x.shape[d]))
        else:
            i = hlo.select(hlo.lt(i, 0), i + x.shape[d], i)
        columns.append(hlo.reshape(hlo.broadcast_to(i, shape), (count, 1)))
    adjacent = dims == list(range(dims[0], dims[-1] + 1))
    return Placement(dims, rest, shape, hlo.concatenate(columns, 1), dims[0] if adjacent else 0)


def _gather(x: Value, p: Placement) -> Value:
    if not math.prod(p.result(x)):
        return hlo.full(p.result(x), 0, x.dtype)
    offsets = [i if i < p.first else i + 1 for i in range(len(p.rest))]
    sizes = [1 if d in p.dims else n for d, n in enumerate(x.shape)]
    rows = hlo.gather(x, p.vectors, offset_dims=offsets, collapsed=p.dims, index_map=p.dims, slice_sizes=sizes)
    return hlo.reshape(rows, p.result(x))


def _scatter(x: Value, p: Placement, values: Value, combine: Combine | None) -> Value:
    target = p.result(x)
    values = hlo.broadcast_to(values, target)
    if not math.prod(target):
        return x
    depth = p.dims[-1] + 1
    ahead = [d for d in p.rest if d < depth]  # stepped through as if they were indexed too
    shape = [x.shape[d] for d in ahead]
    shape[p.first : p.first] = p.shape
    rows, inside, stride = hlo.full(shape, 0, torch.int64), hlo.full((), True, torch.bool), 1
    for d in reversed(range(depth)):
        if d in p.dims:
            i = hlo.reshape(hlo.slice_dim(p.vectors, 1, p.dims.index(d), p.dims.index(d) + 1), p.shape)
            inside = inside & hlo.ge(i, 0) & hlo.lt(i, x.shape[d])
            along = hlo.broadcast_in_dim(i, shape, range(p.first, p.first + len(p.shape)))
        else:
            place = ahead.index(d)
            along = hlo.iota(shape, place if place < p.first else place + len(p.shape))
        rows, stride = rows + along * stride, stride * x.shape[d]
    inside = hlo.broadcast_in_dim(hlo.broadcast_to(inside, p.shape), shape, range(p.first, p.first + len(p.shape)))
    return scatter_blocks(x, hlo.select(inside, rows, -1), depth, values, combine)


def _positions(x: Value, indices: Sequence[Value | None]) -> tuple[dict[int, Value], list[tuple[int, Value]]]:
    """(integer entries by dimension of self, masks with the first dimension they cover)."""
    dim, entries, masks = 0, {}, []
    for i in indices:
        if _is_mask(i):
            assert i is not None
            _check_mask(x, dim, i)
            masks.append((dim, hlo.convert(i, torch.bool)))
            dim += i.ndim
            continue
        if i is not None:
            entries[dim] = i
        dim += 1
    return entries, masks


def _unmask(entries: dict[int, Value], masks: list[tuple[int, Value]], n: int) -> dict[int, Value]:
    """Masks as integer entries of length n; one true element broadcasts, another count is an error."""
    out = dict(entries)
    for dim, mask in masks:
        linear, count = hlo.compact(hlo.flatten(mask), n)
        require(
            hlo.eq(count, n) | hlo.eq(count, 1),
            "IndexError",
            f"shape mismatch: a mask in position {dim} must select 1 or {n} elements to broadcast with the rest",
        )
        first = hlo.broadcast_to(hlo.slice_dim(linear, 0, 0, 1), (n,))
        linear = hlo.select(hlo.eq(count, 1), first, linear)
        for k, column in enumerate(coordinates(linear, mask.shape)):
            out[dim + k] = column
    return out


def _check_mask(x: Value | Tensor, dim: int, mask: Value | Tensor) -> None:
    for k, n in enumerate(mask.shape):
        if dim + k >= x.ndim:
            raise IndexError(f"too many indices for tensor of dimension {x.ndim}")
        if n != x.shape[dim + k]:
            raise IndexError(
                f"The shape of the mask {list(mask.shape)} at index {k} does not match the shape of the indexed "
                f"tensor {list(x.shape)} at index {dim + k}"
            )


def _index(self: Value, indices: Sequence[Value | None], check: bool) -> Value | Sized:
    entries, masks = _positions(self, indices)
    if not masks:
        return _gather(self, _place(self, entries, check)) if entries else self
    lengths = [i.shape[-1] for i in entries.values() if i.ndim]
    n = max(lengths, default=1)
    if n != 1:
        return _gather(self, _place(self, _unmask(entries, masks, n), check))
    if len(masks) == 1 and not entries and masks[0][0] == 0:
        return _pack_rows(self, masks[0][1])
    raise Unsupported("a mask that is not the first index gives a data-dependent size behind dimension 0")


def _pack_rows(x: Value, mask: Value) -> Sized:
    rows = hlo.reshape(x, (mask.numel, *x.shape[mask.ndim :]))
    positions, count = hlo.compact(hlo.flatten(mask))
    if not rows.numel:
        return Sized(rows, count)
    return Sized(hlo.take_rows(rows, positions), count)


@lower("aten::index.Tensor", host_inputs=True)
def index(self: Value, indices: Sequence[Value | None]) -> Value | Sized:
    return _index(self, indices, check=True)


@lower("aten::_unsafe_index.Tensor", host_inputs=True)
def unsafe_index(self: Value, indices: Sequence[Value | None]) -> Value | Sized:
    return _index(self, indices, check=False)


def _put_masked(x: Value, dim: int, mask: Value, values: Value, accumulate: bool) -> Value:
    """One mask over dimensions dim, dim + 1, ...: values go by the running count of true elements."""
    n = mask.numel
    merged = hlo.reshape(x, (*x.shape[:dim], n, *x.shape[dim + mask.ndim :]))
    chosen = hlo.reshape(mask, [n if d == dim else 1 for d in range(merged.ndim)])
    surplus = max(values.ndim - merged.ndim, 0)
    if math.prod(values.shape[:surplus]) != 1:
        raise Unsupported(f"a value of shape {values.shape} for {merged.ndim} dimensions, which torch refuses")
    new = hlo.reshape(values, (1,) * (merged.ndim - values.ndim) + values.shape[surplus:])
    length = new.shape[dim]
    if length != 1:
        flags = hlo.convert(hlo.flatten(mask), torch.int64)
        (counts,) = hlo.cumulative([flags], [0], 0, lambda a, b: [a + b])
        total = hlo.sum_(flags)
        text = f"shape mismatch: value tensor with {length} entries along dimension {dim} must match the mask's count"
        require(hlo.eq(total, length), "RuntimeError", text)
        if not length or not x.numel:
            return x
        new = hlo.take_rows(new, hlo.clamp(0, counts - 1, length - 1), dim)
    new = hlo.broadcast_to(new, merged.shape)
    return hlo.reshape(hlo.select(chosen, merged + new if accumulate else new, merged), x.shape)


def _put(self: Value, indices: Sequence[Value | None], values: Value, accumulate: bool, check: bool) -> Value:
    entries, masks = _positions(self, indices)
    values = hlo.convert(values, self.dtype)
    if not self.numel and not masks:
        return self
    if len(masks) == 1 and not entries:
        return _put_masked(self, *masks[0], values, accumulate)
    if masks:
        entries = _unmask(entries, masks, _mask_length(self, entries, masks, values))
    if not entries:
        whole = hlo.broadcast_to(values, self.shape)
        return self + whole if accumulate else whole
    return _scatter(self, _place(self, entries, check), values, hlo.add if accumulate else None)


def _mask_length(x: Value, entries: dict[int, Value], masks: list[tuple[int, Value]], values: Value) -> int:
    """The number of elements several indices select together, from the static shapes around the masks."""
    lengths = {i.shape[-1] for i in entries.values() if i.ndim} - {1}
    if lengths:
        return lengths.pop()
    covered = {d for dim, mask in masks for d in range(dim, dim + mask.ndim)} | set(entries)
    behind = x.ndim - max(covered) - 1 if max(covered) - min(covered) + 1 == len(covered) else x.ndim - len(covered)
    n = values.shape[-1 - behind] if values.ndim > behind else 1
    if n == 1:
        raise Unsupported("several masks written with one broadcast value: the number of elements is not known")
    return n


@lower("aten::index_put", host_inputs=True)
def index_put(self: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    return _put(self, indices, values, accumulate, check=True)


@lower("aten::_index_put_impl", host_inputs=True)
def index_put_impl(
    self: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False, unsafe: bool = False
) -> Value:
    return _put(self, indices, values, accumulate, check=not unsafe)


@lower("aten::_unsafe_index_put", host_inputs=True)
def unsafe_index_put(self: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    return _put(self, indices, values, accumulate, check=False)


def _clamped(x: Value, indices: Sequence[Value | None]) -> list[Value | None]:
    """Masked entries may hold anything: indices are clamped, the mask decides."""
    return [
        None if i is None else hlo.clamp(-n, hlo.convert(i, torch.int64), n - 1)
        for i, n in zip(indices, x.shape, strict=False)
    ]


@lower("aten::_unsafe_masked_index", host_inputs=True)
def unsafe_masked_index(self: Value, mask: Value, indices: Sequence[Value | None], fill: Scalar) -> Value:
    value = hlo.convert(hlo.as_value(fill), self.dtype)
    if not self.numel:
        shape = hlo.broadcast_shapes(mask.shape, *(i.shape for i in indices if i is not None))
        return hlo.full(shape, value)
    taken = _index(self, _clamped(self, indices), check=False)
    assert isinstance(taken, Value)
    return hlo.select(hlo.convert(mask, torch.bool), taken, value)


@lower("aten::_unsafe_masked_index_put_accumulate", host_inputs=True)
def unsafe_masked_index_put_accumulate(
    self: Value, mask: Value, indices: Sequence[Value | None], values: Value
) -> Value:
    if not self.numel:
        return self
    kept = hlo.select(hlo.convert(mask, torch.bool), values, 0)
    return _put(self, _clamped(self, indices), kept, accumulate=True, check=False)


def _without_masks(x: Tensor, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Masks of real tensors as integer indices, which reads their counts."""
    out: list[Tensor | None] = []
    for i in indices:
        if i is not None and i.dtype in MASKS:
            _check_mask(x, len(out), i)
            out.extend(i.nonzero().unbind(1))
        else:
            out.append(i)
    return out


@in_steps("aten::index.Tensor", "aten::_unsafe_index.Tensor")
def index_in_steps(self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    out: Tensor = torch.ops.aten.index.Tensor(self, _without_masks(self, indices))
    return out


@in_steps("aten::index_put", "aten::_index_put_impl", "aten::_unsafe_index_put")
def index_put_in_steps(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    out: Tensor = torch.ops.aten.index_put.default(self, _without_masks(self, indices), values, accumulate)
    return out
