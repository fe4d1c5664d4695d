"""Matrix products, losses and masked softmax: shapes and dtypes that do not go together."""

from __future__ import annotations

from typing import Final

import torch

from torch_neuronx.lowering.refusals.operands import Refusal, argument
from torch_neuronx.lowering.spec import Call, TensorSpec

_PRODUCTS: Final = ("mm", "bmm", "mv", "dot", "vdot", "addmm", "baddbmm", "addbmm", "addmv")
_FULL_MASK: Final = 2


def _one_dtype(name: str, call: Call) -> None:
    tensors = [x for x in call.args if isinstance(x, TensorSpec)]
    if len({t.dtype for t in tensors}) > 1:
        shown = ", ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.layout.sizes)}" for t in tensors)
        raise RuntimeError(
            f"{name}: expected all tensors to have the same dtype, but got {shown}. "
            "Convert them to one dtype with .to(dtype), or use torch.autocast."
        )


def _matrices(first: int) -> Refusal:
    """Shapes that do not go together, in the words torch has for them on every device."""

    def check(name: str, call: Call) -> None:
        _one_dtype(name, call)
        a, b = (call.args[i].layout.sizes for i in (first, first + 1))
        if len(a) == len(b) == 2 and a[1] != b[0]:
            raise RuntimeError(f"{name}: mat1 and mat2 shapes cannot be multiplied ({a[0]}x{a[1]} and {b[0]}x{b[1]})")

    return check


def _convolution(name: str, call: Call) -> None:
    _one_dtype(name, call)
    stride, dilation, extra = (argument(call, x) for x in ("stride", "dilation", "output_padding"))
    if argument(call, "transposed") and any(
        e >= max(stride[i % len(stride)], dilation[i % len(dilation)]) for i, e in enumerate(extra)
    ):
        raise RuntimeError(
            f"{name}: output padding must be smaller than either stride or dilation, but got output_padding "
            f"{list(extra)}, stride {list(stride)}, dilation {list(dilation)}"
        )


def _class_targets(name: str, call: Call) -> None:
    target = argument(call, "target")
    if target.dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(
            f"{name}: expected class indices of dtype int64 or uint8, got {target.dtype}. Convert them with .long()."
        )


def _softmax_mask(name: str, call: Call) -> None:
    scores, mask, _, kind = call.args[:4]
    if mask.dtype is not torch.bool:
        raise RuntimeError(f"{name}: Mask should be a boolean tensor, but got {mask.dtype}. Convert it with .bool().")
    if kind in (None, _FULL_MASK) and mask.layout.sizes != scores.layout.sizes:
        raise RuntimeError(
            f"{name}: For mask_type == 2 mask shape should match input shape, but the mask is "
            f"{list(mask.layout.sizes)} and the input {list(scores.layout.sizes)}."
        )


CHECKS: Final[dict[str, Refusal]] = {
    **dict.fromkeys((*_PRODUCTS, "linalg_cross"), _one_dtype),
    **dict.fromkeys(("convolution", "convolution_overrideable"), _convolution),
    "mm": _matrices(0),
    "addmm": _matrices(1),
    **{f"nll_loss{kind}": _class_targets for kind in ("_forward", "2d_forward", "_backward", "2d_backward")},
    "_masked_softmax": _softmax_mask,
}
