"""LAPACK through jaxlib's XLA FFI targets (host target only).

Matrices are (batch, rows, columns) and travel in column-major order, which is only a layout to XLA.
Extents must not be zero. `info` is int32, one a batch element, 0 for success.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from jaxlib.mlir import ir

from torch_neuronx.lowering.dtypes import complex_of, is_complex, real_of
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.hlo.control import custom_call
from torch_neuronx.lowering.value import Value

Shape = Sequence[int]
PREFIX: Final = "lapack_"  # the runtime looks for it: LAPACK is loaded when a program first needs it
_LETTER: Final = {torch.float32: "s", torch.float64: "d", torch.complex64: "c", torch.complex128: "z"}


def _letter(char: str) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_unsigned(8), ord(char))


def _layout(rank: int) -> tuple[int, ...]:
    """Minor to major: column-major for a batch of matrices."""
    return (1, 2, 0) if rank == 3 else tuple(range(rank - 1, -1, -1))


def _call(
    routine: str,
    operands: Sequence[Value],
    results: Sequence[tuple[Shape, torch.dtype]],
    attributes: dict[str, ir.Attribute] | None = None,
    aliases: dict[int, int] | None = None,
) -> list[Value]:
    dtype = operands[0].dtype
    if dtype not in _LETTER:
        raise Unsupported(f"LAPACK has no routines for {dtype}")
    return custom_call(
        f"{PREFIX}{_LETTER[dtype]}{routine}_ffi",
        operands,
        [(tuple(s), d) for s, d in results],
        attributes=attributes,
        aliases=aliases,
        operand_layouts=[_layout(v.ndim) for v in operands],
        result_layouts=[_layout(len(s)) for s, _ in results],
    )


def potrf(a: Value, upper: bool) -> tuple[Value, Value]:
    """(Cholesky factor in its triangle, info); the other triangle is untouched."""
    out, info = _call(
        "potrf",
        [a],
        [(a.shape, a.dtype), (a.shape[:1], torch.int32)],
        {"uplo": _letter("U" if upper else "L")},
        {0: 0},
    )
    return out, info


def getrf(a: Value) -> tuple[Value, Value, Value]:
    """(LU, pivots counted from 1, info)."""
    b, m, n = a.shape
    lu, pivots, info = _call(
        "getrf", [a], [(a.shape, a.dtype), ((b, min(m, n)), torch.int32), ((b,), torch.int32)], aliases={0: 0}
    )
    return lu, pivots, info


def geqrf(a: Value) -> tuple[Value, Value]:
    """(R above and reflectors below the diagonal, their scales)."""
    b, m, n = a.shape
    out, tau = _call("geqrf", [a], [(a.shape, a.dtype), ((b, min(m, n)), a.dtype)], aliases={0: 0})
    return out, tau


def orgqr(a: Value, tau: Value) -> Value:
    """The first columns of the product of a's reflectors."""
    name = "ungqr" if is_complex(a.dtype) else "orgqr"
    return _call(name, [a, tau], [(a.shape, a.dtype)], aliases={0: 0})[0]


def ormqr(a: Value, tau: Value, c: Value, left: bool, transpose: bool) -> Value:
    """Q c, Q^H c, c Q or c Q^H for the product Q of a's reflectors."""
    name = "unmqr" if is_complex(a.dtype) else "ormqr"
    attributes: dict[str, ir.Attribute] = {"left": ir.BoolAttr.get(left), "transpose": ir.BoolAttr.get(transpose)}
    return _call(name, [a, tau, c], [(c.shape, c.dtype)], attributes, {0: 2})[0]


def gesdd(a: Value, mode: str) -> tuple[Value, Value, Value, Value]:
    """(U, S, V^H, info); mode A: full, S: reduced, N: S only."""
    b, m, n = a.shape
    k = min(m, n)
    _, s, u, vh, info = _call(
        "gesdd",
        [a],
        [
            (a.shape, a.dtype),
            ((b, k), real_of(a.dtype)),
            ((b, m, k if mode == "S" else m), a.dtype),
            ((b, k if mode == "S" else n, n), a.dtype),
            ((b,), torch.int32),
        ],
        {"mode": _letter(mode)},
        {0: 0},
    )
    return u, s, vh, info


def syevd(a: Value, upper: bool, vectors: bool) -> tuple[Value, Value, Value]:
    """(eigenvalues ascending, eigenvectors, info) of a symmetric or Hermitian matrix."""
    name = "heevd" if is_complex(a.dtype) else "syevd"
    b, n, _ = a.shape
    v, w, info = _call(
        name,
        [a],
        [(a.shape, a.dtype), ((b, n), real_of(a.dtype)), ((b,), torch.int32)],
        {"mode": _letter("V" if vectors else "N"), "uplo": _letter("U" if upper else "L")},
        {0: 0},
    )
    return w, v, info


def geev(a: Value, vectors: bool) -> tuple[Value, Value, Value]:
    """(complex eigenvalues, complex right eigenvectors, info)."""
    from torch_neuronx.lowering.hlo.convert import complex_

    b, n, _ = a.shape
    complex_dtype = complex_of(a.dtype)
    attributes = {"compute_left": _letter("N"), "compute_right": _letter("V" if vectors else "N")}
    rest = [(a.shape, complex_dtype), (a.shape, complex_dtype), ((b,), torch.int32)]
    if is_complex(a.dtype):
        w, _, v, info = _call("geev", [a], [((b, n), a.dtype), *rest], attributes)
        return w, v, info
    re, im, _, v, info = _call("geev", [a], [((b, n), a.dtype), ((b, n), a.dtype), *rest], attributes)
    return complex_(re, im), v, info


def trsm(a: Value, b: Value, *, left: bool, upper: bool, trans: str = "N", unit: bool = False) -> Value:
    """Solves op(a) x = b or x op(a) = b for a triangular a; op is N, T or C."""
    attributes = {
        "side": _letter("L" if left else "R"),
        "uplo": _letter("U" if upper else "L"),
        "trans_x": _letter(trans),
        "diag": _letter("U" if unit else "N"),
    }
    return _call("trsm", [a, b], [(b.shape, b.dtype)], attributes, {0: 1})[0]
