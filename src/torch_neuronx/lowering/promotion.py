"""torch's type promotion, and the builders that turn one StableHLO function into a row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import FLOAT8, compute_dtype, is_integral, real_of
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.hlo.literal import as_value
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Scalar, Value

Build = Callable[..., Value]


def _category(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return 3
    if dtype.is_floating_point:
        return 2
    return 0 if dtype is torch.bool else 1


def _default_for(dtype: torch.dtype) -> torch.dtype:
    """A wrapped number counts as the default dtype of its category, not as float64."""
    if dtype.is_complex:
        return torch.promote_types(torch.get_default_dtype(), torch.complex32)
    return torch.get_default_dtype() if dtype.is_floating_point else dtype


def result_type(*xs: Scalar) -> torch.dtype:
    """torch.result_type: tensors with dimensions first, then 0-d tensors, then wrapped numbers."""
    values = [as_value(x) for x in xs]
    _refuse_float8([v.dtype for v in values if not v.weak])
    tiers: list[torch.dtype | None] = [None, None, None]
    for v in values:
        tier = 2 if v.weak else (1 if v.ndim == 0 else 0)
        dtype = _default_for(v.dtype) if v.weak else v.dtype
        seen = tiers[tier]
        tiers[tier] = dtype if seen is None else _common(seen, dtype)
    result: torch.dtype | None = None
    for dtype in [d for d in reversed(tiers) if d is not None]:
        if result is None or _category(result) <= _category(dtype):
            result = dtype
        elif dtype is torch.bool:
            result = _common(result, dtype)
        elif result.is_complex and not dtype.is_complex and dtype.is_floating_point:
            result = torch.promote_types(dtype, torch.complex32)
    if result is None:
        raise RuntimeError("result_type needs at least one operand")
    return result


def _common(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    try:
        return torch.promote_types(a, b)
    except RuntimeError as error:  # uint16, uint32 and uint64 go together with nothing but floats
        raise Unsupported(f"{error}, which torch refuses") from None


def _refuse_float8(dtypes: Sequence[torch.dtype]) -> None:
    if len(set(dtypes)) > 1 and FLOAT8.intersection(dtypes):
        raise Unsupported(f"promotion of {' and '.join(map(str, dtypes))}, which torch refuses")


def promote(*xs: Scalar, int_to_float: bool = False) -> tuple[torch.dtype, list[Value]]:
    """(result dtype, operands converted to it). Integers become the default float when asked."""
    dtype = result_type(*xs)
    if int_to_float and is_integral(dtype):
        dtype = torch.get_default_dtype()
    return dtype, [hlo.convert(as_value(x), dtype) for x in xs]


def computed(
    build: Build,
    dtype: torch.dtype,
    values: Sequence[Value],
    result: torch.dtype | None = None,
    steps_in: Collection[torch.dtype] = (),
) -> Value:
    """Runs `build` in the dtype torch's kernels compute in (float32 for bf16, f16, fp8) and rounds once."""
    inner = dtype if dtype in steps_in else compute_dtype(dtype)
    out = build(*(hlo.convert(v, inner) for v in values))
    return hlo.convert(out, result) if result is not None else _rounded(out, inner, dtype)


def _rounded(out: Value, inner: torch.dtype, dtype: torch.dtype) -> Value:
    """What was computed in `inner` for `dtype`; a complex number's magnitude in its real dtype."""
    if out.dtype == inner:
        return hlo.convert(out, dtype)
    return hlo.convert(out, real_of(dtype)) if inner.is_complex and out.dtype == real_of(inner) else out


def apply(
    build: Build,
    *xs: Scalar,
    scalars: Sequence[Scalar] = (),
    int_to_float: bool = False,
    result: torch.dtype | None = None,
    opmath: bool = False,
    stepwise: bool = False,
    steps_in: Collection[torch.dtype] = (),
) -> Value:
    """Promotes `xs`, runs `build(*xs, *scalars)` in the compute dtype and rounds once.

    `scalars` are parameters (slopes, bounds): they take the compute dtype and never promote.
    `opmath` keeps wrapped numbers among `xs` at compute precision instead of rounding them to the
    result dtype first, as torch's mul and div do (its add and sub round them, and complex32's mul does).
    `stepwise` is for the kernels that round complex32 after every step: those written in c10::complex<Half>.
    `steps_in` are the real dtypes that the CPU's kernel rounds to after every step, as Vectorized<BFloat16> does.
    """
    dtype = result_type(*xs)
    if int_to_float and is_integral(dtype):
        dtype = torch.get_default_dtype()
    half = dtype is torch.complex32
    inner = dtype if (half and stepwise) or dtype in steps_in else compute_dtype(dtype)
    operands = [as_value(x) for x in xs]
    values = [hlo.convert(v if v.weak and opmath and not half else hlo.convert(v, dtype), inner) for v in operands]
    extra = [hlo.convert(as_value(s), inner) for s in scalars]
    out = build(*values, *extra)
    return hlo.convert(out, result) if result is not None else _rounded(out, inner, dtype)


def unary(
    *names: str,
    int_to_float: bool = False,
    result: torch.dtype | None = None,
    reads_self: bool = True,
    steps_in: Collection[torch.dtype] = (),
) -> Callable[[Build], Build]:
    """Rows for `op(Tensor self)`: promotion, compute dtype and rounding around `build(x)`."""

    def register(build: Build) -> Build:
        @lower(*names, pointwise=True, reads_self=reads_self)
        def emit(self: Value) -> Value:
            dtype, (x,) = promote(self, int_to_float=int_to_float)
            return computed(build, dtype, [x], result, steps_in)

        return build

    return register


def binary(
    *names: str,
    int_to_float: bool = False,
    result: torch.dtype | None = None,
    attributes: Sequence[str] = (),
    opmath: bool = False,
    steps_in: Collection[torch.dtype] = (),
) -> Callable[[Build], Build]:
    """Rows for `op(self, other)` with tensors or Scalars: promotion, then `build(a, b)`."""

    def register(build: Build) -> Build:
        @lower(*names, pointwise=True, attributes=attributes)
        def emit(self: Scalar, other: Scalar) -> Value:
            return apply(build, self, other, int_to_float=int_to_float, result=result, opmath=opmath, steps_in=steps_in)

        return build

    return register
