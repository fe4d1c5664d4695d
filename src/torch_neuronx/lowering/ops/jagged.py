"""Rows of different length: between one packed tensor with offsets and a padded one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.ops.scatter import scatter_flat
from torch_neuronx.lowering.table import in_steps, lower
from torch_neuronx.lowering.value import Scalar, Value


def _offsets(offsets: Sequence[Value]) -> Value:
    if len(offsets) != 1:
        raise Unsupported("jagged tensors with more than one ragged dimension")
    return hlo.convert(offsets[0], torch.int64)


@lower("aten::_jagged_to_padded_dense_forward")
def jagged_to_padded(
    values: Value, offsets: Sequence[Value], max_lengths: Sequence[int], padding_value: Scalar = 0.0
) -> Value:
    bounds, width = _offsets(offsets), max_lengths[0]
    rows, tail = bounds.shape[0] - 1, values.shape[1:]
    fill = hlo.convert(hlo.as_value(padding_value), values.dtype)
    if not values.numel or not rows * width:
        return hlo.full((rows, width, *tail), fill)
    start, end = (hlo.reshape(hlo.slice_dim(bounds, 0, i, rows + i), (rows, 1)) for i in range(2))
    position = start + hlo.iota((rows, width), 1)
    taken = hlo.take_rows(values, hlo.clamp(0, position, values.shape[0] - 1))
    inside = hlo.reshape(hlo.lt(position, end), (rows, width, *(1 for _ in tail)))
    return hlo.select(inside, taken, fill)


@lower("aten::_padded_dense_to_jagged_forward")
def padded_to_jagged(dense: Value, offsets: Sequence[Value], total_L: int | None = None) -> Value:  # noqa: N803
    if total_L is None:
        raise Unsupported("_padded_dense_to_jagged_forward without total_L has a data-dependent size")
    bounds, (rows, width, *tail) = _offsets(offsets), dense.shape
    if not dense.numel or not total_L:
        return hlo.full((total_L, *tail), 0, dense.dtype)
    starts = hlo.slice_dim(bounds, 0, 0, rows)
    marks = scatter_flat(hlo.full((total_L,), 0, torch.int64), starts, hlo.full((rows,), 1, torch.int64), hlo.add)
    (passed,) = hlo.cumulative([marks], [0], 0, lambda a, b: [a + b])
    row = hlo.clamp(0, passed - 1, rows - 1)
    column = hlo.iota((total_L,), 0) - hlo.take_rows(starts, row)
    taken = hlo.take_rows(hlo.reshape(dense, (rows * width, *tail)), row * width + hlo.clamp(0, column, width - 1))
    # A row longer than the padded width was cut when it was padded.
    inside = hlo.reshape(hlo.lt(column, width), (total_L, *(1 for _ in tail)))
    return hlo.select(inside, taken, 0)


@in_steps("aten::_padded_dense_to_jagged_forward")
def padded_to_jagged_in_steps(
    dense: torch.Tensor,
    offsets: Sequence[torch.Tensor],
    total_L: int | None = None,  # noqa: N803
) -> torch.Tensor:
    total = int(offsets[0][-1]) if total_L is None else total_L
    out: torch.Tensor = torch.ops.aten._padded_dense_to_jagged_forward.default(dense, offsets, total)
    return out
