"""Complex numbers: making, splitting and conjugating them."""

from __future__ import annotations

import math

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import is_integral
from torch_neuronx.lowering.promotion import apply, unary
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value


def conjugate(x: Value) -> Value:
    return hlo.complex_(hlo.real(x), -hlo.imag(x)) if x.dtype.is_complex else x


unary("aten::_conj_physical", "aten::conj_physical", "prims::conj_physical")(conjugate)


@lower("prims::conj", bind=False)
def conj(self: Value) -> Value:
    return conjugate(self)


@lower("aten::resolve_conj", "aten::resolve_neg", bind=False)
def resolve(self: Value) -> Value:
    return self


@lower("aten::complex", pointwise=True)
def make_complex(real: Value, imag: Value) -> Value:
    return hlo.complex_(*hlo.operands(real, imag))


@lower("aten::polar", pointwise=True)
def polar(abs: Value, angle: Value) -> Value:
    size, phase = hlo.operands(abs, angle)
    return hlo.complex_(size * hlo.cosine(phase), size * hlo.sine(phase))


@lower("aten::real", "prims::real", bind=False)
def real(self: Value) -> Value:
    return hlo.real(self)


@lower("aten::imag", "prims::imag", bind=False)
def imag(self: Value) -> Value:
    return hlo.imag(self)


@lower("aten::angle")
def angle(self: Value) -> Value:
    if self.dtype.is_complex:
        return hlo.atan2(hlo.imag(self), hlo.real(self))
    dtype = torch.get_default_dtype() if is_integral(self.dtype) else self.dtype

    def build(x: Value) -> Value:
        return hlo.select(hlo.is_nan(x), x, hlo.select(x < 0, math.pi, hlo.zeros_like(x)))

    return apply(build, hlo.convert(self, dtype))
