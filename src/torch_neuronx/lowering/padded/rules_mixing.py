"""Rules of ops that add up, compare or contract along a dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import sympy
import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.ops.reduce import wide
from torch_neuronx.lowering.padded import layout
from torch_neuronx.lowering.padded.rules import (
    Mix,
    Node,
    aligned,
    axes_of,
    greatest,
    least,
    mixing,
    prefix,
    rule,
)
from torch_neuronx.lowering.padded.rules_index import checked
from torch_neuronx.lowering.padded.sizes import NeedsExact, bound_of, expression, size_of, value_of
from torch_neuronx.lowering.value import Scalar, Value


def _over(fill: Any, name: str = "self") -> Any:
    """Along `dim`, or everything."""

    def mixes(node: Node) -> Sequence[Mix]:
        x = node[name]
        value = fill(x.dtype) if callable(fill) else fill
        return [(name, axes_of(x, node.arguments.get("dim")), value)]

    return mixes


mixing("aten::sum", "aten::sum.dim_IntList", "aten::nansum")(_over(0))
mixing("aten::prod", "aten::prod.dim_int")(_over(1))
mixing("aten::amax", "aten::max", "aten::_softmax", "aten::_log_softmax", "aten::logsumexp")(_over(least))
mixing("aten::amin", "aten::min")(_over(greatest))
mixing("aten::any", "aten::any.dim", "aten::any.dims")(_over(0))
mixing("aten::all", "aten::all.dim", "aten::all.dims")(_over(1))
mixing("aten::_safe_softmax")(_over(None))


@mixing("aten::_softmax_backward_data", "aten::_log_softmax_backward_data")
def _softmax_backward(node: Node) -> Sequence[Mix]:
    dims = axes_of(node["output"], node["dim"])
    return [("grad_output", dims, 0), ("output", dims, 0)]


def _extremum(fill: Any) -> Any:
    """The index of the first extreme element: padding comes last and loses."""

    def apply(node: Node) -> Any:
        x = node["self"]
        dims = axes_of(x, node.arguments.get("dim"))
        if len(dims) > 1:
            if node["keepdim"]:
                raise NeedsExact(f"{node.name} over all of a tensor of varying size, whose dimensions are kept")
            total: Any = math.prod([sympy.sympify(n) for n in layout.sizes_of(x)])
            x, dims = layout.regroup(x, [expression(total)]), [0]
        for d in dims:
            x = prefix(x, d)
        return node.sized(node.emit({"self": layout.mask(x, dims, fill(x.dtype))}))

    return apply


rule("aten::max.dim", "aten::argmax")(_extremum(least))
rule("aten::min.dim", "aten::argmin")(_extremum(greatest))


@rule("aten::cumsum", "aten::cumprod", "aten::cummax", "aten::cummin", "aten::logcumsumexp")
def _cumulative(node: Node) -> Any:
    """What comes before a place does not depend on what comes after it."""
    return node.sized(node.emit({"self": prefix(node["self"], node["dim"] % max(node["self"].ndim, 1))}))


def count_of(x: Value, dims: Sequence[int]) -> Value:
    """float64 rank 0: how many elements a reduction over `dims` takes in this call."""
    total = hlo.constant(1, torch.int64)
    for d in dims:
        total = total * value_of(size_of(x.dims[d]))
    return hlo.convert(total, torch.float64)


@rule("aten::mean", "aten::mean.dim")
def _mean(node: Node) -> Value:
    x = node["self"]
    dims = axes_of(x, node.arguments.get("dim"))
    terms, dtype = wide(layout.physical(layout.mask(x, dims, 0)), node.arguments.get("dtype"))
    total = hlo.sum_(terms, dims, bool(node.arguments.get("keepdim", False)))
    count = hlo.convert(count_of(x, dims), total.dtype)
    return node.sized(hlo.convert(total / hlo.broadcast_to(count, total.shape), dtype))


@rule("aten::var.correction", "aten::var_mean.correction", "aten::std.correction")
def _variance(node: Node) -> Any:
    x = node["self"]
    if x.dtype.is_complex:
        raise NeedsExact(f"{node.name} of complex numbers")
    dims, keep = axes_of(x, node["dim"]), bool(node["keepdim"])
    correction: Scalar = 1 if node["correction"] is None else node["correction"]
    values = hlo.convert(layout.physical(layout.mask(x, dims, 0)), compute_dtype(x.dtype))
    count = hlo.convert(count_of(x, dims), values.dtype)
    kept = hlo.sum_(values, dims, True)
    kept = kept / hlo.broadcast_to(count, kept.shape)
    centred = layout.mask(layout.with_dims(values - hlo.broadcast_to(kept, values.shape), x.dims), dims, 0)
    squares = hlo.sum_(layout.physical(centred) * layout.physical(centred), dims, keep)
    if isinstance(correction, Value):
        correction = hlo.convert(correction, count.dtype)
    free = hlo.maximum(count - correction, hlo.constant(0, count.dtype))
    variance = squares / hlo.broadcast_to(free, squares.shape)
    if node.name == "aten::std.correction":
        variance = hlo.sqrt(variance)
    variance = hlo.convert(variance, x.dtype)
    if node.name != "aten::var_mean.correction":
        return node.sized(variance)
    return node.sized((variance, hlo.convert(hlo.reshape(kept, variance.shape), x.dtype)))


def _contract(a: Value, i: int, b: Value, j: int, batch: int) -> tuple[Value, Value]:
    """Operands of a product over a's dimension i and b's j, the first `batch` dimensions shared."""
    for d in range(batch):
        a, b = aligned(a, d, b, d)
    a, b = aligned(a, i, b, j)
    return layout.mask(a, [i], 0), layout.mask(b, [j], 0)


@rule("aten::mm", "aten::bmm", "aten::mv", "aten::dot", "aten::mm.dtype", "aten::bmm.dtype")
def _product(node: Node) -> Value:
    names = [a.name for a in node.op._schema.arguments][:2]
    a, b = (node[n] for n in names)
    batch = 1 if a.ndim == 3 else 0
    a, b = _contract(a, a.ndim - 1, b, max(b.ndim - 2, 0), batch)
    out = node.emit(dict(zip(names, (a, b), strict=True)))
    return layout.with_dims(out, [*a.dims[:-1], *b.dims[max(b.ndim - 1, 1) :]])


@rule("aten::addmm", "aten::baddbmm", "aten::addmv")
def _added_product(node: Node) -> Value:
    names = [a.name for a in node.op._schema.arguments][1:3]
    a, b = (node[n] for n in names)
    a, b = _contract(a, a.ndim - 1, b, max(b.ndim - 2, 0), 1 if a.ndim == 3 else 0)
    dims = [*a.dims[:-1], *b.dims[max(b.ndim - 1, 1) :]]
    bias = node["self"]
    for d in range(bias.ndim):
        if bias.dims[d].padded:
            bias = layout.along(bias, d, dims[len(dims) - bias.ndim + d])
    return layout.with_dims(node.emit({"self": bias, **dict(zip(names, (a, b), strict=True))}), dims)


@rule("aten::embedding")
def _embedding(node: Node) -> Value:
    weight, indices = prefix(node["weight"], 0), node["indices"]
    indices = checked(indices, weight, 0, "index out of range in self")
    out = node.emit({"weight": weight, "indices": indices})
    return layout.with_dims(out, [*indices.dims, weight.dims[1]])


@mixing("aten::embedding_dense_backward")
def _embedding_backward(node: Node) -> Sequence[Mix]:
    """Padding adds nothing to the first row."""
    count = node["indices"].ndim
    node.arguments["num_weights"] = bound_of(node["num_weights"])
    return [("grad_output", range(count), 0), ("indices", range(count), 0)]


@mixing("aten::nll_loss_forward", "aten::nll_loss_backward")
def _nll(node: Node) -> Sequence[Mix]:
    """Padding is what the loss ignores."""
    x, grad = node["self"], node.arguments.get("grad_output")
    batch = [0] if x.ndim == 2 else []
    if x.dims[-1].padded:
        node.arguments["self"] = x = prefix(x, x.ndim - 1)
        target = layout.mask(node["target"], batch, 0)
        ignored = hlo.eq(layout.physical(target), node["ignore_index"])
        counted = layout.with_dims(hlo.select(ignored, 0, layout.physical(target)), target.dims)
        checked(counted, x, x.ndim - 1, "Target is out of bounds")
        weight = node["weight"]
        if weight is not None:
            _, node.arguments["weight"] = aligned(x, x.ndim - 1, weight, 0)
    more: list[Mix] = [("grad_output", range(grad.ndim), 0)] if isinstance(grad, Value) else []
    return [("self", batch, 0), ("target", batch, node["ignore_index"]), *more]


@mixing("aten::convolution")
def _convolution(node: Node) -> Sequence[Mix]:
    x = node["input"]
    return [("input", range(2, x.ndim), 0), ("input", [1], None), ("weight", range(node["weight"].ndim), None)]


@mixing("aten::convolution_backward")
def _convolution_backward(node: Node) -> Sequence[Mix]:
    x = node["input"]
    places = [0, *range(2, x.ndim)]
    return [("grad_output", places, 0), ("input", places, 0), ("input", [1], None), ("grad_output", [1], None)]
