"""Layouts of results where CPU torch and its meta kernels differ: the CPU's count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch._prims_common import compute_elementwise_output_strides, suggest_memory_format
from torch.utils._pytree import tree_leaves, tree_map

from torch_neuronx.lowering.decompose import bind_arguments
from torch_neuronx.lowering.iteration import closed_up
from torch_neuronx.lowering.table import overload
from torch_neuronx.lowering.views import Layout, contiguous_strides

# (the functional overload's arguments on the meta device, the layout of one result) -> what the CPU gives
_ONEDNN: Final = (torch.float32, torch.bfloat16, torch.float16)
Rule = Callable[[Sequence[Any], Layout], Layout]


def has_rule(name: str) -> bool:
    return name in _RULES


def corrected(name: str, position: int, arguments: Sequence[Any], layout: Layout) -> Layout:
    """The layout of one result of functional overload `name`."""
    rules = _RULES.get(name, ())
    rule = rules[position] if position < len(rules) else None
    return layout if rule is None else rule(arguments, layout)


def rules_of(name: str) -> int:
    """How many results, from the first, may have one."""
    return len(_RULES.get(name, ()))


def _in_format(memory_format: torch.memory_format, sizes: tuple[int, ...]) -> Layout:
    like = torch.empty(sizes, device="meta", memory_format=memory_format)
    return Layout(sizes, tuple(like.stride()))


def _elementwise(arguments: Sequence[Any], layout: Layout) -> Layout:
    """Operands broadcast, then the order of memory they agree on."""
    operands = [x for x in arguments if isinstance(x, torch.Tensor) and x.dim()]
    if not operands or not layout.sizes:
        return layout
    expanded = [x.expand(layout.sizes) for x in operands]
    return Layout(layout.sizes, tuple(compute_elementwise_output_strides(*expanded)))


def _preserved(arguments: Sequence[Any], layout: Layout) -> Layout:
    """Laid out as the CPU's empty_like does: an extent of 1 keeps its stride, and without elements all do."""
    like = Layout(tuple(arguments[0].shape), tuple(arguments[0].stride()))
    return like if like.dense or not like.numel else closed_up(like)


def _row_major(arguments: Sequence[Any], layout: Layout) -> Layout:
    return Layout(layout.sizes, contiguous_strides(layout.sizes))


def _like_input(arguments: Sequence[Any], layout: Layout) -> Layout:
    """channels_last if the first argument is, else contiguous."""
    if len(arguments[0].shape) != len(layout.sizes):
        return layout
    return _in_format(suggest_memory_format(arguments[0]), layout.sizes)


def _like_second(arguments: Sequence[Any], layout: Layout) -> Layout:
    """The gradient of an input, which comes after the result's gradient."""
    return _like_input(arguments[1:], layout)


def _angle(arguments: Sequence[Any], layout: Layout) -> Layout:
    """Of complex numbers the real part of a complex result, copied."""
    return (_row_major if arguments[0].is_complex() else _elementwise)(arguments, layout)


def _rolled(arguments: Sequence[Any], layout: Layout) -> Layout:
    """As the join of two parts for each dimension: channels_last when both are."""
    x, shifts, dims = (*arguments, [])[:3]
    if not x.numel() and dims:
        return _preserved(arguments, layout)
    chosen = suggest_memory_format(x)
    for shift, dim in zip(shifts, dims, strict=False):
        start = -shift % x.shape[dim] if x.shape[dim] else 0
        parts = (x.narrow(dim, start, x.shape[dim] - start), x.narrow(dim, 0, start))
        if any(suggest_memory_format(part) is not chosen or not part.numel() for part in parts):
            chosen = torch.contiguous_format
    return _in_format(chosen if dims else torch.contiguous_format, layout.sizes)


def _convolution(arguments: Sequence[Any], layout: Layout) -> Layout:
    """channels_last if the input or the weight is, as oneDNN has it; other kernels of 3 dimensions are contiguous."""
    if len(layout.sizes) != arguments[0].dim():  # the bias's gradient, where there is none of the input
        return layout
    if len(layout.sizes) == 5 and not _is_onednn(arguments):
        return _row_major(arguments, layout)
    return _channels(arguments, layout)


def _channels(arguments: Sequence[Any], layout: Layout) -> Layout:
    formats = [suggest_memory_format(x) for x in arguments[:2]]
    chosen = next((f for f in formats if f is not torch.contiguous_format), torch.contiguous_format)
    return _in_format(chosen, layout.sizes)


def _is_onednn(arguments: Sequence[Any]) -> bool:
    """Whether CPU torch gives a convolution of three dimensions to oneDNN."""
    x = arguments[0]
    if len(arguments) < 9 or not arguments[6]:
        return x.dtype is not torch.float64
    stride, extra, groups = arguments[3], arguments[7], arguments[8]
    small = all(e < s for e, s in zip(extra, stride, strict=True))
    return x.dtype in _ONEDNN and small and (x.shape[0] > 1 or groups > 1)


def _convolution_backward(arguments: Sequence[Any], layout: Layout) -> Layout:
    _, x, *_ = arguments
    if len(layout.sizes) != x.dim():
        return layout
    wide = len(layout.sizes) == 5 and x.dtype is torch.float64
    return (_row_major if wide else _channels)(arguments[1:], layout)


def _columns(arguments: Sequence[Any], layout: Layout) -> Layout:
    """LAPACK's order: each matrix column by column."""
    if len(layout.sizes) < 2:
        return layout
    *batch, rows, columns = layout.sizes
    turned = contiguous_strides((*batch, columns, rows))
    return Layout(layout.sizes, (*turned[:-2], turned[-1], turned[-2]))


def _solution(arguments: Sequence[Any], layout: Layout) -> Layout:
    """The part of LAPACK's array, which has room for both the right-hand side and the solution."""
    if arguments[1].dim() < 2 or arguments[1].dim() < arguments[0].dim():
        return layout
    rows = max(arguments[0].shape[-2:])
    *batch, _, columns = layout.sizes
    return Layout(layout.sizes, (*contiguous_strides((*batch, rows * columns))[:-1], 1, rows))


def _hinted(name: str, position: int, arguments: Sequence[Any], layout: Layout) -> Layout:
    """Meta kernels that take a meta tensor for CUDA's say what the CPU does when they see a fake CPU tensor."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    def fake(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)

    op = overload(name)
    with FakeTensorMode(), torch.no_grad():
        positional, named = bind_arguments(op, tree_map(fake, list(arguments)), {})
        out = tree_leaves(op(*positional, **named))[position]
    return Layout(tuple(out.shape), tuple(out.stride()))


_ELEMENTWISE: Final = (
    "aten::copysign.Tensor",
    "aten::div.Tensor_mode",
    "aten::floor_divide",
    "aten::binary_cross_entropy",
    "aten::xlogy.Tensor",
    "aten::special_xlog1py",
    "aten::native_dropout_backward",
)
_ROW_MAJOR: Final = (
    "aten::diag_embed",
    "aten::index_add",
    "aten::index_copy",
    "aten::isin.Tensor_Tensor",
    "aten::max_unpool3d",
    "aten::tril",
    "aten::triu",
)
_LIKE_INPUT: Final = (
    "aten::native_batch_norm",
    "aten::_native_batch_norm_legit",
    "aten::_native_batch_norm_legit.no_stats",
    "aten::_native_batch_norm_legit_functional",
    "aten::_native_batch_norm_legit_no_training",
    "aten::_batch_norm_with_update",
    "aten::_batch_norm_with_update_functional",
    "aten::_batch_norm_no_update",
    "aten::reflection_pad2d",
    "aten::reflection_pad3d",
    "aten::replication_pad2d",
    "aten::replication_pad3d",
    "aten::max_unpool2d",
    "aten::pixel_shuffle",
    "aten::pixel_unshuffle",
    "aten::channel_shuffle",
    "aten::native_channel_shuffle",
)
_LIKE_SECOND: Final = (
    "aten::native_group_norm_backward",
    "aten::reflection_pad2d_backward",
    "aten::reflection_pad3d_backward",
    "aten::replication_pad2d_backward",
    "aten::replication_pad3d_backward",
)
_HINTED: Final = {
    "aten::_fft_r2c": (0,),
    "aten::_fft_c2r": (0,),
    "aten::_fft_c2c": (0,),
    "aten::_linalg_svd": (2,),
    "aten::linalg_eig": (1,),
    "aten::_linalg_eig": (1,),
    "aten::nonzero_static": (0,),
}

# Elementwise, but what they return is contiguous, whatever the operands are.
ELEMENTWISE_CONTIGUOUS: Final = frozenset(("aten::masked_fill.Scalar", "aten::masked_fill.Tensor"))

# An out= argument of these that is resized becomes contiguous, whatever the fresh result is.
RESIZED_CONTIGUOUS: Final = frozenset(
    (
        *("aten::_fft_r2c", "aten::_fft_c2r", "aten::_fft_c2c", "aten::slice_scatter"),
        *("aten::cholesky", "aten::cholesky_solve", "aten::native_batch_norm"),
    )
)

# overload -> a rule for each result, from the first
_RULES: Final[dict[str, tuple[Rule | None, ...]]] = {
    **dict.fromkeys(_ELEMENTWISE, (_elementwise,)),
    **dict.fromkeys(_LIKE_INPUT, (_like_input,)),
    **dict.fromkeys(_LIKE_SECOND, (_like_second,)),
    **dict.fromkeys(("aten::convolution", "aten::convolution_overrideable"), (_convolution,)),
    **dict.fromkeys(
        ("aten::convolution_backward", "aten::convolution_backward_overrideable"),
        (_convolution_backward, _convolution_backward),
    ),
    "aten::angle": (_angle,),
    "aten::roll": (_rolled,),
    **{
        name: tuple(partial(_hinted, name, i) if i in which else None for i in range(max(which) + 1))
        for name, which in _HINTED.items()
    },
    "aten::flip": (_preserved,),
    "aten::sort": (_preserved, _preserved),
    "aten::sort.stable": (_preserved, _preserved),
    "aten::index_fill.int_Scalar": (_preserved,),
    "aten::index_fill.int_Tensor": (_preserved,),
    **dict.fromkeys(_ROW_MAJOR, (_row_major,)),
    "aten::geqrf": (_columns,),
    "aten::linalg_lstsq": (_solution,),
}
