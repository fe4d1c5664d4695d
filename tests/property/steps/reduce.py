"""Reductions, scans and sorting."""

from __future__ import annotations

from typing import Final

import torch

from tests.property import tensors
from tests.property.scene import NotApplicable, Scene
from tests.property.steps.elementwise import out_of, precision_of

_SUMS: Final = ("sum", "mean", "nansum", "nanmean", "logsumexp", "prod", "std", "var")
_EXTREMES: Final = ("amax", "amin", "any", "all", "count_nonzero")
_ONE_DIM: Final = ("argmax", "argmin", "max", "min", "any", "all", "prod")
_SCANS: Final = ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")


def _over_dims(s: Scene) -> None:
    op, t = s.pick((*_SUMS, *_EXTREMES)), s.tensor()
    parts = []
    if s.chance(70):
        parts.append(f"dim={s.dim(s[t]) if op == 'prod' else s.dims(s[t])}")
        if s.chance(40) and op != "count_nonzero":
            parts.append("keepdim=True")
    elif op in ("logsumexp",):
        parts.append("dim=()")
    if op in ("std", "var") and s.chance(50):
        parts.append(f"correction={s.integer(0, 1)}")
    if op in ("sum", "mean", "prod") and s.chance(20):
        dtype = s.dtype()
        if not tensors.fits(s[t], dtype):
            raise NotApplicable
        parts.append(f"dtype={dtype}")
    call = f"torch.{op}({', '.join([t, *parts])})"
    precision = "sum" if op in _SUMS else "equal"
    # std and var let out= grow before they look at its dtype.
    if s.chance(10) and "dim=" in call and op not in ("count_nonzero", "std", "var"):
        s.do(f"{call[:-1]}, out={out_of(s, t)})", f"{op} out", precision, statement=True)
    else:
        s.do(call, op, precision)


def _over_all(s: Scene) -> None:
    op, t = (
        s.pick(("sum", "amax", "max", "min", "mean", "argmax", "any", "all", "aminmax", "median", "argmin")),
        s.tensor(),
    )
    s.do(f"{t}.{op}()", op, "sum" if op in ("sum", "mean") else "equal")


def _along_one(s: Scene) -> None:
    op, t = s.pick(_ONE_DIM), s.tensor()
    keep = ", keepdim=True" if s.chance(40) else ""
    # A maximum of 0.0 and -0.0 is either.
    s.do(f"{t}.{op}({s.dim(s[t])}{keep})", f"{op} dim", "sum" if op == "prod" else "equal")


def _scan(s: Scene) -> None:
    op, t = s.pick(_SCANS), s.tensor()
    s.do(f"{t}.{op}({s.dim(s[t])})", op, "exact" if op in ("cummax", "cummin") else "sum")


def _sort(s: Scene) -> None:
    op, t = s.pick(("sort", "sort values", "topk", "argsort", "kthvalue", "msort", "unique", "median")), s.tensor()
    dim, down = s.dim(s[t]), s.chance(50)
    code = {
        "sort": f"{t}.sort(stable=True, dim={dim}, descending={down})",
        "sort values": f"{t}.sort({dim}, {down})[0]",  # which of two equal elements comes first is not specified
        "topk": f"{t}.topk({s.integer(0, 2)}, {dim}, {down})[0]",
        "argsort": f"{t}.argsort(dim={dim}, descending={down}, stable=True)",
        "kthvalue": f"{t}.kthvalue({s.integer(1, 2)}, {dim})[0]",
        "msort": f"{t}.msort()",
        "unique": f"torch.unique({t}, return_inverse=True, return_counts=True)",
        "median": f"{t}.median({dim})[0]",
    }[op]
    if op == "unique" and s[t].is_floating_point() and bool(s[t].isnan().any()):
        raise NotApplicable  # each NaN is unique: in which order they come is not specified
    # Which of two zeros comes first is specified for a stable sort alone.
    s.do(code, op, "exact" if op in ("sort", "argsort") else "equal")


def _softmax(s: Scene) -> None:
    op, t = s.pick(("softmax", "log_softmax")), s.floating()
    s.do(f"{t}.{op}({s.dim(s[t])})", op, "sum")


def _norm(s: Scene) -> None:
    t = s.tensor()
    order = s.pick(("2", "1", "inf", "0", "-inf", "3"))
    where = f", dim={s.dims(s[t])}" if s.chance(60) else ""
    s.do(f"torch.linalg.vector_norm({t}, {order}{where})", "vector_norm", "sum")


def _pairs(s: Scene) -> None:
    op, t = s.pick(("var_mean", "std_mean")), s.tensor(lambda t: t.is_floating_point() and bool(t.isfinite().all()))
    # The CPU's running mean makes NaN of the mean of infinities.
    s.do(f"torch.{op}({t}, dim={s.dims(s[t])})", op, "sum")


def _diff(s: Scene) -> None:
    t = s.tensor(lambda t: t.dim() > 0 and t.dtype is not torch.bool)
    s.do(f"{t}.diff(dim={s.dim(s[t])})", "diff", precision_of(s, "sub", t))


STEPS: Final = (_over_dims, _over_all, _along_one, _scan, _sort, _softmax, _norm, _pairs, _diff, _over_dims)
