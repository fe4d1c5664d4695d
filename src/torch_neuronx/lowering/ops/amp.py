"""What GradScaler needs: unscaling with a check for overflow, and the new scale."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import compute_dtype
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value


@lower("aten::_amp_foreach_non_finite_check_and_unscale", listwise=True)
def non_finite_check_and_unscale(
    self: Sequence[Value], found_inf: Value, inv_scale: Value
) -> tuple[list[Value], Value]:
    """Gradients times inv_scale; found_inf becomes 1 when one of them was not finite, else it stays."""
    scaled, bad = [], hlo.constant(False, torch.bool)
    for grad in self:
        g = hlo.convert(grad, compute_dtype(grad.dtype))
        factor = hlo.convert(hlo.reshape(inv_scale, ()), g.dtype)
        bad = bad | hlo.any_(hlo.not_(hlo.is_finite(g)))
        scaled.append(hlo.convert(hlo.select(hlo.eq(factor, 1), g, g * factor), grad.dtype))
    return scaled, hlo.select(bad, hlo.ones_like(found_inf), found_inf)


@lower("aten::_amp_update_scale")
def update_scale(
    self: Value,
    growth_tracker: Value,
    found_inf: Value,
    scale_growth_factor: Scalar,
    scale_backoff_factor: Scalar,
    growth_interval: int,
) -> tuple[Value, Value]:
    """Backs off after an overflow, grows after `growth_interval` steps without one."""
    scale = hlo.convert(self, torch.float64)
    factors = (scale_growth_factor, scale_backoff_factor)
    growth, backoff = (hlo.convert(hlo.as_value(f), torch.float64) for f in factors)
    overflowed = hlo.ne(hlo.reshape(found_inf, self.shape), 0)
    grown = hlo.convert(scale * growth, self.dtype)
    tracker = hlo.reshape(growth_tracker, self.shape) + 1
    due = hlo.eq(tracker, growth_interval)
    kept = hlo.select(due & hlo.is_finite(grown), grown, self)
    new_scale = hlo.select(overflowed, hlo.convert(scale * backoff, self.dtype), kept)
    new_tracker = hlo.select(overflowed | due, hlo.zeros_like(tracker), tracker)
    return new_scale, hlo.reshape(new_tracker, growth_tracker.shape)
