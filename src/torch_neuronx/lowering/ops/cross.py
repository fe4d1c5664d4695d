"""The cross product along a dimension of three."""

from __future__ import annotations

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.promotion import promote
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value


@lower("aten::linalg_cross")
def linalg_cross(self: Value, other: Value, *, dim: int = -1) -> Value:
    _, (x, y) = promote(self, other)
    shape = hlo.broadcast_shapes(x.shape, y.shape)
    dim = dim % len(shape)
    a, b = ([_component(v, shape, dim, i) for i in range(3)] for v in (x, y))
    parts = [a[(i + 1) % 3] * b[(i + 2) % 3] - a[(i + 2) % 3] * b[(i + 1) % 3] for i in range(3)]
    return hlo.concatenate(parts, dim)  # in the operands' own dtype, as torch's kernel computes


def _component(x: Value, shape: tuple[int, ...], dim: int, i: int) -> Value:
    return hlo.slice_dim(hlo.broadcast_to(x, shape), dim, i, i + 1)
