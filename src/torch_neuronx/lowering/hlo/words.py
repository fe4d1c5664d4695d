"""Moving bfloat16 as 16-bit words.

XLA's CPU engine takes every operation on bfloat16 for arithmetic, which it does in float32: moving an element would
convert the whole array there and back, and lose the bits of a NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx.lowering.dtypes import tensor_type
from torch_neuronx.lowering.value import Value


def to_words(x: Value) -> ir.Value:
    """x as the engine moves it."""
    if x.dtype is not torch.bfloat16:
        return x.ssa
    return stablehlo.bitcast_convert(tensor_type(x.shape, word_dtype(x.dtype)), x.ssa)


def from_words(ssa: ir.Value, shape: Sequence[int], dtype: torch.dtype) -> ir.Value:
    return ssa if dtype is not torch.bfloat16 else stablehlo.bitcast_convert(tensor_type(list(shape), dtype), ssa)


def word_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.uint16 if dtype is torch.bfloat16 else dtype
