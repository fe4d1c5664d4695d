"""Dtypes that ops refuse to write their results to."""

from __future__ import annotations

from typing import Final

import torch

from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.refusals.operands import short

# These convert nothing: what they write to has the result's dtype.
_EXACT: Final = frozenset(
    {
        "_log_softmax", "_softmax", "abs", "amax", "amin", "argmax", "argmin", "bitwise_not", "ceil", "clamp",
        "clamp_max", "clamp_min", "cummax", "cummin", "floor", "frac", "gather", "heaviside", "index_select",
        "isneginf", "isposinf", "kthvalue", "linalg_vector_norm", "max", "median", "min", "mode", "nan_to_num",
        "nanmedian", "neg", "norm", "round", "scatter", "sgn", "sign", "signbit", "sort", "take", "topk", "tril",
        "triu", "trunc", "where",
    }
)  # fmt: skip
# Bounds that are tensors make clamp an elementwise op like any other.
_CONVERTING: Final = frozenset({"aten::clamp.Tensor", "aten::clamp_min.Tensor", "aten::clamp_max.Tensor"})
_TRUTH: Final = frozenset({"all", "any"})


# The dtype that the call asks for is the one out= must have.
_ASKED: Final = frozenset({"sum", "prod", "mean", "nansum", "cumsum", "cumprod"})


def refuse_written(functional: str, result: torch.dtype, written: torch.dtype, asked: torch.dtype | None) -> None:
    """What torch refuses is left to the CPU's op, which says so in torch's words."""
    name = short(functional)
    exact = (name in _EXACT and functional not in _CONVERTING) or (name in _TRUTH and written is not torch.uint8)
    exact = exact or (name in _ASKED and asked is not None)
    if (exact and result != written) or not torch.can_cast(result, written):
        raise Unsupported(f"a result of {result} written to {written}, which torch refuses")
