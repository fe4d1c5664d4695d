"""embedding_bag: rows summed, averaged or maximised by bag, as one row scatter."""

from __future__ import annotations

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.bounds import checked
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.ops.embedding import frequencies
from torch_neuronx.lowering.ops.scatter import scatter_elements, scatter_flat, scatter_rows
from torch_neuronx.lowering.table import in_steps, lower
from torch_neuronx.lowering.value import Value

SUM, MEAN, MAX = 0, 1, 2


def _bags(indices: Value, offsets: Value) -> Value:
    """The bag of every index: how many offsets lie at or before it, less one."""
    n = indices.shape[0]
    marks = hlo.full((n,), 0, torch.int64)
    if not n or not offsets.shape[0]:
        return marks
    starts = hlo.convert(offsets, torch.int64)
    marks = scatter_flat(marks, starts, hlo.full(starts.shape, 1, torch.int64), hlo.add)
    (bags,) = hlo.cumulative([marks], [0], 0, lambda a, b: [a + b])
    return bags - 1


def _kept(bags: Value, indices: Value, padding_idx: int) -> Value:
    """Bags with the padding entries sent out of range, where a scatter drops them."""
    return hlo.select(hlo.eq(indices, padding_idx), -1, bags) if padding_idx >= 0 else bags


def _check_offsets(indices: Value, offsets: Value) -> None:
    count = offsets.shape[0]
    if not count:
        return
    first = hlo.reshape(hlo.slice_dim(offsets, 0, 0, 1), ())
    last = hlo.reshape(hlo.slice_dim(offsets, 0, count - 1, count), ())
    require(hlo.eq(first, 0), "RuntimeError", "embedding_bag: offsets[0] has to be 0, i.e., the first sequence")
    text = f"embedding_bag: offsets[-1] can not be greater than the input's length {indices.shape[0]}"
    require(hlo.le(last, indices.shape[0]), "RuntimeError", text)


@lower("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
def embedding_bag(
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Value, Value, Value, Value]:
    """(result, bag of each index, size of each bag without padding, winning row in max mode)."""
    kind, dtype, width = indices.dtype, compute_dtype(weight.dtype), weight.shape[1]
    bags_count = offsets.shape[0] - int(include_last_offset)
    if padding_idx < 0:
        padding_idx = padding_idx + weight.shape[0] if padding_idx < -1 else -1
    _check_offsets(indices, offsets)
    i = checked(indices, weight.shape[0], "RuntimeError", "embedding_bag(): index out of range in self")
    bags = _bags(indices, offsets)
    kept = _kept(bags, i, padding_idx)
    ones = hlo.full(i.shape, 1, torch.int64)
    sizes = scatter_flat(hlo.full(offsets.shape, 0, torch.int64), kept, ones, hlo.add)
    filled = hlo.slice_dim(sizes, 0, 0, bags_count)
    if not weight.numel or not i.numel or not bags_count:
        out = hlo.full((bags_count, width), 0, weight.dtype)
        winners = hlo.full((bags_count, width) if mode == MAX else (0,), 0, kind)
        return out, hlo.convert(bags, kind), hlo.convert(sizes, kind), winners
    rows = hlo.convert(hlo.take_rows(weight, i), dtype)
    if per_sample_weights is not None:
        rows = rows * hlo.reshape(hlo.convert(per_sample_weights, dtype), (i.numel, 1))
    winners = hlo.full((0,), 0, kind)
    if mode == MAX:
        total, winners = _largest(rows, kept, filled, i)
    else:
        total = scatter_rows(hlo.full((bags_count, width), 0, dtype), 0, kept, rows, hlo.add)
    if mode == MEAN:
        total = hlo.divide(total, hlo.reshape(hlo.convert(hlo.maximum(filled, 1), dtype), (bags_count, 1)))
    return (
        hlo.convert(total, weight.dtype),
        hlo.convert(bags, kind),
        hlo.convert(sizes, kind),
        hlo.convert(winners, kind),
    )


def _largest(rows: Value, bags: Value, sizes: Value, indices: Value) -> tuple[Value, Value]:
    """(maximum by bag, zero for an empty one; the row of the table it came from, the first of equals)."""
    n, width = rows.shape
    shape = (sizes.shape[0], width)
    best = scatter_rows(hlo.full(shape, float("-inf"), rows.dtype), 0, bags, rows, hlo.maximum)
    mine = hlo.take_rows(best, hlo.clamp(0, bags, shape[0] - 1))
    place = hlo.select(hlo.eq(rows, mine), hlo.iota((n, width), 0), n - 1)
    first = scatter_rows(hlo.full(shape, n - 1, torch.int64), 0, bags, place, hlo.minimum)
    some = hlo.reshape(hlo.gt(sizes, 0), (shape[0], 1))
    return hlo.select(some, best, 0), hlo.select(some, hlo.take_rows(indices, first), 0)


@lower("aten::_embedding_bag_backward")
def embedding_bag_backward(
    grad: Value,
    indices: Value,
    offsets: Value,
    offset2bag: Value,
    bag_size: Value,
    maximum_indices: Value,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Value | None,
    padding_idx: int = -1,
) -> Value:
    if sparse:
        raise Unsupported("embedding_bag gradients as sparse tensors")
    bags = offset2bag if offset2bag.numel else _bags(indices, offsets)
    return embedding_bag_dense_backward(
        grad,
        indices,
        bags,
        bag_size,
        maximum_indices,
        num_weights,
        scale_grad_by_freq,
        mode,
        per_sample_weights,
        padding_idx,
    )


@in_steps("aten::_embedding_bag_backward")
def embedding_bag_backward_in_steps(
    grad: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    offset2bag: torch.Tensor,
    bag_size: torch.Tensor,
    maximum_indices: torch.Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: torch.Tensor | None,
    padding_idx: int = -1,
) -> torch.Tensor:
    """A sparse gradient is a COO tensor, which no program returns: its values are computed, then it is put together."""
    bags = offset2bag
    if not bags.numel():
        bags = torch.searchsorted(offsets, torch.arange(indices.numel(), device=indices.device), right=True) - 1
    return torch.ops.aten._embedding_bag_sparse_backward(
        grad, indices, offsets, bags, bag_size, num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx
    )


@lower("aten::_embedding_bag_dense_backward")
def embedding_bag_dense_backward(
    grad: Value,
    indices: Value,
    offset2bag: Value,
    bag_size: Value,
    maximum_indices: Value,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Value | None,
    padding_idx: int = -1,
) -> Value:
    dtype = compute_dtype(grad.dtype)
    table = hlo.full((num_weights, grad.shape[1]), 0, dtype)
    if not indices.numel or not table.numel or not grad.numel:
        return hlo.convert(table, grad.dtype)
    if mode == MAX:
        filled = hlo.gt(hlo.slice_dim(bag_size, 0, 0, grad.shape[0]), 0)
        rows = hlo.select(
            hlo.reshape(filled, (grad.shape[0], 1)), hlo.convert(maximum_indices, torch.int64), num_weights
        )
        return hlo.convert(_add_elements(table, rows, hlo.convert(grad, dtype)), grad.dtype)
    i, bags = hlo.convert(indices, torch.int64), hlo.convert(offset2bag, torch.int64)
    scale = hlo.full((i.numel,), 1, torch.float64)
    if per_sample_weights is not None:
        scale = hlo.convert(per_sample_weights, torch.float64)
    if mode == MEAN:
        scale = hlo.divide(scale, hlo.convert(hlo.maximum(hlo.take_rows(bag_size, bags), 1), torch.float64))
    if scale_grad_by_freq:
        scale = hlo.divide(scale, hlo.convert(hlo.take_rows(frequencies(i, num_weights), i), torch.float64))
    # one row after the other in the gradient's own dtype, as on the CPU
    rows = hlo.take_rows(grad, bags) * hlo.reshape(hlo.convert(scale, grad.dtype), (i.numel, 1))
    return scatter_rows(hlo.convert(table, grad.dtype), 0, _kept(i, i, padding_idx), rows, hlo.add)


def _add_elements(table: Value, rows: Value, grad: Value) -> Value:
    """table[rows[b][d]][d] += grad[b][d]; a row past the end goes to a spare one that is cut off."""
    spare = hlo.pad(table, [0, 0], [1, 0])
    return hlo.slice_dim(scatter_elements(spare, 0, rows, grad, hlo.add), 0, 0, table.shape[0])


@lower("aten::_embedding_bag_per_sample_weights_backward")
def embedding_bag_per_sample_weights_backward(
    grad: Value,
    weight: Value,
    indices: Value,
    offsets: Value,
    offset2bag: Value,
    mode: int,
    padding_idx: int = -1,
) -> Value:
    if not indices.numel:
        return hlo.full((0,), 0, grad.dtype)
    bags = hlo.convert(offset2bag, torch.int64) if offset2bag.numel else _bags(indices, offsets)
    i, dtype = hlo.convert(indices, torch.int64), compute_dtype(grad.dtype)
    products = hlo.convert(hlo.take_rows(grad, bags), dtype) * hlo.convert(hlo.take_rows(weight, i), dtype)
    total = hlo.sum_(products, 1)
    if padding_idx >= 0:
        total = hlo.select(hlo.eq(i, padding_idx), 0, total)
    return hlo.convert(total, grad.dtype)
