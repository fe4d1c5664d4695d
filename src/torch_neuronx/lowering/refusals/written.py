"""Dtypes that ops refuse to write their results to."""

from __future__ import annotations

from typing import Final

import torch

from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.refusals.operands import short

# These convert nothing: what they write to has the result's dtype.
_EXACT: Final = frozenset(
    {
        "abs", "amax", "amin", "argmax", "argmin", "bitwise_not", "ceil", "clamp", "clamp_max", "clamp_min", "cummax",
        "cummin", "floor", "frac", "gather", "heaviside", "index_select", "isneginf", "isposinf", "kthvalue", "max",
        "median", "min", "mode", "nan_to_num", "nanmedian", "neg", "round", "scatter", "sgn", "sign", "signbit", "sort",
        "take", "topk", "tril", "triu", "trunc", "where",
    }
)  # fmt: skip
# Bounds that are tensors make clamp an elementwise op like any other.
_CONVERTING: Final = frozenset({"aten::clamp.Tensor", "aten::clamp_min.Tensor", "aten::clamp_max.Tensor"})
_TRUTH: Final = frozenset({"all", "any"})


def refuse_written(functional: str, result: torch.dtype, written: torch.dtype) -> None:
    """What torch refuses is left to the CPU's op, which says so in torch's words."""
    name = short(functional)
    exact = (name in _EXACT and functional not in _CONVERTING) or (name in _TRUTH and written is not torch.uint8)
    if (exact and result != written) or not torch.can_cast(result, written):
        raise Unsupported(f"a result of {result} written to {written}, which torch refuses")
