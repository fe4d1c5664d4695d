"""Reading elements at given indices: gather, index_select, take, embedding lives beside."""

from __future__ import annotations

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.axes import at_least_1d, axis
from torch_neuronx.lowering.bounds import checked, out_of_bounds, wrapped
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value


@lower("aten::gather")
def gather(self: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    x, i = at_least_1d(self), at_least_1d(index)
    dim = axis(dim, x.ndim)
    if not i.numel:
        return hlo.full(index.shape, 0, self.dtype)
    extent = x.shape[dim]
    i = checked(i, extent, "RuntimeError", f"gather(): {out_of_bounds(dim, extent)}")
    return hlo.reshape(hlo.take_along(x, i, dim), index.shape)


@lower("aten::index_select")
def index_select(self: Value, dim: int, index: Value) -> Value:
    x, i = at_least_1d(self), at_least_1d(index)
    dim = axis(dim, x.ndim)
    error = "RuntimeError" if dim == 1 else "IndexError"  # as the CPU's two kernels say it
    i = checked(i, x.shape[dim], error, "index_select(): index out of range in self")
    if not x.numel or not i.numel:
        shape = [i.shape[0] if d == dim else n for d, n in enumerate(x.shape)]
        return hlo.full(shape if self.ndim else (), 0, self.dtype)
    out = hlo.take_rows(x, i, dim)
    return out if self.ndim else hlo.reshape(out, ())


@lower("aten::take")
def take(self: Value, index: Value) -> Value:
    if not index.numel:
        return hlo.full(index.shape, 0, self.dtype)
    text = f"take(): index out of range: tried to access an element of a tensor of {self.numel} elements"
    return hlo.take_rows(hlo.flatten(self), wrapped(index, self.numel, "IndexError", text))
