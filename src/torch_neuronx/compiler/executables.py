"""Obtaining the executable of a call: from disk by its key, or lowered and compiled."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

import torch_neuronx
from torch_neuronx.compiler import cache_artifacts, progress, residents
from torch_neuronx.compiler.container import FORMAT_VERSION, Container
from torch_neuronx.compiler.costs import Stopwatch
from torch_neuronx.compiler.disk_cache import DiskCache
from torch_neuronx.lowering.call import Later, Lowered, Meta, lower_call
from torch_neuronx.lowering.cpu_rules import check_dtypes
from torch_neuronx.lowering.errors import Refused, ResizeNeeded, Unsupported
from torch_neuronx.lowering.expressions import Expression
from torch_neuronx.lowering.meta import NoMeta, infer, without_meta
from torch_neuronx.lowering.refusals import refuse
from torch_neuronx.lowering.spec import Call, Result, TensorSpec
from torch_neuronx.lowering.views import Layout
from torch_neuronx.runtime.protocol import LAPACK_PREFIX, Executable, ResultType, Runtime, Variant
from torch_neuronx.runtime.targets import runtime
from torch_neuronx.scalar_types import dtype_of, number_of


class LoweringFailed(RuntimeError):
    """A row or a decomposition did not produce a valid program: a defect of this package."""


@dataclass(frozen=True)
class ResultInfo:
    """One result of an executable; `storage_numel` counts the elements of its flat array."""

    kind: str
    dtype: torch.dtype
    layout: Layout
    storage_numel: int
    slot: int

    @property
    def type(self) -> ResultType:
        return ResultType(self.dtype, None if self.kind in ("count", "check", "columns") else self.storage_numel)


@dataclass(frozen=True)
class Interface:
    """What the core must know to call an executable: saved beside it, so a hit needs no lowering.

    rng_blocks   how many blocks of random words a call draws; of a padded program, a formula over its sizes
    """

    results: tuple[ResultInfo, ...]
    returns: tuple[Any, ...]
    rng_blocks: Expression
    checks: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        rows = [
            [r.kind, number_of(r.dtype), r.layout.sizes, r.layout.strides, r.storage_numel, r.slot]
            for r in self.results
        ]
        return {"results": rows, "returns": self.returns, "rng_blocks": self.rng_blocks, "checks": self.checks}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Interface:
        results = tuple(
            ResultInfo(kind, dtype_of(number), Layout(tuple(sizes), tuple(strides)), numel, slot)
            for kind, number, sizes, strides, numel, slot in data["results"]
        )
        checks = tuple((error, message) for error, message in data["checks"])
        return cls(results, tuple(_return_from_json(r) for r in data["returns"]), data["rng_blocks"], checks)


def _return_from_json(x: Any) -> Any:
    """JSON has no tuples: ["result", i] and the like are leaves, other lists are Tensor[] returns."""
    if isinstance(x, list) and x and x[0] in ("result", "argument", "integer"):
        return (x[0], x[1])
    if isinstance(x, list) and x and x[0] == "view":
        _, kind, index, sizes, strides, offset = x
        return ("view", kind, index, tuple(sizes), tuple(strides), offset)
    return [_return_from_json(v) for v in x] if isinstance(x, list) else x


@dataclass(frozen=True)
class Obtained:
    """`tuning` tells, of one that was chosen among several, what compiler.tuning found."""

    executable: Executable
    interface: Interface
    tuning: dict[str, Any] | None = None


@dataclass
class _Counters:
    compiled: int = 0
    loaded: int = 0
    failed: int = 0


class _Thread(threading.local):
    compiled: int = 0


_counters = _Counters()
_lock = threading.Lock()
_thread = _Thread()


def _count(field: str) -> None:
    _thread.compiled += field == "compiled"
    with _lock:
        setattr(_counters, field, getattr(_counters, field) + 1)


def compiled_here() -> int:
    """Programs compiled by this thread."""
    return _thread.compiled


def compile_counters() -> dict[str, int]:
    """compiled: programs compiled by this process; loaded: executables read from disk; failed: defects."""
    return {"compiled": _counters.compiled, "loaded": _counters.loaded, "failed": _counters.failed}


@cache
def disk_cache() -> DiskCache:
    return DiskCache.from_environment(fingerprint=runtime().fingerprint)


@cache
def code_version() -> str:
    """A hash of everything that decides what a program looks like: this package's lowering and torch."""
    digest = hashlib.sha256(f"{FORMAT_VERSION}/{torch_neuronx.__version__}/{torch.__version__}".encode())
    for source in sorted((Path(__file__).parent.parent / "lowering").rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Source:
    """What a program is made from.

    identity   everything that decides what the program looks like, beside the lowering's code
    signature  its tensors, for people
    lower      emits it
    """

    name: str
    identity: str
    signature: str
    lower: Callable[[], Lowered]


def source_of(call: Call) -> Source:
    """One call of an overload."""
    return Source(call.name, repr(call), _signature(call), lambda: _lower(call))


def key_of(source: Source, device: int) -> str:
    """The name of an executable: program, engine, options and device."""
    parts = (
        code_version(),
        runtime().fingerprint,
        repr(runtime().options),
        str(device),
        str(torch.get_default_dtype()),
        source.identity,
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


Choice = Callable[[Source, int, Runtime], tuple[Obtained, bytes]]


def obtain(source: Source, device: int, choose: Choice | None = None) -> Obtained:
    """The executable of `source` on logical device `device`; where there is none yet, `choose` may say which.

    Raises the meta kernel's own errors, Unsupported when there is no native form, ResizeNeeded when
    an out= argument must grow first, LoweringFailed when the program is not valid.
    """
    made: list[Obtained] = []
    residents.one_more()

    def make() -> Container:
        obtained, program = (choose or _compile)(source, device, runtime())
        made.append(obtained)
        return _container(key, source, obtained, program, runtime())

    if not runtime().capabilities.serialises:
        return (choose or _compile)(source, device, runtime())[0]
    key = key_of(source, device)
    container = _cached(key, make)
    return made[0] if made else _load(container, key, source, device)


def _cached(key: str, make: Callable[[], Container]) -> Container:
    container = disk_cache().load_or_compile(key, make)
    if disk_cache().status().enabled:
        cache_artifacts.record(key)
    return container


def _load(container: Container, key: str, source: Source, device: int) -> Obtained:
    try:
        made = loaded(container.executable, Interface.from_json(container.header.interface), device)
        return replace(made, tuning=container.header.options.get("tuning"))
    except Exception as error:  # noqa: BLE001 - whatever the engine says, the file is replaced
        disk_cache().discard(key, f"the engine refused it: {error}")
        return _compile(source, device, runtime())[0]


def loaded(executable: bytes, interface: Interface, device: int) -> Obtained:
    """A serialised executable in memory; raises what the engine says of it. Only for bytes that passed a checksum."""
    made = runtime().load(executable, device, [r.type for r in interface.results])
    _count("loaded")
    return Obtained(made, interface)


def _container(key: str, source: Source, obtained: Obtained, program: bytes, engine: Runtime) -> Container:
    return Container.build(
        program,
        engine.serialise(obtained.executable),
        key=key,
        fingerprint=engine.fingerprint,
        op=source.name,
        created_by=torch_neuronx.__version__,
        signature=source.signature,
        options=dict(engine.options) | ({"tuning": obtained.tuning} if obtained.tuning is not None else {}),
        interface=obtained.interface.to_json(),
    )


def _lower(call: Call) -> Lowered:
    metas = _infer(call)
    try:
        return lower_call(call, metas)
    except (Unsupported, Refused, ResizeNeeded):
        raise
    except Exception as error:
        _count("failed")
        raise LoweringFailed(f"lowering failed: {type(error).__name__}: {error}") from error


def program_source(name: str, lowered: Lowered) -> Source:
    """The source of a program that is there already: known by its bytes and by how it is called."""
    content = hashlib.sha256(lowered.built.bytecode).hexdigest()
    face = f"{lowered.results!r} {lowered.returns!r} {lowered.built.checks!r} {lowered.built.rng_blocks}"
    return Source(name, f"program {content} {face}", "", lambda: lowered)


def container_of(source: Source, compiler: Runtime | None) -> Container:
    """The program of `source` and its executable for logical device 0 of `compiler`'s target.

    None: no compiler, so no executable; its bytes and its fingerprint are then empty.
    """
    key = key_of(source, 0)
    if compiler is None:
        lowered = source.lower()
        interface = interface_of(lowered)
        return Container.build(
            lowered.built.bytecode,
            b"",
            key=key,
            fingerprint="",
            op=source.name,
            created_by=torch_neuronx.__version__,
            interface=interface.to_json(),
        )
    if compiler is runtime() and compiler.capabilities.serialises:
        return disk_cache().load_or_compile(
            key, lambda: _container(key, source, *_compile(source, 0, compiler), compiler)
        )
    return _container(key, source, *_compile(source, 0, compiler), compiler)


def interface_of(lowered: Lowered) -> Interface:
    """What an executable of a program has for an interface."""
    results = tuple(_info(r) for r in lowered.results)
    return Interface(results, lowered.returns, lowered.built.rng_blocks, lowered.built.checks)


def compile_variant(
    source: Source, device: int, engine: Runtime, variant: Variant | None = None
) -> tuple[Obtained, bytes]:
    """An executable that is not looked for on disk nor kept there, and its program."""
    with progress.shown(source.name):
        return _compile_silently(source, device, engine, variant)


def _compile(source: Source, device: int, engine: Runtime) -> tuple[Obtained, bytes]:
    return compile_variant(source, device, engine)


def _compile_silently(source: Source, device: int, engine: Runtime, variant: Variant | None) -> tuple[Obtained, bytes]:
    watch = Stopwatch()
    lowered = source.lower()
    if LAPACK_PREFIX in lowered.built.bytecode and not engine.capabilities.lapack:
        raise Unsupported("it calls LAPACK, whose kernels only the host target has")
    face = interface_of(lowered)
    watch.emitted()
    try:
        executable = engine.compile(lowered.built.bytecode, device, [r.type for r in face.results], variant)
    except Exception as error:
        _count("failed")
        raise LoweringFailed(f"compilation failed: {type(error).__name__}: {error}") from error
    _count("compiled")
    watch.compiled(source.name, source.signature)
    return Obtained(executable, face), lowered.built.bytecode


def _signature(call: Call) -> str:
    """The tensors of a call, for reports."""
    leaves = torch.utils._pytree.tree_leaves(call.args)
    tensors = [x for x in leaves if isinstance(x, TensorSpec)]
    return ", ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.layout.sizes)}" for t in tensors)


def _infer(call: Call) -> list[Meta | Later | None]:
    refuse(call)
    try:
        check_dtypes(call)
    except NotImplementedError as refused:
        if "not implemented for" in str(refused):
            infer(call)  # torch looks at shapes before it finds that it has no such kernel
        raise
    try:
        inferred = infer(call)
    except NoMeta:
        return [*without_meta(call)]
    if inferred.resized:
        _refuse_before_resizing(call, inferred.resized)
        raise ResizeNeeded(inferred.resized)
    return list(inferred.metas)


def _refuse_before_resizing(call: Call, resized: dict[int, Layout]) -> None:
    """Raises Unsupported where the grown arguments would not be written either: they keep their shape then."""
    grown = {p: replace(call.args[p], layout=layout, offset=None) for p, layout in resized.items()}
    args = tuple(grown.get(p, x) for p, x in enumerate(call.args))
    try:
        lower_call(replace(call, args=args), [])
    except (Unsupported, Refused):
        raise
    except Exception:  # noqa: BLE001 - it is met again, and reported, when the call itself is lowered
        return


def _info(r: Result) -> ResultInfo:
    if r.kind in ("count", "check", "columns"):
        return ResultInfo(r.kind, r.dtype, r.layout, 1, r.slot)
    numel = r.layout.numel if r.layout.dense else r.layout.extent
    return ResultInfo(r.kind, r.dtype, r.layout, numel, r.slot)
