"""Convolutions with more weights than there are patches, as matrix products.

XLA's CPU turns the weights of a convolution around at every call. Where they are larger than the patches (the last
layers of an image network, at small batches) that takes longer than the products: here the patches are made instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.ops.patches import col2im, im2col
from torch_neuronx.lowering.value import Value

Ints = Sequence[int]
SMALL: Final = 1 << 16  # weights: below that turning them around costs nothing that shows
_wanted: ContextVar[bool | None] = ContextVar("products instead of convolutions", default=None)


@contextmanager
def products(wanted: bool) -> Iterator[None]:
    """All convolutions that can be are lowered as products in this block, or none is: to measure both."""
    token = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(token)


def pays(weights: Ints, dtype: torch.dtype, batch: int, out: Ints, groups: int) -> bool:
    """Whether a convolution with weights (O, I, *kernel) and `out` places in each of `batch` images is faster so."""
    few = batch * math.prod(out) <= weights[0] and math.prod(weights) >= SMALL
    wanted = _wanted.get()
    chosen = few if wanted is None else wanted
    return chosen and len(out) == 2 and groups == 1 and not dtype.is_complex


def correlate(x: Value, w: Value, out: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Value:
    """x (N, I, H, W), w (O, I, *kernel) -> (N, O, *out)."""
    columns = im2col(x, w.shape[2:], dilation, padding, stride)
    made = hlo.dot_general(_matrix(w), columns, ([1], [1]))
    return hlo.reshape(hlo.permute(made, [1, 0, 2]), (x.shape[0], w.shape[0], *out))


def spread(g: Value, w: Value, out: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Value:
    """The adjoint of `correlate` in x: g (N, O, h, w) -> (N, I, *out)."""
    places = hlo.reshape(g, (*g.shape[:2], -1))
    columns = hlo.permute(hlo.dot_general(_matrix(w), places, ([0], [1])), [1, 0, 2])
    return col2im(columns, out, w.shape[2:], dilation, padding, stride)


def weight_gradient(x: Value, g: Value, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Value:
    """The adjoint of `correlate` in w: (O, I, *kernel)."""
    columns = im2col(x, kernel, dilation, padding, stride)
    places = hlo.reshape(g, (*g.shape[:2], -1))
    made = hlo.dot_general(places, columns, ([0, 2], [0, 2]))
    return hlo.reshape(made, (g.shape[1], x.shape[1], *kernel))


def _matrix(w: Value) -> Value:
    return hlo.reshape(w, (w.shape[0], -1))
