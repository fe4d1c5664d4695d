"""Sums, products, extrema, moments and norms over dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.axes import axes, extent, kept
from torch_neuronx.lowering.dtypes import compute_dtype, is_complex, is_integral, real_of
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value

Dims = Sequence[int] | int | None


def wide(x: Value, dtype: torch.dtype | None) -> tuple[Value, torch.dtype]:
    """(x as a sum adds it, the result's dtype): integers add in int64, low precision in float32."""
    result = dtype or (torch.int64 if is_integral(x.dtype) else x.dtype)
    return hlo.convert(hlo.convert(x, result), compute_dtype(result)), result


@lower("aten::sum.dim_IntList")
def sum_dim(self: Value, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    x, result = wide(self, dtype)
    return hlo.convert(hlo.sum_(x, axes(dim, x.ndim), keepdim), result)


@lower("aten::sum")
def sum_all(self: Value, *, dtype: torch.dtype | None = None) -> Value:
    return sum_dim(self, dtype=dtype)


@lower("aten::nansum")
def nansum(self: Value, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    if self.dtype.is_floating_point:
        self = hlo.select(hlo.is_nan(self), 0, self)
    return sum_dim(self, dim, keepdim, dtype=dtype)


@lower("aten::mean.dim")
def mean_dim(self: Value, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    x, result = wide(self, dtype)
    over = axes(dim, x.ndim)
    return hlo.convert(hlo.sum_(x, over, keepdim) / float(extent(x, over)), result)


@lower("aten::mean")
def mean_all(self: Value, *, dtype: torch.dtype | None = None) -> Value:
    return mean_dim(self, dtype=dtype)


@lower("aten::prod.dim_int")
def prod_dim(self: Value, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    x, result = wide(self, dtype)
    return hlo.convert(hlo.prod(x, axes(dim, x.ndim), keepdim), result)


@lower("aten::prod")
def prod_all(self: Value, *, dtype: torch.dtype | None = None) -> Value:
    return prod_dim(self, dtype=dtype)


@lower("aten::amax")
def amax(self: Value, dim: Dims = (), keepdim: bool = False) -> Value:
    return hlo.reduce_max(self, axes(dim, self.ndim), keepdim)


@lower("aten::amin")
def amin(self: Value, dim: Dims = (), keepdim: bool = False) -> Value:
    return hlo.reduce_min(self, axes(dim, self.ndim), keepdim)


lower("aten::max")(amax)
lower("aten::min")(amin)


@lower("aten::aminmax")
def aminmax(self: Value, *, dim: int | None = None, keepdim: bool = False) -> tuple[Value, Value]:
    return amin(self, dim, keepdim), amax(self, dim, keepdim)


@lower("aten::_aminmax")
def aminmax_all(self: Value) -> tuple[Value, Value]:
    return aminmax(self)


@lower("aten::_aminmax.dim")
def aminmax_dim(self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return aminmax(self, dim=dim, keepdim=keepdim)


def _truth(build: Callable[..., Value], self: Value, over: Sequence[int], keepdim: bool) -> Value:
    """all/any: bool, but uint8 for uint8 as torch has it."""
    out = build(hlo.convert(self, torch.bool), over, keepdim)
    return hlo.convert(out, torch.uint8) if self.dtype is torch.uint8 else out


@lower("aten::all", "aten::all.dim")
def all_dim(self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _truth(hlo.all_, self, axes(dim, self.ndim), keepdim)


@lower("aten::any", "aten::any.dim")
def any_dim(self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _truth(hlo.any_, self, axes(dim, self.ndim), keepdim)


@lower("aten::all.dims")
def all_dims(self: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    return _truth(hlo.all_, self, [] if dim == [] else axes(dim, self.ndim), keepdim)


@lower("aten::any.dims")
def any_dims(self: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    return _truth(hlo.any_, self, [] if dim == [] else axes(dim, self.ndim), keepdim)


@lower("aten::count_nonzero.dim_IntList", "aten::count_nonzero")
def count_nonzero(self: Value, dim: Dims = None) -> Value:
    return hlo.sum_(hlo.convert(hlo.convert(self, torch.bool), torch.int64), axes(dim, self.ndim))


@lower("aten::trace")
def trace(self: Value) -> Value:
    rows, columns = self.shape
    n = min(rows, columns)
    stop = (n - 1) * (columns + 1) + 1 if n else 0
    return sum_dim(hlo.slice_dim(hlo.flatten(self), 0, 0, stop, columns + 1))


def moments(x: Value, over: Sequence[int], correction: Scalar | None) -> tuple[Value, Value]:
    """(variance, mean) with extent 1 along `over`; two passes, since E[x^2] - E[x]^2 cancels."""
    if is_complex(x.dtype):
        (re_var, re_mean), (im_var, im_mean) = (moments(part(x), over, correction) for part in (hlo.real, hlo.imag))
        return re_var + im_var, hlo.complex_(re_mean, im_mean)
    n = extent(x, over)
    mean = hlo.sum_(x, over, True) / float(n)
    apart = x - mean
    squares = hlo.sum_(apart * apart, over, True)
    if correction is None or not isinstance(correction, Value):
        return squares / max(float(n) - (1.0 if correction is None else complex(correction).real), 0.0), mean
    freedom = hlo.constant(float(n), torch.float64) - hlo.convert(correction, torch.float64)
    return squares / hlo.convert(hlo.maximum(freedom, 0.0), x.dtype), mean


def _moments(self: Value, dim: Dims, correction: Scalar | None, keepdim: bool) -> tuple[Value, Value]:
    over = axes(dim, self.ndim)
    x = hlo.convert(self, compute_dtype(self.dtype))
    var, mean = moments(x, over, correction)
    shape = kept(x, over) if keepdim else [n for i, n in enumerate(x.shape) if i not in over]
    return hlo.reshape(var, shape), hlo.reshape(mean, shape)


@lower("aten::var_mean.correction")
def var_mean(
    self: Value, dim: Dims = None, *, correction: Scalar | None = None, keepdim: bool = False
) -> tuple[Value, Value]:
    var, mean = _moments(self, dim, correction, keepdim)
    return hlo.convert(var, real_of(self.dtype)), hlo.convert(mean, self.dtype)


@lower("aten::std_mean.correction")
def std_mean(
    self: Value, dim: Dims = None, *, correction: Scalar | None = None, keepdim: bool = False
) -> tuple[Value, Value]:
    var, mean = _moments(self, dim, correction, keepdim)
    return hlo.convert(hlo.sqrt(var), real_of(self.dtype)), hlo.convert(mean, self.dtype)


@lower("aten::var.correction")
def var(self: Value, dim: Dims = None, *, correction: Scalar | None = None, keepdim: bool = False) -> Value:
    return var_mean(self, dim, correction=correction, keepdim=keepdim)[0]


@lower("aten::std.correction")
def std(self: Value, dim: Dims = None, *, correction: Scalar | None = None, keepdim: bool = False) -> Value:
    return std_mean(self, dim, correction=correction, keepdim=keepdim)[0]


@lower("aten::logsumexp")
def logsumexp(self: Value, dim: Dims, keepdim: bool = False) -> Value:
    dtype = torch.get_default_dtype() if is_integral(self.dtype) else self.dtype
    x = hlo.convert(self, compute_dtype(dtype))
    over = axes(dim, x.ndim)
    shape = kept(x, over) if keepdim else [n for i, n in enumerate(x.shape) if i not in over]
    top = hlo.reduce_max(hlo.real(x), over, True)
    top = hlo.convert(hlo.select(hlo.is_inf(top), 0.0, top), x.dtype)
    total = hlo.log(hlo.sum_(hlo.exponential(x - top), over, True)) + top
    return hlo.convert(hlo.reshape(total, shape), dtype)


def power_sum(magnitude: Value, p: float, over: Sequence[int], keepdim: bool) -> Value:
    """Sum of |x|^p over dims, for a finite p."""
    if p == 0:
        return hlo.sum_(hlo.convert(hlo.convert(magnitude, torch.bool), magnitude.dtype), over, keepdim)
    if p == 1:
        return hlo.sum_(magnitude, over, keepdim)
    if p == 2:
        return hlo.sum_(magnitude * magnitude, over, keepdim)
    return hlo.sum_(hlo.power(magnitude, p), over, keepdim)


def p_norm(magnitude: Value, p: float, over: Sequence[int], keepdim: bool) -> Value:
    if math.isinf(p):
        build = hlo.reduce_max if p > 0 else hlo.reduce_min
        return build(magnitude, over, keepdim)
    total = power_sum(magnitude, p, over, keepdim)
    if p in (0, 1):
        return total
    return hlo.sqrt(total) if p == 2 else hlo.power(total, 1.0 / p)


def _magnitude(self: Value, dtype: torch.dtype | None) -> tuple[Value, torch.dtype]:
    """(|self| in the dtype it is summed in, the result's dtype)."""
    result = dtype or self.dtype
    x = hlo.convert(hlo.convert(self, result), compute_dtype(result))
    return hlo.abs_(x), real_of(result)


@lower("aten::linalg_vector_norm", attributes=["ord"])
def vector_norm(
    self: Value, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Value:
    magnitude, result = _magnitude(self, dtype)
    return hlo.convert(p_norm(magnitude, float(ord), axes(dim, self.ndim), keepdim), result)


@lower("aten::linalg__powsum", attributes=["ord"])
def vector_power_sum(
    self: Value, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Value:
    magnitude, result = _magnitude(self, dtype)
    return hlo.convert(power_sum(magnitude, float(ord), axes(dim, self.ndim), keepdim), result)


@lower("aten::norm.ScalarOpt_dim", "aten::norm.ScalarOpt_dim_dtype", attributes=["p"])
def norm_dim(
    self: Value, p: float | None, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Value:
    return vector_norm(self, 2 if p is None else p, dim, keepdim, dtype=dtype)


@lower("aten::norm.Scalar", "aten::norm.ScalarOpt_dtype", attributes=["p"])
def norm_all(self: Value, p: float | None = 2, *, dtype: torch.dtype | None = None) -> Value:
    return norm_dim(self, p, dtype=dtype)


@lower("aten::hash_tensor")
def hash_tensor(self: Value, dim: Dims = (), *, keepdim: bool = False, mode: int = 0) -> Value:
    """Exclusive or of 64-bit patterns: of the double for floats, of the integer itself otherwise."""
    if mode != 0:
        raise Unsupported(f"hash_tensor mode {mode}")
    floating = self.dtype.is_floating_point
    bits = hlo.bitcast(hlo.convert(self, torch.float64), torch.uint64) if floating else hlo.convert(self, torch.uint64)
    return hlo.map_reduce(bits, 0, axes(dim, self.ndim), keepdim, hlo.xor)


@lower("aten::dist", attributes=["p"])
def dist(self: Value, other: Value, p: float = 2) -> Value:
    from torch_neuronx.lowering.promotion import promote

    _, (a, b) = promote(self, other)
    return vector_norm(a - b, p)


@lower("aten::_foreach_norm.Scalar", attributes=["ord"])
def foreach_norm(self: list[Value], ord: float = 2, dtype: torch.dtype | None = None) -> list[Value]:
    return [vector_norm(x, ord, dtype=dtype) for x in self]
