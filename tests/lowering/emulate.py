"""The lowering without the C++ core: run ATen ops on CPU tensors through StableHLO and compare.

`check(op, *args, **kwargs)` runs one overload both ways. `Lowered()` is a dispatch mode under which
every op a program dispatches (forward and backward) is lowered, compiled and run; ops without a
lowering run on the CPU and are listed in `.fallbacks`.
"""

from __future__ import annotations

import ctypes
import math
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_neuronx.lowering import table, views
from torch_neuronx.lowering.call import Lowered as LoweredCall
from torch_neuronx.lowering.call import lower_call
from torch_neuronx.lowering.decompose import bind_arguments, default_of
from torch_neuronx.lowering.dtypes import numpy_dtype, storage_dtype, supported
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.forms import resolve
from torch_neuronx.lowering.meta import NoMeta, infer
from torch_neuronx.lowering.spec import Call, ScalarSpec, Slot, TensorSpec
from torch_neuronx.lowering.views import Layout
from torch_neuronx.runtime import xla
from torch_neuronx.runtime.protocol import ResultType

if torch._C._get_privateuse1_backend_name() == "privateuseone":
    torch.utils.rename_privateuse1_backend("neuron")

if not hasattr(torch, "neuron"):  # torch asks the device's module whether it is available
    torch._register_device_module("neuron", SimpleNamespace(is_available=lambda: False, device_count=lambda: 0))

table.load()
_runtime = xla.host_runtime(1)
_programs: dict[Any, tuple[LoweredCall, Any]] = {}


class _Builder:
    """Turns real CPU arguments into a Call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.slots: list[Slot] = []
        self.storages: list[torch.Tensor] = []
        self.pointers: dict[int, int] = {}
        self.params: list[int] = []

    def tensor(self, t: torch.Tensor) -> TensorSpec:
        if t.dtype not in supported() or t.is_quantized or t.layout is not torch.strided:
            raise Unsupported(f"dtype {t.dtype}, layout {t.layout}")
        t = t.resolve_conj().resolve_neg()
        key = t.untyped_storage().data_ptr() if t.untyped_storage().nbytes() else -len(self.slots) - 1
        if key not in self.pointers:
            self.pointers[key] = len(self.slots)
            numel = t.untyped_storage().nbytes() // t.dtype.itemsize
            self.slots.append(Slot(t.dtype, numel))
            self.storages.append(t)
        slot = self.pointers[key]
        numel = t.untyped_storage().nbytes() // t.dtype.itemsize
        layout = Layout(tuple(t.shape), tuple(t.stride()))
        if t.storage_offset() == 0 and layout.dense and t.numel() == numel:
            return TensorSpec(t.dtype, layout, slot)
        self.params.append(t.storage_offset())
        fits = views.block_fits(layout, numel, t.storage_offset())
        return TensorSpec(t.dtype, layout, slot, len(self.params) - 1, fits)

    def scalar(self, x: Any, dtype: torch.dtype, weak: bool) -> ScalarSpec:
        first = len(self.params)
        if dtype.is_complex:
            self.params += [_f64_bits(complex(x).real), _f64_bits(complex(x).imag)]
        elif dtype.is_floating_point:
            self.params.append(_f64_bits(float(x)))
        else:
            self.params.append(((int(x) + (1 << 63)) % (1 << 64)) - (1 << 63))
        return ScalarSpec(dtype, first, weak)


def _f64_bits(x: float) -> int:
    return int(np.float64(x).view(np.int64))


def build_call(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Call, _Builder]:
    name = table.overload_name(op)
    form = resolve(name)
    row = table.rows.get(form.functional)
    b = _Builder(name)
    given = []
    for i, a in enumerate(op._schema.arguments):
        x = args[i] if i < len(args) else kwargs.get(a.name, default_of(a))
        kind = str(a.type)
        operand = row is not None and a.name not in row.attributes
        if isinstance(x, torch.Tensor):
            wrapped = (
                x.ndim == 0 and torch._C._is_wrapped_number(x) if hasattr(torch._C, "_is_wrapped_number") else False
            )
            given.append(b.scalar(x.item(), x.dtype, True) if wrapped else b.tensor(x))
        elif isinstance(x, (list, tuple)) and any(isinstance(t, torch.Tensor) for t in x):
            given.append(tuple(b.tensor(t) if t is not None else None for t in x))
        elif isinstance(x, (bool, int, float, complex)) and "Tensor" in kind:
            given.append(b.scalar(x, _number_dtype(x), True))
        elif (
            operand
            and isinstance(x, (bool, int, float, complex))
            and kind in ("number", "float", "Optional[number]", "Optional[float]", "Scalar", "Optional[Scalar]")
        ):
            default = a.default_value
            same = isinstance(default, (bool, int, float)) and type(default) is type(x) and default == x
            given.append(x if same else b.scalar(x, _number_dtype(x) if "float" not in kind else torch.float64, True))
        elif isinstance(x, list):
            given.append(tuple(x))
        else:
            given.append(x)
    rng = None
    if row is not None and row.random:
        rng = len(b.params)
        b.params += [int(torch.initial_seed() & 0x7FFFFFFF), 0]
    return Call(name, tuple(given), tuple(b.slots), len(b.params), rng), b


def _number_dtype(x: Any) -> torch.dtype:
    if isinstance(x, bool):
        return torch.bool
    if isinstance(x, int):
        return torch.int64
    return torch.float64 if isinstance(x, float) else torch.complex128


def _storage_array(t: torch.Tensor) -> np.ndarray:
    raw = torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage())
    return raw.numpy().view(numpy_dtype(storage_dtype(t.dtype)))


_ONE_NUMBER = ("count", "check", "columns")


def _program(call: Call) -> tuple[LoweredCall, Any]:
    key = repr(call)
    if key not in _programs:
        try:
            metas = list(infer(call).metas)
        except NoMeta:
            metas = []
        lowered = lower_call(call, metas)
        types = [ResultType(r.dtype, None if r.kind in _ONE_NUMBER else _storage_numel(r)) for r in lowered.results]
        _programs[key] = (lowered, _runtime.compile(lowered.built.bytecode, 0, types))
    return _programs[key]


def run(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Runs one overload through its lowering on CPU tensors; writes go to the real arguments."""
    call, b = build_call(op, args, kwargs)
    lowered, executable = _program(call)
    inputs = [_runtime.put(_storage_array(t).copy(), t.dtype, 0) for t in b.storages]
    if call.params:
        inputs.append(_runtime.put(np.array(b.params, np.int64), torch.int64, 0))
    arrays = executable.execute(inputs, with_tokens=True).consume_with_handlers(executable.handlers)
    host = [_to_host(a, r) for a, r in zip(arrays, lowered.results, strict=True)]
    tensors: list[torch.Tensor | None] = []
    for i, r in enumerate(lowered.results):
        if r.kind == "check" and int(host[i]):
            error, message = lowered.built.checks[int(host[i]) - 1]
            raise getattr(__import__("builtins"), error, None or getattr(torch.linalg, error, None))(message)
        if r.kind == "write":
            raw = torch.from_numpy(host[i].view(np.uint8).reshape(-1))
            torch.empty(0, dtype=torch.uint8).set_(b.storages[r.slot].untyped_storage()).copy_(raw)
        tensors.append(_tensor(host[i], r) if r.kind == "fresh" else None)
    for i, r in enumerate(lowered.results):
        if r.kind == "columns":
            rows, columns = int(host[i]), tensors[r.slot].shape[1]  # type: ignore[union-attr]
            tensors[r.slot] = tensors[r.slot].as_strided((rows, columns), (1, rows))  # type: ignore[union-attr]
        if r.kind == "count":
            tensors[r.slot] = tensors[r.slot][: int(host[i])]  # type: ignore[index]
    flat_args = [args[i] if i < len(args) else kwargs.get(a.name) for i, a in enumerate(op._schema.arguments)]

    def pick(ret: Any) -> Any:
        if isinstance(ret, list):
            return [pick(r) for r in ret]
        if ret is None:
            return None
        if ret[0] == "integer":
            return ret[1]
        return tensors[ret[1]] if ret[0] == "result" else flat_args[ret[1]]

    returned = [pick(r) for r in lowered.returns]
    if not op._schema.returns:
        return None
    return returned[0] if len(op._schema.returns) == 1 else tuple(returned)


def _to_host(array: Any, r: Any) -> np.ndarray:
    numel = 1 if r.kind in _ONE_NUMBER else _storage_numel(r)
    nbytes = numel * r.dtype.itemsize
    raw = ctypes.string_at(_runtime.host_pointer(array), nbytes) if nbytes else b""
    out = np.frombuffer(raw, np.uint8).copy().view(numpy_dtype(storage_dtype(r.dtype)))
    return out.reshape(()) if r.kind in _ONE_NUMBER else out


def _storage_numel(r: Any) -> int:
    return r.layout.numel if r.layout.dense else r.layout.extent


def _tensor(array: np.ndarray, r: Any) -> torch.Tensor:
    raw = torch.from_numpy(np.ascontiguousarray(array).view(np.uint8).reshape(-1).copy())
    storage = raw.untyped_storage()
    return torch.empty(0, dtype=r.dtype).set_(storage, 0, r.layout.sizes, r.layout.strides)


class Lowered(TorchDispatchMode):
    """Runs everything below autograd through the lowering."""

    def __init__(self, strict: bool = False) -> None:
        super().__init__()
        self.strict = strict
        self.random = False  # whether a random op ran: its values are not the CPU's
        self.fallbacks: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}
        self.native: Counter[str] = Counter()

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = table.overload_name(op)
        metadata = op.is_view or torch.Tag.inplace_view in op.tags
        if (
            metadata
            or name in _HOST
            or op.namespace not in ("aten", "prims", "torch_neuronx")
            or not _tensors(args, kwargs)
        ):
            return op(*args, **kwargs)
        try:
            form = resolve(name)
            row = table.rows.get(form.functional)
            if row is None or not (row.bind or name in _OVERRIDEABLE):
                if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):
                    with self:
                        return op.decompose(*args, **kwargs)
                if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeExplicitAutograd"):
                    with self:
                        return op._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
            out = run(op, args, kwargs)
        except (Unsupported, NoMeta) as reason:
            if form.functional in table.steps:
                with self:
                    return self._in_steps(form, op, args, kwargs)
            if self.strict:
                raise
            self.fallbacks[name] += 1
            self.reasons[name] = f"{type(reason).__name__}: {reason}"
            return op(*args, **kwargs)
        self.native[name] += 1
        self.random |= row is not None and row.random
        return out

    def _in_steps(self, form: Any, op: Any, args: Any, kwargs: Any) -> Any:
        given = [
            *args,
            *(kwargs.get(a.name, a.default_value) for a in op._schema.arguments[len(args) :]),
        ]
        positional, named = bind_arguments(table.overload(form.functional), [given[i] for i in form.arguments], {})
        result = table.steps[form.functional](*positional, **named)
        for position in form.written:
            given[position].resize_(result.shape).copy_(result)
        return given[form.written[0]] if form.written else result


# On the device these composites end in rows of their own (convolution_overrideable); on the CPU in CPU kernels.
_OVERRIDEABLE = {"aten::convolution", "aten::convolution_backward"}
_HOST = {
    "aten::_local_scalar_dense",
    "aten::set_.source_Tensor",
    "aten::detach",
    "aten::resize_",
    "aten::_to_copy",
    "aten::empty_like",
}


def _tensors(args: Any, kwargs: Any) -> bool:
    return any(isinstance(t, torch.Tensor) for t in torch.utils._pytree.tree_leaves((args, kwargs)))


def _clone(x: Any) -> Any:
    def one(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        out = torch.empty(0, dtype=t.dtype)
        return out.set_(t.untyped_storage().clone(), t.storage_offset(), t.shape, t.stride())

    return torch.utils._pytree.tree_map(one, x)


def check(
    op: Any, *args: Any, rtol: float | None = None, atol: float | None = None, values: bool = True, **kwargs: Any
) -> Any:
    """Asserts that an OpOverload (or a Python function under Lowered) equals CPU torch; returns the result."""
    a1, k1 = _clone((args, kwargs))
    a2, k2 = _clone((args, kwargs))
    want = op(*a1, **k1)
    if isinstance(op, torch._ops.OpOverload):
        got = run(op, a2, k2)
    else:
        with Lowered(strict=True):
            got = op(*a2, **k2)
    compare(got, want, rtol, atol, values)
    compare(a2, a1, rtol, atol, values)
    return got


def compare(got: Any, want: Any, rtol: float | None = None, atol: float | None = None, values: bool = True) -> None:
    g, w = (torch.utils._pytree.tree_leaves(x) for x in (got, want))
    assert len(g) == len(w), f"{len(g)} outputs, want {len(w)}"
    for x, y in zip(g, w, strict=True):
        if not isinstance(y, torch.Tensor):
            continue
        assert x.dtype == y.dtype, f"dtype {x.dtype}, want {y.dtype}"
        assert x.shape == y.shape, f"shape {tuple(x.shape)}, want {tuple(y.shape)}"
        assert x.stride() == y.stride() or math.prod(y.shape) <= 1, f"strides {x.stride()}, want {y.stride()}"
        if values:
            if rtol is None and y.dtype in (torch.float16, torch.bfloat16):
                torch.testing.assert_close(x.float(), y.float(), rtol=1e-2, atol=1e-2, equal_nan=True)
            else:
                torch.testing.assert_close(x, y, rtol=rtol, atol=atol, equal_nan=True)
