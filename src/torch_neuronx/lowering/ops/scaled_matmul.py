"""Matrix products of quantised operands: float8 and int8 values with scales, computed in float32."""

from __future__ import annotations

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.ops.matmul import product
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value


@lower("aten::_scaled_mm")
def scaled_mm(
    self: Value,
    mat2: Value,
    scale_a: Value,
    scale_b: Value,
    bias: Value | None,
    scale_result: Value | None,
    out_dtype: torch.dtype | None,
    use_fast_accum: bool,
) -> Value:
    """(self * scale_a) @ (mat2 * scale_b) + bias; scales of one element, of each row, or of each column.

    `scale_result` is not looked at, as on the CPU.
    """
    a = hlo.convert(self, torch.float32) * hlo.convert(_scale(scale_a), torch.float32)
    b = hlo.convert(mat2, torch.float32) * hlo.convert(_scale(scale_b), torch.float32)
    out = product(a, b, ([1], [0]))
    if bias is not None:
        out = out + hlo.convert(bias, torch.float32)
    return hlo.convert(out, out_dtype or self.dtype)


def _scale(x: Value) -> Value:
    return hlo.reshape(x, ()) if x.numel == 1 else x


@lower("aten::_weight_int8pack_mm")
def weight_int8pack_mm(self: Value, mat2: Value, scales: Value) -> Value:
    """(M, K) @ int8 (N, K) transposed, each of the N columns times its scale."""
    inner = compute_dtype(self.dtype)
    out = product(hlo.convert(self, inner), hlo.convert(mat2, inner), ([1], [1]))
    return hlo.convert(out * hlo.convert(hlo.reshape(scales, (1, -1)), inner), self.dtype)
