"""Ops without a row: torch's own decomposition, run on tensors that emit StableHLO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.dtypes import supported
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.forms import Form, resolve
from torch_neuronx.lowering.table import Writes, foreign, overload_name, rows
from torch_neuronx.lowering.value import Sized, Value
from torch_neuronx.lowering.views import contiguous_strides

Kernel = Callable[..., Any]


class EmitTensor(torch.Tensor):
    """A tensor whose contents are a Value of the program being built; a view knows what it looks at."""

    contents: Value
    view_of: View | None
    __slots__ = ["contents", "view_of"]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # torch's own idiom

    @staticmethod
    def __new__(cls: type[EmitTensor], value: Value) -> EmitTensor:
        if value.dtype not in supported():
            raise Unsupported(f"dtype {value.dtype}")
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            value.shape,
            strides=contiguous_strides(value.shape),
            dtype=value.dtype,
            device=torch.device("neuron"),
        )
        tensor.contents, tensor.view_of = value, None
        return tensor

    def __repr__(self) -> str:  # type: ignore[override]  # it has no elements to print
        return f"EmitTensor(shape={tuple(self.shape)}, dtype={self.dtype})"

    @property
    def value(self) -> Value:
        if self.view_of is not None and self.view_of.base.value is not self.view_of.seen:
            self.view_of.seen = self.view_of.base.value
            self.contents = self.view_of.look(self.view_of.seen)
        return self.contents

    @value.setter
    def value(self, new: Value) -> None:
        if self.view_of is None:
            self.contents = new
        else:
            self.view_of.base.value = write_through(self.view_of.base.value, self.view_of.look, new)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch calls it as a class method
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return dispatch(func, args, kwargs or {})


@dataclass
class View:
    """How to get a view's value from its base's, and the base's value it was last got from."""

    base: EmitTensor
    look: Callable[[Value], Value]
    seen: Value
    op: torch._ops.OpOverload


def write_through(base: Value, look: Callable[[Value], Value], new: Value) -> Value:
    """The base after the view was set to `new`: the view of its positions says where elements go."""
    if new.dtype != base.dtype:
        raise Unsupported("an in-place write through a view of another dtype inside a decomposition")
    places = look(hlo.reshape(hlo.iota((base.numel,), 0), base.shape))
    written = hlo.scatter(
        hlo.flatten(base),
        hlo.reshape(places, (places.numel, 1)),
        hlo.flatten(new),
        None,
        update_window_dims=[],
        inserted=[0],
        scatter_map=[0],
    )
    return hlo.reshape(written, base.shape)


class EmitMode(TorchDispatchMode):
    """Catches factories too, so that nothing inside a decomposition makes a real tensor."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return dispatch(func, args, kwargs or {})


def wrap(x: Any) -> Any:
    def one(v: Any) -> Any:
        if isinstance(v, Sized):
            raise Unsupported("a data-dependent size inside a decomposition")
        if isinstance(v, Value):
            weak_default = v.weak and v.dtype is torch.float64
            return EmitTensor(hlo.convert(v, torch.get_default_dtype()) if weak_default else v.strong())
        return v

    return tree_map(one, x, is_leaf=lambda v: isinstance(v, (Value, Sized)))


def unwrap(x: Any) -> Any:
    def one(t: Any) -> Any:
        if isinstance(t, EmitTensor):
            return t.value
        if isinstance(t, torch.Tensor):
            return _host_constant(t)
        return t

    return tree_map(one, x)


def _host_constant(t: torch.Tensor) -> Value:
    """Whatever is real while a program is emitted is a constant: vmap's rules make some on the device."""
    if t.device.type not in ("cpu", "neuron") or t.numel() > 4096:
        raise Unsupported(f"a real {t.device} tensor of shape {tuple(t.shape)} inside a decomposition")
    t = t.cpu()
    if t.dtype is torch.bfloat16:
        return hlo.convert(hlo.table(t.float().numpy(), torch.float32), torch.bfloat16)
    if t.dtype is torch.complex32:
        return hlo.table(t.to(torch.complex64).numpy(), t.dtype)
    return hlo.table(t.numpy(), t.dtype)


@cache
def _decompositions() -> dict[Any, Kernel]:
    import torch._decomp.decompositions
    import torch._refs  # registers the reference implementations

    return torch._decomp.decomposition_table


def default_of(argument: torch.Argument) -> Any:
    """The schema's default; a dtype's is written as a number, and int64's is the only one."""
    if argument.default_value == 4 and "ScalarType" in str(argument.real_type):
        return torch.int64
    return argument.default_value


def bind_arguments(
    op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """(positional, keyword-only) with schema defaults filled in."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for i, a in enumerate(op._schema.arguments):
        if i < len(args):
            x = args[i]
        elif a.name in kwargs:
            x = kwargs[a.name]
        else:
            x = default_of(a)
        if a.kwarg_only:
            named[a.name] = x
        else:
            positional.append(x)
    return positional, named


def emit_overload(name: str, op: torch._ops.OpOverload, positional: Sequence[Any], named: dict[str, Any]) -> Any:
    """Lowers a functional overload given Values; returns Values in schema order."""
    row = rows.get(name)
    if row is not None:
        return row.emit(*positional, **named)
    with EmitMode():
        return unwrap(decompose(op, wrap(list(positional)), wrap(named)))


def decompose(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    kernel = _decompositions().get(op)
    if kernel is not None:
        return kernel(*args, **kwargs)
    if op._can_decompose():
        return op.decompose(*args, **kwargs)
    name = overload_name(op)
    key = torch._C.DispatchKey.CompositeExplicitAutograd
    if op.namespace != "prims" and torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key):
        return op._op_dk(key, *args, **kwargs)
    raise Unsupported(f"{name} has no row in the lowering table and no decomposition in torch")


def dispatch(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if not isinstance(op, torch._ops.OpOverload):
        raise Unsupported(f"higher-order operator {op} inside a decomposition")
    if op.namespace == "prim" or op is torch.ops.aten.detach.default:
        return args[0].device if op is torch.ops.prim.device.default else args[0]
    name = overload_name(op)
    if name in foreign:
        positional, named = bind_arguments(op, args, kwargs)
        return wrap(foreign[name](*unwrap(positional), **unwrap(named)))
    form = resolve(name)
    if form.functional not in rows and not form.derived:
        with EmitMode():
            return decompose(op, args, kwargs)
    return _emit_form(op, form, args, kwargs)


def _emit_form(op: torch._ops.OpOverload, form: Form, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    positional, named = bind_arguments(op, args, kwargs)
    given = [*positional, *named.values()]
    if not form.written:
        out = wrap(emit_overload(form.name, op, unwrap(positional), unwrap(named)))
        if not op._schema.returns:
            return None
        return _as_views(op, positional, named, out) if op.is_view else out
    if not form.derived:
        return _emit_writes(op, form, positional, named)
    from torch_neuronx.lowering.table import overload

    functional = overload(form.functional)
    chosen = [given[i] for i in form.arguments]
    pos, kw = bind_arguments(functional, chosen, {})
    result = emit_overload(form.functional, functional, unwrap(pos), unwrap(kw))
    results = [result] if isinstance(result, Value) else list(result)
    targets = [given[i] for i in form.written]
    for target, value in zip(targets, results, strict=True):
        _assign(target, value)
    return targets[0] if len(targets) == 1 else tuple(targets)


def _as_views(op: torch._ops.OpOverload, positional: list[Any], named: dict[str, Any], out: Any) -> Any:
    """Results of a view op follow their base, and writes to them reach it."""
    base, rest, attributes = positional[0], unwrap(positional[1:]), unwrap(named)
    if not isinstance(base, EmitTensor):
        return out

    def link(tensor: EmitTensor, pick: Callable[[Any], Value]) -> EmitTensor:
        look = lambda v: pick(emit_overload(overload_name(op), op, [v, *rest], attributes))  # noqa: E731
        tensor.view_of = View(base, look, base.value, op)
        return tensor

    if isinstance(out, EmitTensor):
        return link(out, lambda v: v)
    return [link(t, itemgetter(i)) for i, t in enumerate(out)]


def _emit_writes(op: torch._ops.OpOverload, form: Form, positional: list[Any], named: dict[str, Any]) -> Any:
    out: Writes = rows[form.functional].emit(*unwrap(positional), **unwrap(named))
    by_name = dict(zip((a.name for a in op._schema.arguments), [*positional, *named.values()], strict=True))
    for name, value in out.writes.items():
        _assign(by_name[name], value)
    if form.returns_fresh:
        return wrap(out.returns[0] if len(out.returns) == 1 else out.returns)
    written = [by_name[a.name] for a in op._schema.arguments if a.alias_info and a.alias_info.is_write]
    return written[0] if len(op._schema.returns) == 1 else None


def _assign(target: Any, value: Any) -> None:
    if isinstance(target, (list, tuple)):
        for t, v in zip(target, value, strict=True):
            _assign(t, v)
        return
    if target is None:
        return
    if not isinstance(target, EmitTensor):
        raise Unsupported("an in-place write to a real tensor inside a decomposition")
    target.value = hlo.broadcast_to(hlo.convert(value, target.value.dtype), target.value.shape)
