"""Whether what a bundle says about calling a program is true of the program: memory is read by what it says."""

from __future__ import annotations

import builtins
import math
from collections.abc import Mapping
from typing import Any

from torch_neuronx.aot.errors import BundleError
from torch_neuronx.aot.manifest import Manifest
from torch_neuronx.aot.padding import at
from torch_neuronx.compiler.executables import Interface
from torch_neuronx.lowering import expressions
from torch_neuronx.lowering.dtypes import storage_dtype
from torch_neuronx.runtime.protocol import LAPACK_PREFIX

_KINDS = frozenset({"fresh", "write", "count", "columns", "check"})


def interface_of(data: dict[str, Any], manifest: Manifest, sizes: Mapping[str, int], where: str) -> Interface:
    """The calling convention in the header of the program for `sizes`. Raises BundleError unless it fits together."""
    try:
        face = Interface.from_json(data)
        _check(face, manifest, sizes)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise BundleError(f"{where}: its calling convention cannot be used: {error}") from error
    return face


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise ValueError(message)


def _check(face: Interface, manifest: Manifest, sizes: Mapping[str, int]) -> None:
    fresh = 0
    for r in face.results:
        _require(r.kind in _KINDS, f"a result of kind {r.kind!r}")
        numbers = (*r.layout.sizes, *r.layout.strides, r.storage_numel)
        _require(all(type(n) is int and 0 <= n < 1 << 48 for n in numbers), f"a result of sizes {numbers}")
        _require(len(r.layout.sizes) == len(r.layout.strides), "a result with other strides than sizes")
        _require(r.kind == "check" or r.layout.extent <= r.storage_numel, "a result larger than its memory")
        _require(type(r.slot) is int and -1 <= r.slot < len(manifest.placeholders), f"the argument {r.slot}")
        _require(r.kind != "write" or r.slot >= 0, "a write to no argument")
        fresh += r.kind == "fresh"
    expressions.check(face.rng_blocks, {s.name for s in manifest.symbols})
    _require(len(face.returns) == manifest.results, f"{len(face.returns)} results, the manifest has {manifest.results}")
    for x in face.returns:
        _check_return(x, face, manifest, sizes)
    for error, message in face.checks:
        kind = getattr(builtins, error, None)
        _require(isinstance(kind, type) and issubclass(kind, Exception), f"errors of class {error[:80]!r}")
        _require(isinstance(message, str) and bool(message.encode()), "an error without a message")


def _check_return(x: Any, face: Interface, manifest: Manifest, sizes: Mapping[str, int]) -> None:
    _require(isinstance(x, tuple), f"a return {str(x)[:80]}")
    kind, place = (x[1], x[2]) if x[0] == "view" else (x[0], x[1])
    _require(kind in ("result", "argument") and type(place) is int, f"a return {str(x)[:80]}")
    limit = len(face.results) if kind == "result" else len(manifest.placeholders)
    _require(0 <= place < limit, f"the {kind} {place} of {limit}")
    if kind == "result":
        _require(face.results[place].kind == "fresh", "a return that is not a fresh result")
    if x[0] != "view":
        return
    extents, strides, offset = x[3:]
    numbers = (*extents, *strides, offset)
    _require(all(type(n) is int and 0 <= n < 1 << 48 for n in numbers), f"a view of sizes {numbers}")
    _require(len(extents) == len(strides), "a view with other strides than sizes")
    last = 0 if 0 in extents else 1 + sum((n - 1) * s for n, s in zip(extents, strides, strict=True))
    if kind == "result":
        _require(offset + last <= face.results[place].storage_numel, "a view that reaches beyond its result")
        return
    source, number = manifest.placeholders[place]
    shape = manifest.weights[number].shape if source == "weight" else at(manifest.leaves[number].shape, sizes)
    _require(offset + last <= math.prod(shape), "a view that reaches beyond its argument")


def check_program(program: bytes, face: Interface, where: str) -> None:
    """Whether the program returns arrays as its calling convention says, and calls nothing but LAPACK.

    Raises BundleError.
    """
    from jaxlib.mlir import ir

    from torch_neuronx.lowering.dtypes import tensor_type
    from torch_neuronx.lowering.module import emission

    try:
        with emission():
            module = ir.Module.parse(program)
            (main,) = (f for f in module.body.operations if f.attributes["sym_name"] == ir.StringAttr.get("main"))
            returned = [str(t) for t in main.type.results]
            aliased = [
                int(ir.IntegerAttr(ir.DictAttr(a)["tf.aliasing_output"]).value)
                for a in main.attributes.get("arg_attrs", ())
                if "tf.aliasing_output" in ir.DictAttr(a)
            ]
            called = sorted(_called(module.operation))
            wanted = [
                str(tensor_type(() if r.type.numel is None else (r.storage_numel,), storage_dtype(r.dtype)))
                for r in face.results
            ]
    except Exception as error:  # whatever MLIR says of the bytes
        raise BundleError(f"{where} is no StableHLO program that this jaxlib reads: {error}") from error
    if called:
        raise BundleError(f"{where} calls {called[0][:80]}, which no program of this package does")
    if returned != wanted:
        raise BundleError(f"{where} returns {returned}, its calling convention says {wanted}")
    if any(not 0 <= i < len(wanted) or face.results[i].kind != "write" for i in aliased):
        raise BundleError(f"{where} takes the memory of arguments that it does not write")


def _called(operation: Any) -> set[str]:
    """What foreign functions an operation calls, LAPACK's aside: they would be given whatever the program says."""
    found: set[str] = set()
    for region in operation.regions:
        for block in region:
            for inner in block:
                op = inner.operation
                if op.name == "stablehlo.custom_call":
                    name = str(op.attributes["call_target_name"]).strip('"')
                    found |= {name} - ({name} if name.startswith(LAPACK_PREFIX.decode()) else set())
                found |= _called(op)
    return found
