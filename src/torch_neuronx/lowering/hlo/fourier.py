"""Fourier transforms over the trailing dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir.dialects import stablehlo

from torch_neuronx.lowering.dtypes import complex_of, real_of
from torch_neuronx.lowering.value import Value, static_dims


def fft(x: Value, kind: str, lengths: Sequence[int]) -> Value:
    """`kind` is FFT, IFFT, RFFT or IRFFT over the last len(lengths) dimensions, one to three of them.

    `lengths` are those of the real side. Inverse transforms divide by their product.
    """
    ssa = stablehlo.fft(x.ssa, stablehlo.FftTypeAttr.get(kind), list(lengths))
    shape = list(x.shape)
    if kind == "RFFT":
        shape[-1] = lengths[-1] // 2 + 1
    elif kind == "IRFFT":
        shape[-1] = lengths[-1]
    dtype = real_of(x.dtype) if kind == "IRFFT" else complex_of(x.dtype)
    return Value(ssa, dtype, static_dims(shape))
