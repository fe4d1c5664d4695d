"""Rules of normalisation: statistics over what varies are masked sums over a run-time count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.ops import batch_norm
from torch_neuronx.lowering.ops.norm import inverse_std, saved_dtype
from torch_neuronx.lowering.padded import layout
from torch_neuronx.lowering.padded.rules import Mix, Node, aligned, mixing, rule
from torch_neuronx.lowering.padded.rules_mixing import count_of
from torch_neuronx.lowering.padded.sizes import NeedsExact
from torch_neuronx.lowering.value import Value


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


@rule("aten::_native_batch_norm_legit_no_training")
def _batch_norm_inference(node: Node) -> Any:
    _align_channels(node)
    return node.sized(node.emit())


def _align_channels(node: Node) -> None:
    for name in ("weight", "bias", "running_mean", "running_var"):
        if isinstance(node.arguments.get(name), Value):
            _, node.arguments[name] = aligned(node["input"], 1, node[name], 0)


@rule(
    "aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_functional",
    "aten::_native_batch_norm_legit.no_stats",
)  # fmt: skip
def _batch_norm(node: Node) -> Any:
    x = node["input"]
    if node.name in ("aten::native_batch_norm", "aten::_native_batch_norm_legit"):
        raise NeedsExact(f"{node.name} writes its statistics")
    _align_channels(node)
    if not node["training"] and node.name != "aten::_native_batch_norm_legit.no_stats":
        return node.sized(node.emit())
    over = [d for d in range(x.ndim) if d != 1]
    values = layout.with_dims(hlo.convert(layout.physical(x), compute_dtype(x.dtype)), x.dims)
    count = hlo.convert(count_of(x, over), values.dtype)
    mean = _masked_mean(values, over, count)
    centred = layout.physical(values) - batch_norm.per_channel(mean, values)
    var = _masked_mean(layout.with_dims(centred * centred, x.dims), over, count)
    running_mean, running_var = (node.arguments.get(k) for k in ("running_mean", "running_var"))
    weight, bias = node["weight"], node["bias"]
    saved = saved_dtype(x, weight, bias, running_mean, running_var)
    shift, invstd = hlo.convert(mean, saved), hlo.convert(inverse_std(var, node["eps"]), saved)
    out = hlo.convert(batch_norm.applied(layout.physical(values), shift, invstd, weight, bias), x.dtype)
    results = [layout.with_dims(out, x.dims), *(layout.with_dims(v, [x.dims[1]]) for v in (shift, invstd))]
    if node.name == "aten::_native_batch_norm_legit_functional":
        unbiased = var * hlo.broadcast_to(count / (count - 1.0), var.shape)
        for old, new in ((running_mean, mean), (running_var, unbiased)):
            blend = batch_norm.blended(old, new, node["momentum"])
            assert blend is not None
            results.append(layout.with_dims(blend, [x.dims[1]]))
    return tuple(results)


def _masked_mean(x: Value, over: list[int], count: Value) -> Value:
    total = hlo.sum_(layout.physical(layout.mask(x, over, 0)), over)
    return total / hlo.broadcast_to(count, total.shape)


@rule("aten::native_batch_norm_backward")
def _batch_norm_backward(node: Node) -> Any:
    x, grad = node["input"], node["grad_out"]
    if x.dims[1].padded:
        raise NeedsExact(f"{node.name} over channels of varying size")
    for d in range(x.ndim):
        x, grad = aligned(x, d, grad, d)
    over = [d for d in range(x.ndim) if d != 1]
    named = ("weight", "running_mean", "running_var", "save_mean", "save_invstd", "train", "eps", "output_mask")
    results = batch_norm.gradients(
        layout.physical(layout.mask(grad, over, 0)),
        layout.physical(layout.mask(x, over, 0)),
        **{k: node[k] for k in named},
        count=count_of(x, over),
    )
    return (None if results[0] is None else layout.with_dims(results[0], x.dims), *results[1:])
