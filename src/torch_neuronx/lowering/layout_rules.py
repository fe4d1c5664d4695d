"""Layouts of results where CPU torch and its meta kernels differ: the CPU's count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch._prims_common import compute_elementwise_output_strides, suggest_memory_format

from torch_neuronx.lowering.views import Layout, contiguous_strides

# (the functional overload's arguments on the meta device, the layout of its first result) -> what the CPU gives
Rule = Callable[[Sequence[Any], Layout], Layout]


def has_rule(name: str) -> bool:
    return name in _RULES


def corrected(name: str, arguments: Sequence[Any], first: Layout) -> Layout:
    """The layout of the first result of functional overload `name`."""
    rule = _RULES.get(name)
    return first if rule is None else rule(arguments, first)


def _in_format(memory_format: torch.memory_format, sizes: tuple[int, ...]) -> Layout:
    like = torch.empty(sizes, device="meta", memory_format=memory_format)
    return Layout(sizes, tuple(like.stride()))


def _elementwise(arguments: Sequence[Any], first: Layout) -> Layout:
    """Operands broadcast, then the order of memory they agree on; a loss that was reduced has no order."""
    tensors = [x for x in arguments if isinstance(x, torch.Tensor) and x.dim()]
    if not first.sizes:
        return first
    operands = [x.expand(first.sizes) for x in tensors]
    return Layout(first.sizes, tuple(compute_elementwise_output_strides(*operands))) if operands else first


def _like_input(arguments: Sequence[Any], first: Layout) -> Layout:
    """channels_last if the first argument is, else contiguous."""
    if len(arguments[0].shape) != len(first.sizes):
        return first
    return _in_format(suggest_memory_format(arguments[0]), first.sizes)


def _convolution(arguments: Sequence[Any], first: Layout) -> Layout:
    """channels_last if the input or the weight is."""
    formats = [suggest_memory_format(x) for x in arguments[:2]]
    chosen = next((f for f in formats if f is not torch.contiguous_format), torch.contiguous_format)
    return _in_format(chosen, first.sizes)


def _columns(arguments: Sequence[Any], first: Layout) -> Layout:
    """LAPACK's order: each matrix column by column."""
    *batch, rows, columns = first.sizes
    turned = contiguous_strides((*batch, columns, rows))
    return Layout(first.sizes, (*turned[:-2], turned[-1], turned[-2]))


_RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(
        ("aten::copysign.Tensor", "aten::div.Tensor_mode", "aten::floor_divide", "aten::binary_cross_entropy"),
        _elementwise,
    ),
    **dict.fromkeys(
        (
            "aten::native_batch_norm",
            "aten::_native_batch_norm_legit",
            "aten::_native_batch_norm_legit.no_stats",
            "aten::_native_batch_norm_legit_functional",
            "aten::_native_batch_norm_legit_no_training",
            "aten::_batch_norm_with_update",
            "aten::_batch_norm_with_update_functional",
            "aten::_batch_norm_no_update",
            "aten::replication_pad2d",
            "aten::replication_pad3d",
            "aten::max_unpool2d",
            "aten::max_unpool3d",
        ),
        _like_input,
    ),
    **dict.fromkeys(("aten::convolution", "aten::convolution_overrideable"), _convolution),
    "aten::geqrf": _columns,
}
