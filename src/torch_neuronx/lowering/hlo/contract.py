"""dot_general and convolution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx.lowering.dtypes import tensor_type
from torch_neuronx.lowering.hlo.mask import mask
from torch_neuronx.lowering.value import Value, static_dims


def _precision() -> ir.ArrayAttr:
    return ir.ArrayAttr.get([stablehlo.PrecisionAttr.get("HIGHEST")] * 2)


def dot_general(
    a: Value,
    b: Value,
    contract: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
    out_dtype: torch.dtype | None = None,
) -> Value:
    """Result dims: batch, free dims of a, free dims of b."""
    a, b = mask(a, contract[0], 0), mask(b, contract[1], 0)
    free_a = [d for i, d in enumerate(a.dims) if i not in contract[0] and i not in batch[0]]
    free_b = [d for i, d in enumerate(b.dims) if i not in contract[1] and i not in batch[1]]
    dims = (*(a.dims[i] for i in batch[0]), *free_a, *free_b)
    dtype = out_dtype or a.dtype
    numbers = stablehlo.DotDimensionNumbers.get(list(batch[0]), list(batch[1]), list(contract[0]), list(contract[1]))
    ssa = stablehlo.dot_general(
        tensor_type([d.bound for d in dims], dtype), a.ssa, b.ssa, numbers, precision_config=_precision()
    )
    return Value(ssa, dtype, dims)


def convolution(
    x: Value,
    w: Value,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    *,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    groups: int = 1,
    batch_groups: int = 1,
    reverse_kernel: bool = False,
    lhs_spec: tuple[int, int] = (0, 1),
    rhs_spec: tuple[int, int] = (0, 1),
    out_spec: tuple[int, int] = (0, 1),
) -> Value:
    """General convolution over the trailing spatial dimensions.

    The specs give the positions (0 or 1) of (batch, feature) in x, (output feature, input feature)
    in w and (batch, feature) in the result; spatial dimensions are 2, 3, ... in order.
    """
    n = x.ndim - 2
    spatial = list(range(2, x.ndim))
    ld, rd = list(lhs_dilation or [1] * n), list(rhs_dilation or [1] * n)
    out_spatial = []
    for i in range(n):
        size = (x.shape[i + 2] - 1) * ld[i] + 1 if x.shape[i + 2] else 0
        kernel = (w.shape[i + 2] - 1) * rd[i] + 1
        out_spatial.append((size + sum(padding[i]) - kernel) // strides[i] + 1)
    shape = [0, 0, *out_spatial]
    shape[out_spec[0]] = x.shape[lhs_spec[0]] // batch_groups
    shape[out_spec[1]] = w.shape[rhs_spec[0]]
    numbers = stablehlo.ConvDimensionNumbers.get(
        lhs_spec[0], lhs_spec[1], spatial, rhs_spec[1], rhs_spec[0], spatial, out_spec[0], out_spec[1], spatial
    )
    ssa = stablehlo.convolution(
        tensor_type(shape, x.dtype),
        x.ssa,
        w.ssa,
        numbers,
        groups,
        batch_groups,
        window_strides=list(strides),
        padding=ir.DenseIntElementsAttr.get(np.asarray(padding, np.int64).reshape(n, 2)),
        lhs_dilation=ld,
        rhs_dilation=rd,
        window_reversal=[reverse_kernel] * n,
        precision_config=_precision(),
    )
    return Value(ssa, x.dtype, static_dims(shape))
