"""isin: which elements occur among others."""

from __future__ import annotations

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.promotion import promote
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value

_COMPARE_ALL = 64  # up to so many candidates, comparing with each beats sorting them


@lower("aten::isin.Tensor_Tensor", "aten::isin.Tensor_Scalar", "aten::isin.Scalar_Tensor")
def isin(elements: Scalar, test_elements: Scalar, *, assume_unique: bool = False, invert: bool = False) -> Value:
    _, (x, among) = promote(elements, test_elements)
    candidates = hlo.flatten(among)
    if not candidates.numel or not x.numel:
        found = hlo.full(x.shape, False, torch.bool)
    elif candidates.numel <= _COMPARE_ALL:
        found = hlo.any_(hlo.eq(hlo.unsqueeze(x, x.ndim), candidates), x.ndim)
    else:
        found = _search(x, candidates)
    return hlo.not_(found) if invert else found


def _search(x: Value, candidates: Value) -> Value:
    """Binary search in the sorted candidates, all elements at once; NaN sorts last and equals nothing."""

    def less(a: Value, b: Value) -> Value:
        smaller = hlo.lt(a, b)
        return smaller | (hlo.is_nan(b) & hlo.not_(hlo.is_nan(a))) if a.dtype.is_floating_point else smaller

    (ordered,) = hlo.sort([candidates], 0, less, stable=False)
    n = candidates.numel
    low = hlo.full(x.shape, 0, torch.int64)  # the last position known to hold a value <= x, or 0
    step = 1 << (n - 1).bit_length()
    while step:
        probe = low + step
        fits = hlo.lt(probe, n)
        value = hlo.take_rows(ordered, hlo.minimum(probe, n - 1))
        low = hlo.select(fits & hlo.le(value, x), probe, low)
        step //= 2
    return hlo.eq(hlo.take_rows(ordered, low), x)
