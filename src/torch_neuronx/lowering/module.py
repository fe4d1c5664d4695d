"""The StableHLO module under construction: its arguments, deferred checks and random state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO

import torch
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, func, stablehlo

from torch_neuronx.lowering.dtypes import tensor_type
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.expressions import Expression, from_size
from torch_neuronx.lowering.value import Size, Value, static_dims

_emission = threading.RLock()  # one MLIR context, so one emission at a time
_context: ir.Context | None = None


def _shared_context() -> ir.Context:
    global _context
    if _context is None:
        registry = ir.DialectRegistry()
        _jax_mlir_ext.register_dialects(registry)
        _context = ir.Context()
        _context.append_dialect_registry(registry)
        _context.load_all_available_dialects()
        stablehlo.register_dialect(_context)
        chlo.register_dialect(_context)
    return _context


@dataclass
class Check:
    """A condition the program verifies while it runs; reported at the next synchronisation."""

    ok: Value  # bool, rank 0
    error: str  # name of a builtin exception class
    message: str


@dataclass(frozen=True)
class Places:
    """The order of a padded result's elements.

    count    how many there are in a call
    indices  int64 (bound of the count,): of each place of the padded array, its element's number; any in the padding
    """

    count: Size
    indices: Value


@dataclass
class Program:
    """State of one emission; `current()` reaches it from any lowering."""

    module: ir.Module
    checks: list[Check] = field(default_factory=list)
    rng_seed: Value | None = None  # int64 rank 0, when the op was given random state
    rng_offset: Value | None = None
    rng_blocks: Size = 0  # 128-bit Philox blocks drawn so far; an expression where sizes vary
    rng_places: Places | None = None  # where the elements of a padded result lie among those that are drawn


class _Stack(threading.local):
    programs: list[Program]

    def __init__(self) -> None:
        self.programs = []


_stack = _Stack()


def current() -> Program:
    if not _stack.programs:
        raise RuntimeError("a lowering ran outside build_module(); call it through the table")
    return _stack.programs[-1]


def require(ok: Value, error: str, message: str) -> None:
    """Fail the op with `error(message)` when `ok` (bool, rank 0) is false at run time."""
    current().checks.append(Check(ok, error, message))


def rng_state() -> tuple[Value, Value]:
    """(seed, offset) of the op's generator: int64 scalars."""
    program = current()
    if program.rng_seed is None or program.rng_offset is None:
        raise Unsupported("a random op was lowered without generator state; mark its row random=True")
    return program.rng_seed, program.rng_offset


@dataclass(frozen=True)
class Argument:
    shape: tuple[int, ...]
    dtype: torch.dtype
    donate_to: int | None = None  # index of the result that reuses this argument's memory


@dataclass(frozen=True)
class Built:
    """A finished module and what the emission recorded beside it."""

    bytecode: bytes
    text: Callable[[], str]
    checks: tuple[tuple[str, str], ...]  # (exception name, message), in code order
    rng_blocks: Expression


@contextmanager
def emission() -> Iterator[None]:
    with _emission, _shared_context(), ir.Location.unknown(), torch.no_grad():
        yield


def build_module(
    name: str,
    arguments: list[Argument],
    body: Callable[[Program, list[Value]], list[Value]],
    donations: Callable[[], dict[int, int]] | None = None,
) -> Built:
    """Emit `body` as @main and return the verified module.

    `body` gets the program and one Value per argument and returns the results. `donations` is
    asked after the body ran and maps an argument's index to the result that reuses its memory.
    When checks were recorded, an int32 code (0: all held, k: check k-1 failed) is appended.
    """
    with emission():
        module = ir.Module.create()
        module.operation.attributes["sym_name"] = ir.StringAttr.get(name)
        program = Program(module)
        types = [tensor_type(a.shape, a.dtype) for a in arguments]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get(types, []), visibility="public")
            entry = main.add_entry_block()
        _stack.programs.append(program)
        try:
            with ir.InsertionPoint(entry):
                values = [
                    Value(ssa, a.dtype, static_dims(a.shape)) for ssa, a in zip(entry.arguments, arguments, strict=True)
                ]
                results = [v.ssa for v in body(program, values)]
                if program.checks:
                    results.append(_check_code(program.checks))
                func.ReturnOp(results)
        finally:
            _stack.programs.pop()
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, [r.type for r in results]))
        donated = donations() if donations else {}
        main.arg_attrs = ir.ArrayAttr.get([_alias(donated.get(i)) for i in range(len(arguments))])
        module.operation.verify()
        buffer = BytesIO()
        module.operation.write_bytecode(buffer)
        return Built(
            buffer.getvalue(),
            lambda: str(module),
            tuple((c.error, c.message) for c in program.checks),
            from_size(program.rng_blocks),
        )


def _alias(result: int | None) -> ir.DictAttr:
    if result is None:
        return ir.DictAttr.get({})
    index = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), result)
    return ir.DictAttr.get({"tf.aliasing_output": index})


def _check_code(checks: list[Check]) -> ir.Value:
    from torch_neuronx.lowering import hlo

    code = hlo.constant(0, torch.int32)
    for i, check in reversed(list(enumerate(checks))):
        code = hlo.select(check.ok, code, hlo.constant(i + 1, torch.int32))
    return code.ssa
