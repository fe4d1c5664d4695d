"""torch.use_deterministic_algorithms(): which calls have no deterministic implementation.

Some have none on any device: repeated positions leave open which value is kept. The others are CUDA's: they add or
compare in an order that is not fixed there, and here on targets that do not promise one (Capabilities.fixed_order).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from torch_neuronx.lowering.forms import resolve
from torch_neuronx.lowering.table import overload
from torch_neuronx.runtime.targets import runtime
from torch_neuronx.scalar_types import dtype_of

Arguments = Mapping[str, Any]
_MAX_BAG: Final = 2  # embedding_bag's mode


def _real_or_complex(a: Arguments) -> bool:
    dtype = a["self"].dtype if a["dtype"] is None else dtype_of(a["dtype"])
    return dtype.is_floating_point or dtype.is_complex


def _always(a: Arguments) -> bool:
    return True


def _never(a: Arguments) -> bool:
    return False


# functional overload -> (what torch calls the kernel, when it is meant)
Rules = dict[str, tuple[str, Callable[[Arguments], bool]]]
_EVERYWHERE: Final[Rules] = {
    "aten::put": ("put_", lambda a: not a["accumulate"]),
    "aten::max_unpool2d": ("max_unpooling2d_forward_out", _always),
    "aten::max_unpool3d": ("max_unpooling3d_forward_out", _always),
}
_WITHOUT_ORDER: Final[Rules] = {
    "aten::put": ("put_", _always),
    "aten::histc": ("_histc_cuda with floating point input", lambda a: a["self"].dtype.is_floating_point),
    "aten::bincount": ("_bincount_cuda", lambda a: a["weights"] is not None),
    "aten::cumsum": ("cumsum_cuda_kernel", _real_or_complex),
    "aten::median.dim": ("median CUDA with indices output", _always),
    "aten::nanmedian.dim": ("median CUDA with indices output", _always),
    "aten::kthvalue": ("kthvalue CUDA", _always),
    "aten::scatter_reduce.two": ("scatter_reduce_cuda_kernel", lambda a: a["reduce"] == "prod"),
    "aten::nll_loss2d_forward": ("nll_loss2d_forward_out_cuda_template", _always),
    "aten::_ctc_loss_backward": ("ctc_loss_backward_gpu", _always),
    "aten::_ctc_loss_backward.Tensor": ("ctc_loss_backward_gpu", _always),
    "aten::_embedding_bag_dense_backward": ("embedding_bag_backward_cuda_max", lambda a: a["mode"] == _MAX_BAG),
    **{
        f"aten::{name}": (f"{name}_cuda", _always)
        for name in (
            "avg_pool3d_backward",
            "adaptive_max_pool2d_backward",
            "fractional_max_pool2d_backward",
            "fractional_max_pool3d_backward",
            "grid_sampler_2d_backward",
            "grid_sampler_3d_backward",
            "reflection_pad2d_backward",
        )
    },
    **{
        f"aten::{name}": (f"{name}_out_cuda", _always)
        for name in (
            "reflection_pad1d_backward",
            "reflection_pad3d_backward",
            "upsample_linear1d_backward",
            "upsample_bilinear2d_backward",
            "upsample_bicubic2d_backward",
            "upsample_trilinear3d_backward",
        )
    },
    "aten::_adaptive_avg_pool2d_backward": ("adaptive_avg_pool2d_backward_cuda", _always),
    "aten::_adaptive_avg_pool3d_backward": ("adaptive_avg_pool3d_backward_cuda", _always),
}


def may_alert(functional: str) -> bool:
    """Whether any call of the overload may have no deterministic implementation on this target."""
    return functional in _EVERYWHERE or (functional in _WITHOUT_ORDER and not runtime().capabilities.fixed_order)


def caller(name: str, args: tuple[Any, ...]) -> str | None:
    """What torch's message names, when this call has no deterministic implementation."""
    form = resolve(name)
    named = {a.name: x for a, x in zip(overload(name)._schema.arguments, args, strict=True)}
    rules = (_EVERYWHERE,) if runtime().capabilities.fixed_order else (_EVERYWHERE, _WITHOUT_ORDER)
    for table in rules:
        words, meant = table.get(form.functional, ("", _never))
        if meant(named):
            return words
    return None
