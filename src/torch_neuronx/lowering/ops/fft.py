"""Fourier transforms: torch's three kernels over StableHLO's transform of trailing dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import complex_of
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value

_TRAILING = 3  # StableHLO transforms at most this many dimensions at once
_BY_ROOT, _BY_N = 1, 2  # at::native::fft_norm_mode


def _supported(x: Value) -> None:
    if x.dtype not in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        raise Unsupported(f"Fourier transforms of {x.dtype}: only 32- and 64-bit floats and their complex pairs")


def _transform(x: Value, kind: str, dims: Sequence[int], lengths: Sequence[int]) -> Value:
    """One transform over up to three dimensions anywhere in x."""
    order = [d for d in range(x.ndim) if d not in dims] + list(dims)
    out = hlo.fft(hlo.permute(x, order), kind, lengths)
    return hlo.permute(out, [order.index(d) for d in range(x.ndim)])


def _complex(x: Value, dims: Sequence[int], forward: bool) -> Value:
    """Unscaled in both directions."""
    for i in range(0, len(dims), _TRAILING):
        group = dims[i : i + _TRAILING]
        x = _transform(x, "FFT" if forward else "IFFT", group, [x.shape[d] for d in group])
    if forward or not dims:
        return x
    return _scaled(x, math.prod(x.shape[d] for d in dims))


def _scaled(x: Value, factor: float) -> Value:
    if factor == 1:
        return x
    if x.dtype.is_complex:
        return hlo.complex_(hlo.real(x) * factor, hlo.imag(x) * factor)
    return x * factor


def _normalised(x: Value, n: int, normalization: int) -> Value:
    if normalization == _BY_ROOT:
        return _scaled(x, 1 / math.sqrt(n))
    return _scaled(x, 1 / n) if normalization == _BY_N else x


@lower("aten::_fft_c2c")
def fft_c2c(self: Value, dim: Sequence[int], normalization: int, forward: bool) -> Value:
    _supported(self)
    dims = [d % self.ndim for d in dim]
    if not self.numel:
        return self
    return _normalised(_complex(self, dims, forward), math.prod(self.shape[d] for d in dims), normalization)


@lower("aten::_fft_r2c")
def fft_r2c(self: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Value:
    _supported(self)
    dims = [d % self.ndim for d in dim]
    n = math.prod(self.shape[d] for d in dims)
    if not self.numel:
        halved = dims[-1] if onesided else -1
        shape = [m // 2 + 1 if d == halved else m for d, m in enumerate(self.shape)]
        return hlo.full(shape, 0, complex_of(self.dtype))
    if not onesided:
        return _normalised(_complex(hlo.convert(self, complex_of(self.dtype)), dims, True), n, normalization)
    last = dims[-_TRAILING:]
    half = _transform(self, "RFFT", last, [self.shape[d] for d in last])
    return _normalised(_complex(half, dims[:-_TRAILING], True), n, normalization)


@lower("aten::_fft_c2r")
def fft_c2r(self: Value, dim: Sequence[int], normalization: int, last_dim_size: int) -> Value:
    _supported(self)
    dims = [d % self.ndim for d in dim]
    lengths = [last_dim_size if d == dims[-1] else self.shape[d] for d in dims]
    n = math.prod(lengths)
    if not self.numel:
        shape = [last_dim_size if d == dims[-1] else m for d, m in enumerate(self.shape)]
        return hlo.full(shape, 0, torch.float32 if self.dtype is torch.complex64 else torch.float64)
    x = _complex(self, dims[:-_TRAILING], False)
    out = _transform(x, "IRFFT", dims[-_TRAILING:], lengths[-_TRAILING:])
    return _normalised(_scaled(out, math.prod(lengths[-_TRAILING:])), n, normalization)
