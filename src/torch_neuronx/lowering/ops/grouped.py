"""Products of groups of rows with a matrix each: the experts of Transformers' mixtures in compiled graphs.

The library's own Python reads the group sizes, which a graph cannot. Here rows go through in blocks of one group: a
loop of at most rows / block + groups rounds, so that the work is that of the rows and not of all groups for every row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.ops.matmul import product
from torch_neuronx.lowering.table import lower_foreign
from torch_neuronx.lowering.value import Value

_SMALLEST, _LARGEST = 8, 128


def _at(x: Value, i: Value) -> Value:
    return hlo.reshape(hlo.dynamic_slice(x, [i], [1]), ())


@dataclass(frozen=True)
class Blocks:
    """How rows are cut: group g has the rows from starts[g] to ends[g], and the blocks from first[g] to last[g]."""

    size: int
    starts: Value
    ends: Value
    first: Value
    last: Value

    @classmethod
    def of(cls, rows: int, offsets: Value) -> Blocks:
        """`offsets`: where each group ends, (groups,) of integers."""
        groups = offsets.shape[0]
        size = max(_SMALLEST, min(_LARGEST, 1 << (rows // groups).bit_length() >> 1))
        ends = hlo.clamp(0, hlo.convert(offsets, torch.int64), rows)
        starts = hlo.concatenate([hlo.full((1,), 0, torch.int64), hlo.slice_dim(ends, 0, 0, groups - 1)], 0)
        rounded = hlo.maximum(ends - starts, 0) + (size - 1)
        count = hlo.shift_right_arithmetic(rounded, hlo.full_like(rounded, size.bit_length() - 1))
        (last,) = hlo.cumulative([count], [0], 0, lambda a, b: [a + b])
        return cls(size, starts, ends, last - count, last)

    @property
    def total(self) -> Value:
        return hlo.reshape(hlo.slice_dim(self.last, 0, self.last.shape[0] - 1, self.last.shape[0]), ())

    def find(self, block: Value) -> tuple[Value, Value, Value]:
        """The block's group, its first row, and which of its (size, 1) rows are the group's."""
        group = hlo.sum_(hlo.convert(hlo.le(self.last, hlo.broadcast_to(block, self.last.shape)), torch.int64))
        row = _at(self.starts, group) + (block - _at(self.first, group)) * self.size
        here = hlo.lt(hlo.iota((self.size, 1), 0) + row, hlo.broadcast_to(_at(self.ends, group), (self.size, 1)))
        return group, row, here

    def rows_of(self, x: Value, row: Value) -> Value:
        return hlo.dynamic_slice(x, [row, 0], [self.size, x.shape[1]])

    def padded(self, x: Value) -> Value:
        """With rows behind, that the last block may reach over."""
        return hlo.concatenate([x, hlo.full((self.size, x.shape[1]), 0, x.dtype)], 0)


def _no_groups(rows: Value, offsets: Value) -> bool:
    return not rows.numel or not offsets.numel


def grouped_rows(rows: Value, matrices: Value, offsets: Value) -> Value:
    """(rows, k) by (groups, k, n) to (rows, n): each row by its group's matrix; zero behind the last group."""
    count, width = rows.shape[0], matrices.shape[2]
    if _no_groups(rows, offsets):
        return hlo.full((count, width), 0, rows.dtype)
    blocks = Blocks.of(count, offsets)
    given = blocks.padded(rows)

    def body(block: Value, out: Value) -> list[Value]:
        group, row, here = blocks.find(block)
        matrix = hlo.reshape(hlo.dynamic_slice(matrices, [group, 0, 0], [1, *matrices.shape[1:]]), matrices.shape[1:])
        made = hlo.convert(product(blocks.rows_of(given, row), matrix, ([1], [0])), rows.dtype)
        made = hlo.select(hlo.broadcast_to(here, made.shape), made, blocks.rows_of(out, row))
        return [block + 1, hlo.dynamic_update_slice(out, made, [row, 0])]

    start = [hlo.constant(0, torch.int64), hlo.full((count + blocks.size, width), 0, rows.dtype)]
    out = hlo.while_loop(start, lambda block, _: hlo.lt(block, blocks.total), body)[1]
    return hlo.slice_dim(out, 0, 0, count)


def grouped_sums(left: Value, right: Value, offsets: Value) -> Value:
    """(rows, k) and (rows, n) to (groups, k, n): left.T @ right over each group's rows."""
    inner = compute_dtype(left.dtype)
    shape = (offsets.shape[0], left.shape[1], right.shape[1])
    if _no_groups(left, offsets) or not right.numel:
        return hlo.full(shape, 0, left.dtype)
    blocks = Blocks.of(left.shape[0], offsets)
    lefts, rights = blocks.padded(left), blocks.padded(right)

    def body(block: Value, out: Value) -> list[Value]:
        group, row, here = blocks.find(block)

        def own(x: Value) -> Value:
            part = blocks.rows_of(x, row)  # both sides: 0 * inf of another group's row would be NaN
            return hlo.select(hlo.broadcast_to(here, part.shape), part, hlo.zeros_like(part))

        more = hlo.reshape(product(own(lefts), own(rights), ([0], [0])), (1, *shape[1:]))
        so_far = hlo.dynamic_slice(out, [group, 0, 0], [1, *shape[1:]])
        return [block + 1, hlo.dynamic_update_slice(out, so_far + more, [group, 0, 0])]

    start = [hlo.constant(0, torch.int64), hlo.full(shape, 0, inner)]
    out = hlo.while_loop(start, lambda block, _: hlo.lt(block, blocks.total), body)[1]
    return hlo.convert(out, left.dtype)


@lower_foreign("transformers::grouped_mm_fallback")
def grouped_mm(input: Value, weight: Value, offs: Value) -> Value:
    return grouped_rows(input, weight, offs)


@lower_foreign("transformers::grouped_mm_fallback_backward")
def grouped_mm_backward(input: Value, weight: Value, offs: Value, grad_output: Value) -> tuple[Value, Value]:
    return grouped_rows(grad_output, hlo.permute(weight, (0, 2, 1)), offs), grouped_sums(input, grad_output, offs)
