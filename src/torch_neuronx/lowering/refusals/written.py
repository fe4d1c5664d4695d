"""Dtypes that ops refuse to write their results to."""

from __future__ import annotations

from typing import Final

import torch

from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.refusals.operands import short

# These convert nothing: what they write to has the result's dtype.
_EXACT: Final = frozenset({
    "abs", "bitwise_not", "ceil", "floor", "frac", "nan_to_num", "neg", "round", "sgn", "sign", "trunc", "isposinf",
    "isneginf", "signbit", "clamp", "clamp_min", "clamp_max", "where", "heaviside", "amax", "amin", "argmax",
    "argmin", "max", "min", "median", "nanmedian", "mode", "kthvalue", "sort", "topk", "cummax", "cummin", "gather",
    "scatter", "index_select", "take", "tril", "triu",
})  # fmt: skip
_TRUTH: Final = frozenset({"all", "any"})


def refuse_written(functional: str, result: torch.dtype, written: torch.dtype) -> None:
    """What torch refuses is left to the CPU's op, which says so in torch's words."""
    name = short(functional)
    exact = name in _EXACT or (name in _TRUTH and written is not torch.uint8)
    if (exact and result != written) or not torch.can_cast(result, written):
        raise Unsupported(f"a result of {result} written to {written}, which torch refuses")
