"""Packing the true positions of a mask.

One sequential loop: XLA CPU runs a scalar loop body in 3 ns, so this takes 4 ms for a million
elements where a sort takes 45 and a doubling scan with scatter 70.
"""

from __future__ import annotations

import torch

from torch_neuronx.lowering.hlo.control import while_loop
from torch_neuronx.lowering.hlo.convert import convert
from torch_neuronx.lowering.hlo.elementwise import lt
from torch_neuronx.lowering.hlo.literal import constant, full
from torch_neuronx.lowering.hlo.reduce import sum_
from torch_neuronx.lowering.hlo.shape import dynamic_slice, dynamic_update_slice, reshape, slice_dim
from torch_neuronx.lowering.value import Value


def compact(mask: Value, capacity: int | None = None) -> tuple[Value, Value]:
    """(positions of the true elements of a 1-D mask in order, their number), both int64.

    Only the first `number` positions mean anything (the others are in range). With a `capacity`
    the list has that length and further positions are dropped; the number still counts them.
    """
    n = mask.shape[0]
    zero = constant(0, torch.int64)
    size = n if capacity is None else capacity
    if not n or not size:
        return full((size,), 0, torch.int64), sum_(convert(mask, torch.int64))

    def step(i: Value, count: Value, out: Value, mask: Value) -> list[Value]:
        # Written at every step: a false position is overwritten by the next one. The last slot is spare.
        out = dynamic_update_slice(out, reshape(i, (1,)), [count])
        here = reshape(dynamic_slice(mask, [i], [1]), ())
        return [i + 1, count + convert(here, torch.int64), out, mask]

    start = [zero, zero, full((size + 1,), 0, torch.int64), mask]
    _, count, out, _ = while_loop(start, lambda i, count, out, mask: lt(i, n), step)
    return slice_dim(out, 0, 0, size), count
