"""Distinct values; results whose size depends on the data."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.ops.sort import from_key, sorted_keys, starts_run
from torch_neuronx.lowering.table import in_steps, lower
from torch_neuronx.lowering.value import Sized, Value


def scatter_rows(base: Value, positions: Value, updates: Value, add: bool = False) -> Value:
    """base with rows of dim 0 replaced by (or increased by) updates at 1-D positions."""
    return hlo.scatter(
        base,
        hlo.reshape(positions, (*positions.shape, 1)),
        updates,
        hlo.add if add else None,
        update_window_dims=list(range(1, base.ndim)),
        inserted=[0],
        scatter_map=[0],
    )


def _running_count(first: Value) -> Value:
    return hlo.cumulative([hlo.convert(first, torch.int64)], [0], 0, lambda a, b: [a + b])[0]


def _empty() -> Value:
    return hlo.full((0,), 0, torch.int64)


def _groups(first: Value) -> tuple[Value, Value, Value]:
    """(group of each row, number of groups, rows per group) from the marks of each group's first row."""
    n = first.numel
    if n == 0:
        return _empty(), hlo.constant(0, torch.int64), _empty()
    running = _running_count(first)
    group = running - 1
    counts = scatter_rows(hlo.full((n,), 0, torch.int64), group, hlo.full((n,), 1, torch.int64), add=True)
    return group, hlo.reshape(hlo.slice_dim(running, 0, n - 1, n), ()), counts


def _unique_1d(
    self: Value, return_inverse: bool, return_counts: bool, consecutive: bool
) -> tuple[Sized | Value, Value, Sized | Value]:
    flat = hlo.flatten(self)
    n = flat.numel
    if consecutive:
        values, index = flat, hlo.iota((n,), 0)
        first = starts_run(flat, 0)
    else:
        key, index = sorted_keys(flat, 0)
        values, first = from_key(key, self.dtype), starts_run(key, 0)
        if self.dtype.is_floating_point:
            first = first | hlo.is_nan(values)  # every NaN is its own value
    group, count, counts = _groups(first)
    compact = scatter_rows(values, group, values) if n else values
    inverse = _empty()
    if return_inverse:
        inverse = (
            scatter_rows(hlo.full((n,), 0, torch.int64), hlo.convert(index, torch.int64), group) if n else _empty()
        )
        inverse = hlo.reshape(inverse, self.shape)
    return Sized(compact, count), inverse, Sized(counts, count) if return_counts else _empty()


@lower("aten::_unique2")
def unique2(
    self: Value, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Sized | Value, Value, Sized | Value]:
    return _unique_1d(self, return_inverse, return_counts, consecutive=False)


@lower("aten::_unique")
def unique(self: Value, sorted: bool = True, return_inverse: bool = False) -> tuple[Sized | Value, Value]:
    return _unique_1d(self, return_inverse, False, consecutive=False)[:2]


@lower("aten::unique_consecutive")
def unique_consecutive(
    self: Value, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Sized | Value, Value, Sized | Value]:
    if dim is not None:
        return _unique_rows(self, dim, return_inverse, return_counts, consecutive=True)
    return _unique_1d(self, return_inverse, return_counts, consecutive=True)


def _order_rows(rows: Value) -> Value:
    """Positions that sort the rows lexicographically: one stable sort a column, last column first."""
    n, columns = rows.shape
    order = hlo.iota((n,), 0)
    if n == 0:
        return order
    for c in reversed(range(columns)):
        column = hlo.take_rows(hlo.reshape(hlo.slice_dim(rows, 1, c, c + 1), (n,)), order)
        _, step = sorted_keys(column, 0)
        order = hlo.take_rows(order, step)
    return order


def _unique_rows(
    self: Value, dim: int, return_inverse: bool, return_counts: bool, consecutive: bool
) -> tuple[Sized | Value, Value, Sized | Value]:
    d = dim % self.ndim
    if d != 0:
        raise Unsupported("a data-dependent size that is not the first dimension")
    n = self.shape[d]
    rows = hlo.reshape(self, (n, self.numel // n if n else 0))
    if rows.shape[1] > 64 and not consecutive:
        raise Unsupported("unique over rows of more than 64 elements: one sort a column is too slow")
    order = hlo.iota((n,), 0) if consecutive else _order_rows(rows)
    ordered = rows if consecutive or rows.numel == 0 else hlo.take_rows(rows, order)
    if n > 1:
        changed = hlo.any_(hlo.ne(hlo.slice_dim(ordered, 0, 1, n), hlo.slice_dim(ordered, 0, 0, n - 1)), 1)
        first = hlo.pad(changed, [1], [0], True)
    else:
        first = hlo.full((n,), True, torch.bool)
    group, count, counts = _groups(first)
    compact = scatter_rows(ordered, group, ordered) if n else ordered
    inverse = _empty()
    if return_inverse:
        inverse = scatter_rows(hlo.full((n,), 0, torch.int64), order, group) if n else _empty()
    compact = hlo.reshape(compact, self.shape)
    return Sized(compact, count), inverse, Sized(counts, count) if return_counts else _empty()


@lower("aten::unique_dim")
def unique_dim(
    self: Value, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Sized | Value, Value, Sized | Value]:
    return _unique_rows(self, dim, return_inverse, return_counts, consecutive=False)


@lower("aten::unique_dim_consecutive")
def unique_dim_consecutive(
    self: Value, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Sized | Value, Value, Sized | Value]:
    return _unique_rows(self, dim, return_inverse, return_counts, consecutive=True)


def _along_first(op: torch._ops.OpOverload, self: Tensor, dim: int, *args: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The same op along dim 0 of the moved tensor, its result moved back."""
    rows = self.movedim(dim, 0).contiguous()
    values, inverse, counts = op(rows, 0, *args)
    return values.movedim(0, dim), inverse, counts


@in_steps("aten::unique_dim")
def unique_dim_in_steps(
    self: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    return _along_first(torch.ops.aten.unique_dim.default, self, dim, sorted, return_inverse, return_counts)


@in_steps("aten::unique_dim_consecutive")
def unique_dim_consecutive_in_steps(
    self: Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    return _along_first(torch.ops.aten.unique_dim_consecutive.default, self, dim, return_inverse, return_counts)


@in_steps("aten::unique_consecutive")
def unique_consecutive_in_steps(
    self: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    assert dim is not None
    return unique_dim_consecutive_in_steps(self, dim, return_inverse, return_counts)
