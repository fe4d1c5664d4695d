"""Arguments to measure a program with: the right shapes, made-up values, nothing of the user's."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch

from torch_neuronx.compiler.executables import Obtained
from torch_neuronx.lowering.dtypes import numpy_dtype, storage_dtype
from torch_neuronx.lowering.spec import Call, ScalarSpec, TensorSpec
from torch_neuronx.runtime.protocol import Array, Executable, Runtime

SCALE: Final = 1 / 32  # of normal values: sums over some thousand products stay near what goes in
_ONE: Final = struct.unpack("<q", struct.pack("<d", 1.0))[0]
# Of the largest value of a result: what another order of sums may change.
TOLERANCE: Final = {torch.float64: 1e-12, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
_PARTS: Final = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


class MadeUp:
    """The arguments of a call's program.

    Floats are normal, and positive in tensors of one dimension, where variances are. Integers are 0, which is in the
    range of every index; bools are either. Offsets are 0, floats that are passed as numbers 1.

    args     the call's arguments, with the layouts they really have
    numbers  by position, integers that are passed at run time
    """

    def __init__(self, call: Call, args: Sequence[Any], numbers: Mapping[int, int]) -> None:
        flat = {x.slot for x in args if isinstance(x, TensorSpec) and len(x.layout.sizes) < 2}
        self._slots = [(i, s.dtype, s.numel, i in flat) for i, s in enumerate(call.slots) if s.present]
        self._params = np.zeros(call.params, np.int64)
        for position, x in enumerate(args):
            if isinstance(x, ScalarSpec):
                self._params[x.param] = numbers.get(position, _ONE if x.dtype.is_floating_point else 0)

    @property
    def nbytes(self) -> int:
        return sum(numel * storage_dtype(dtype).itemsize for _, dtype, numel, _ in self._slots)

    def on(self, engine: Runtime, device: int, written: set[int]) -> Arguments:
        """These on a device; `written` are the slots whose memory a run takes."""
        random = np.random.default_rng(0)  # its own: neither torch's state nor numpy's moves
        values = [(_values(random, dtype, n, positive), dtype, i in written) for i, dtype, n, positive in self._slots]
        if self._params.size:
            values.append((self._params, torch.int64, False))
        return Arguments(engine, device, values)


class Arguments:
    """Arrays on a device; those a run takes are made anew for each."""

    def __init__(self, engine: Runtime, device: int, values: Sequence[tuple[np.ndarray, torch.dtype, bool]]) -> None:
        self._engine, self._device, self._values = engine, device, values
        self._kept = [None if taken else engine.put(v, dtype, device) for v, dtype, taken in values]

    def fresh(self) -> tuple[Array, ...]:
        """The arguments of one run, all in their places."""
        put = self._engine.put
        arrays = tuple(
            put(v, dtype, self._device) if kept is None else kept
            for kept, (v, dtype, _) in zip(self._kept, self._values, strict=True)
        )
        for array in arrays:
            array.block_until_ready()
        return arrays


def _values(random: np.random.Generator, dtype: torch.dtype, numel: int, positive: bool) -> np.ndarray:
    kind = numpy_dtype(storage_dtype(dtype))
    if dtype == torch.bool:
        return random.random(numel) < 0.5
    if not (dtype.is_floating_point or dtype.is_complex):
        return np.zeros(numel, kind)
    normal = random.standard_normal(numel, np.float32) * np.float32(SCALE)
    return (np.abs(normal) if positive else normal).astype(kind)


def run(executable: Executable, arguments: tuple[Array, ...]) -> list[Array]:
    """Results of one run, after its end."""
    ran = executable.execute(arguments, with_tokens=True)
    token = ran.consume_token()
    results = list(ran.consume_with_handlers(executable.handlers))
    token.block_until_ready()
    return results


def on_host(obtained: Obtained, results: Sequence[Array], engine: Runtime) -> list[np.ndarray]:
    """Copies of a run's results."""
    visible = engine.capabilities.host_visible
    copies = []
    for info, array in zip(obtained.interface.results, results, strict=True):
        kind, numel = numpy_dtype(storage_dtype(info.dtype)), info.type.numel
        address = engine.host_pointer(array) if visible else engine.host_copy(array)
        data = ctypes.string_at(address, kind.itemsize * (1 if numel is None else numel))
        copies.append(np.frombuffer(data, kind))
    return copies


def difference(obtained: Obtained, expected: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> str | None:
    """Why results are not equal within what another order of sums may change; None if they are."""
    for k, (info, a, b) in enumerate(zip(obtained.interface.results, expected, found, strict=True)):
        tolerance = TOLERANCE.get(_PARTS.get(info.dtype, info.dtype))
        if tolerance is None:
            if a.tobytes() != b.tobytes():
                return f"result {k}, of {info.dtype}, differs"
            continue
        wide = np.complex128 if info.dtype.is_complex else np.float64
        x, y = a.astype(wide), b.astype(wide)
        finite = np.isfinite(x)
        if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
            return f"result {k}, of {info.dtype}, is infinite or NaN elsewhere"
        x, y = x[finite], y[finite]
        largest = float(np.abs(x).max(initial=0.0))
        worst = float(np.abs(x - y).max(initial=0.0))
        if not worst <= tolerance * largest:
            return f"result {k}, of {info.dtype}, differs by {worst:.2g} where its largest value is {largest:.2g}"
    return None
