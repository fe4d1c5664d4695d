"""Rules of ops that add up, compare or contract along a dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.ops.reduce import wide
from torch_neuronx.lowering.padded import layout
from torch_neuronx.lowering.padded.rules import (
    Mix,
    Node,
    aligned,
    axes_of,
    greatest,
    least,
    masked,
    mixing,
    prefix,
    rule,
)
from torch_neuronx.lowering.padded.sizes import NeedsExact, size_of, value_of
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
mixing("aten::sort", "aten::sort.stable", "aten::topk", "aten::_safe_softmax")(_over(None))


@mixing("aten::_softmax_backward_data", "aten::_log_softmax_backward_data")
def _softmax_backward(node: Node) -> Sequence[Mix]:
    dims = axes_of(node["output"], node["dim"])
    return [("grad_output", dims, 0), ("output", dims, 0)]


def _extremum(fill: Any) -> Any:
    """The index of the first extreme element: padding comes last and loses."""

    def apply(node: Node) -> Any:
        x = node["self"]
        dims = axes_of(x, node.arguments.get("dim"))
        if len(dims) > 1 and any(x.dims[d].padded for d in dims):
            raise NeedsExact(f"{node.name} over all of a tensor of varying size")
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


def _trailing(x: Value, shape: Sequence[Any]) -> list[int]:
    return list(range(x.ndim - len(shape), x.ndim))


@mixing("aten::native_layer_norm", "aten::_fused_rms_norm")
def _norm(node: Node) -> Sequence[Mix]:
    return [("input", _trailing(node["input"], node["normalized_shape"]), None)]


@mixing("aten::native_layer_norm_backward", "aten::_fused_rms_norm_backward")
def _norm_backward(node: Node) -> Sequence[Mix]:
    """Gradients of weight and bias are sums over everything in front."""
    x = node["input"]
    inner = _trailing(x, node["normalized_shape"])
    outer = [d for d in range(x.ndim) if d not in inner]
    return [
        ("input", inner, None),
        *((name, outer, 0) for name in ("grad_out", "input", "mean", "rstd") if name in node.arguments),
    ]


@rule("aten::native_group_norm")
def _group_norm(node: Node) -> Any:
    x = node["input"]
    if any(d.padded for d in x.dims[1:]):
        raise NeedsExact(f"{node.name} along a dimension of varying size")
    return node.sized(node.emit({"N": x.shape[0]}))


@mixing("aten::_native_batch_norm_legit_no_training")
def _batch_norm_inference(node: Node) -> Sequence[Mix]:
    return [("input", [1], None)]


@rule("aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_functional")
def _batch_norm(node: Node) -> Any:
    if node["training"]:
        raise NeedsExact(f"{node.name}: statistics over a batch of varying size")
    return node.sized(node.emit(masked(node, [("input", [1], None)])))


@rule("aten::embedding")
def _embedding(node: Node) -> Value:
    weight, indices = prefix(node["weight"], 0), node["indices"]
    indices = layout.mask(indices, range(indices.ndim), 0)
    if weight.dims[0].padded:  # the row looks at the bound
        count = hlo.broadcast_to(hlo.convert(value_of(size_of(weight.dims[0])), indices.dtype), indices.shape)
        ok = hlo.all_(hlo.lt(layout.physical(indices), count), list(range(indices.ndim)), False)
        require(ok, "IndexError", "index out of range in self")
    out = node.emit({"weight": weight, "indices": indices})
    return layout.with_dims(out, [*indices.dims, weight.dims[1]])


@mixing("aten::embedding_dense_backward")
def _embedding_backward(node: Node) -> Sequence[Mix]:
    """Padding adds nothing to the first row."""
    count = node["indices"].ndim
    return [("grad_output", range(count), 0), ("indices", range(count), 0)]


@mixing("aten::nll_loss_forward", "aten::nll_loss_backward")
def _nll(node: Node) -> Sequence[Mix]:
    """Padding is what the loss ignores."""
    x, grad = node["self"], node.arguments.get("grad_output")
    batch = [0] if x.ndim == 2 else []
    more: list[Mix] = [("grad_output", range(grad.ndim), 0)] if isinstance(grad, Value) else []
    return [("self", [x.ndim - 1], None), ("self", batch, 0), ("target", batch, node["ignore_index"]), *more]


@mixing("aten::convolution")
def _convolution(node: Node) -> Sequence[Mix]:
    x = node["input"]
    if node["transposed"] and any(d.padded for d in x.dims[2:]):
        raise NeedsExact("a transposed convolution over a dimension of varying size")
    return [("input", range(2, x.ndim), 0), ("input", [1], None), ("weight", range(node["weight"].ndim), None)]


@mixing("aten::convolution_backward")
def _convolution_backward(node: Node) -> Sequence[Mix]:
    x = node["input"]
    if node["transposed"] and any(d.padded for d in x.dims[2:]):
        raise NeedsExact("a transposed convolution over a dimension of varying size")
    places = [0, *range(2, x.ndim)]
    return [("grad_output", places, 0), ("input", places, 0), ("input", [1], None), ("grad_output", [1], None)]


@mixing("aten::max_pool2d_with_indices", "aten::avg_pool2d", "aten::_adaptive_avg_pool2d", "aten::upsample_nearest2d")
def _pool(node: Node) -> Sequence[Mix]:
    x = node[node.op._schema.arguments[0].name]
    return [(node.op._schema.arguments[0].name, range(x.ndim - 2, x.ndim), None)]


@rule("aten::index_select")
def _index_select(node: Node) -> Value:
    x, dim = node["self"], node["dim"] % max(node["self"].ndim, 1)
    if x.dims[dim].padded:
        raise NeedsExact(f"{node.name} along a dimension of varying size")
    return node.sized(node.emit({"index": layout.mask(node["index"], range(node["index"].ndim), 0)}))


@rule("aten::gather")
def _gather(node: Node) -> Value:
    x, index, dim = node["self"], node["index"], node["dim"] % max(node["self"].ndim, 1)
    if x.dims[dim].padded:
        raise NeedsExact(f"{node.name} along a dimension of varying size")
    for d in range(x.ndim):
        if d != dim:
            x, index = aligned(x, d, index, d)
    out = node.emit({"self": x, "index": layout.mask(index, range(index.ndim), 0)})
    return layout.with_dims(out, index.dims)


@rule("aten::index.Tensor", "aten::_unsafe_index.Tensor")
def _index(node: Node) -> Value:
    x, indices = node["self"], node["indices"]
    if any(i is not None and x.dims[d].padded for d, i in enumerate(indices)):
        raise NeedsExact(f"{node.name} into a dimension of varying size")
    given = [i for i in indices if i is not None]
    if any(i.dtype in (torch.bool, torch.uint8) for i in given):
        raise NeedsExact(f"{node.name} by a mask, whose result's size depends on data")
    brought, _ = layout.broadcast(given)
    places = iter([layout.mask(i, range(i.ndim), 0) for i in brought])
    return node.sized(node.emit({"indices": [None if i is None else next(places) for i in indices]}))
