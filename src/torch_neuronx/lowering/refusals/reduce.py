"""Reductions over nothing, and dimensions that are not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from torch_neuronx.lowering.dtypes import FLOAT8, INTEGER
from torch_neuronx.lowering.refusals.operands import Refusal, argument, left_to_the_cpu, short
from torch_neuronx.lowering.spec import Call, TensorSpec


def in_range(name: str, dim: int, ndim: int) -> None:
    ndim = max(ndim, 1)
    if not -ndim <= dim < ndim:
        raise IndexError(
            f"{name}: Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})"
        )


def dimension(name: str, call: Call) -> None:
    in_range(name, call.args[1], len(call.args[0].layout.sizes))


def _sorted_dimension(name: str, call: Call) -> None:
    in_range(name, argument(call, "dim"), len(call.args[0].layout.sizes))


def _something(name: str, call: Call) -> None:
    sizes, dim = call.args[0].layout.sizes, argument(call, "dim")
    dims: Sequence[int] = [] if dim is None else [dim] if isinstance(dim, int) else dim
    for d in dims:
        in_range(name, d, len(sizes))
        if sizes and sizes[d] == 0:
            raise IndexError(f"{short(name)}(): Expected reduction dim {d} to have non-zero size.")
    if not dims and 0 in sizes:
        error = IndexError if short(name) in ("argmax", "argmin") else RuntimeError
        raise error(
            f"{short(name)}(): Expected reduction dim to be specified for input.numel() == 0. "
            "Specify the reduction dim with the 'dim' argument."
        )


def _matching(name: str, call: Call) -> None:
    """What is written has self's dtype; torch looks at that first."""
    out = argument(call, "out")
    if isinstance(out, TensorSpec) and out.dtype != call.args[0].dtype:
        left_to_the_cpu(f"{short(name)} of {call.args[0].dtype} written to {out.dtype}")
    _something(name, call)


def _never(*dtypes: torch.dtype, then: Refusal | None = None) -> Refusal:
    def check(name: str, call: Call) -> None:
        if call.args[0].dtype in dtypes:
            left_to_the_cpu(f"{short(name)} of {call.args[0].dtype}")
        if then is not None:
            then(name, call)

    return check


_COMPLEX: Final = (torch.complex64, torch.complex128)
_NOT_FLOATING: Final = (*INTEGER, torch.bool, *FLOAT8)
_EXTREMES: Final = ("max", "min", "amax", "amin", "aminmax", "argmax", "argmin", "mode", "kthvalue")
CHECKS: Final[dict[str, Refusal]] = {
    **dict.fromkeys(("_softmax", "_log_softmax"), dimension),
    **dict.fromkeys(_EXTREMES, _something),
    **dict.fromkeys(("amax", "amin"), _matching),
    **dict.fromkeys(("argmax", "argmin"), _never(torch.bool, then=_something)),
    **dict.fromkeys(("std", "var", "std_mean", "var_mean"), _never(*_NOT_FLOATING)),
    "sort": _sorted_dimension,
    **dict.fromkeys(("unique_dim", "unique_dim_consecutive"), dimension),
    "nansum": _never(*_COMPLEX),
    "topk": _never(torch.bool),
}
