"""Padding is garbage: what mixes values along a padded dimension masks it first."""

from __future__ import annotations

from collections.abc import Sequence

from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.value import Scalar, Value


def mask(x: Value, dims: Sequence[int], fill: Scalar) -> Value:
    """Replaces the padding of x along `dims` by `fill`; static dimensions have none."""
    if any(x.dims[d].padded for d in dims):
        raise Unsupported(f"a padded dimension cannot be masked with {fill} yet: no dynamic sizes in eager mode")
    return x
