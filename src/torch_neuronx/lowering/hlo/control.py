"""Loops, branches and custom calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx.lowering.dtypes import tensor_type
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.hlo.reduce import map_single as map_reduce
from torch_neuronx.lowering.value import Value, static_dims

__all__ = ["branches", "case", "custom_call", "map_reduce", "optimization_barrier", "while_loop"]


def while_loop(
    carry: Sequence[Value],
    condition: Callable[..., Value],
    body: Callable[..., Sequence[Value]],
) -> list[Value]:
    """Repeats `carry = body(*carry)` while `condition(*carry)` (bool, rank 0)."""
    types = [tensor_type(v.shape, v.dtype) for v in carry]
    op = stablehlo.WhileOp(types, [v.ssa for v in carry])
    for region, build in zip(op.regions, (lambda *c: [condition(*c)], body), strict=True):
        block = region.blocks.append(*types)
        with ir.InsertionPoint(block):
            values = [Value(a, v.dtype, v.dims) for a, v in zip(block.arguments, carry, strict=True)]
            stablehlo.return_([v.ssa for v in build(*values)])
    return [Value(r, v.dtype, v.dims) for r, v in zip(op.results, carry, strict=True)]


def case(
    predicate: Value,
    results: Sequence[tuple[Sequence[int], torch.dtype]],
    on_true: Callable[[], Sequence[Value]],
    on_false: Callable[[], Sequence[Value]],
) -> list[Value]:
    """Runs one of two branches; both return values of the given shapes and dtypes."""
    op = stablehlo.IfOp([tensor_type(list(s), d) for s, d in results], predicate.ssa)
    for region, build in zip(op.regions, (on_true, on_false), strict=True):
        with ir.InsertionPoint(region.blocks.append()):
            stablehlo.return_([v.ssa for v in build()])
    return [Value(r, d, static_dims(list(s))) for r, (s, d) in zip(op.results, results, strict=True)]


def branches(
    predicate: Value, regions: Sequence[Callable[[], Sequence[Value]]], more: Callable[[int], Sequence[Value]]
) -> list[Value]:
    """The first region's results where `predicate` (bool, rank 0) holds, else the second's, then those of `more`.

    Types are found by building: `more(i)` is asked, inside region i, once both regions are built.
    """
    draft = stablehlo.IfOp([], predicate.ssa)
    built = []
    for region, build in zip(draft.regions, regions, strict=True):
        block = region.blocks.append()
        with ir.InsertionPoint(block):
            built.append((block, list(build())))
    for i, (block, values) in enumerate(built):
        with ir.InsertionPoint(block):
            values += more(i)
            stablehlo.return_([v.ssa for v in values])
    first, second = (values for _, values in built)
    if [(v.shape, v.dtype) for v in first] != [(v.shape, v.dtype) for v in second]:
        raise Unsupported("branches whose results differ in shape or dtype")
    op = stablehlo.IfOp([v.ssa.type for v in first], predicate.ssa)
    for (block, _), region in zip(built, op.regions, strict=True):
        block.append_to(region)
    draft.operation.erase()
    return [Value(r, v.dtype, v.dims) for r, v in zip(op.results, first, strict=True)]


def custom_call(
    target: str,
    operands: Sequence[Value],
    results: Sequence[tuple[Sequence[int], torch.dtype]],
    *,
    attributes: dict[str, ir.Attribute] | None = None,
    aliases: dict[int, int] | None = None,
    operand_layouts: Sequence[Sequence[int]] | None = None,
    result_layouts: Sequence[Sequence[int]] | None = None,
) -> list[Value]:
    """An XLA FFI call (api_version 4) with typed attributes.

    `aliases` maps a result to the operand whose memory it reuses. Layouts are minor-to-major
    orders (LAPACK targets want column-major matrices).
    """

    def layouts(given: Sequence[Sequence[int]] | None, ranks: Sequence[int]) -> ir.ArrayAttr:
        orders: Sequence[Any] = given or [tuple(range(r - 1, -1, -1)) for r in ranks]
        index = ir.IndexType.get()
        return ir.ArrayAttr.get(
            [ir.DenseIntElementsAttr.get(_index_array(o), type=index, shape=[len(o)]) for o in orders]
        )

    out_aliases = [
        stablehlo.OutputOperandAlias.get([r] if len(results) > 1 else [], o, []) for r, o in (aliases or {}).items()
    ]
    op = stablehlo.CustomCallOp(
        [tensor_type(list(s), d) for s, d in results],
        [v.ssa for v in operands],
        target,
        api_version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4),
        backend_config=ir.DictAttr.get(attributes or {}),
        operand_layouts=layouts(operand_layouts, [v.ndim for v in operands]),
        result_layouts=layouts(result_layouts, [len(s) for s, _ in results]),
        output_operand_aliases=ir.ArrayAttr.get(out_aliases),
        called_computations=ir.ArrayAttr.get([]),
    )
    return [Value(r, d, static_dims(list(s))) for r, (s, d) in zip(op.results, results, strict=True)]


def _index_array(order: Sequence[int]) -> Any:
    import numpy as np

    return np.asarray(order, np.int64)


def optimization_barrier(*xs: Value) -> list[Value]:
    """Keeps XLA from fusing or reassociating across this point."""
    op = stablehlo.OptimizationBarrierOp([x.ssa for x in xs])
    return [Value(r, x.dtype, x.dims) for r, x in zip(op.results, xs, strict=True)]
