"""Shapes, strides and dtypes of a call's results: by rule for elementwise ones, else from torch's meta kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from torch_neuronx.lowering.call import Later, Meta
from torch_neuronx.lowering.forms import Form, resolve
from torch_neuronx.lowering.iteration import broadcast, closed_up, result_layout
from torch_neuronx.lowering.layout_rules import (
    ELEMENTWISE_CONTIGUOUS,
    RESIZED_CONTIGUOUS,
    corrected,
    has_rule,
    rules_of,
)
from torch_neuronx.lowering.spec import Call, ScalarSpec, TensorSpec
from torch_neuronx.lowering.table import overload, rows
from torch_neuronx.lowering.views import Layout, contiguous_strides


@dataclass(frozen=True)
class Inferred:
    """metas: one per fresh tensor returned; resized: new layout per written argument that must grow."""

    metas: tuple[Meta | None, ...]
    resized: dict[int, Layout]


class NoMeta(Exception):
    """torch has no meta kernel for this overload."""


# Refusals of meta kernels that are not errors of the call: a size that depends on data, uint8 masks,
# which meta_index_Tensor takes for int8 ones, and batch norm without weights.
_NOT_THE_CALLERS_FAULT = (
    "cannot repeat_interleave a meta tensor",
    "tensors used as indices must be long",
    "_select_batch_norm_backend(): incompatible function arguments",
)

# What kernels raise as IndexError and Python's meta kernels as RuntimeError.
_INDEX_ERRORS = ("index_copy_(): When", "index_copy_(): Number", "index_select(): Index is supposed")

# Returned tensors (by position) that meta kernels describe as no device, or not the CPU, returns
# them: (1,) where a lone sample's loss is 0-d, saved statistics where evaluation saves none or in a
# dtype that is not the CPU's. The row's own shape and dtype count; they are contiguous.
_MISTAKEN: dict[str, tuple[int, ...]] = {
    "aten::multi_margin_loss": (0,),
    "aten::multilabel_margin_loss_forward": (0,),
    "aten::native_layer_norm": (1, 2),
    "aten::native_group_norm": (1, 2),
    "aten::batch_norm_update_stats": (0, 1),
    "aten::native_batch_norm": (1, 2),
    "aten::_native_batch_norm_legit.no_stats": (1, 2),
    "aten::_batch_norm_with_update": (1, 2),
    "aten::_batch_norm_with_update_functional": (1, 2, 4, 5),
    "aten::_native_batch_norm_legit": (1, 2),
    "aten::_native_batch_norm_legit_functional": (1, 2, 3, 4),
    "aten::_native_batch_norm_legit_no_training": (1, 2),
    "aten::_batch_norm_no_update": (1, 2),
}

# Their Python meta kernels take every device for CUDA and say that they are not deterministic, once for each new key.
# Which calls are not is said by eager/deterministic.py, every time.
_ALERTING = frozenset(
    {"aten::histc", "aten::max_unpool2d", "aten::max_unpool3d", "aten::median.dim", "aten::mode", "aten::nanmedian.dim"}
)


def is_mistaken(name: str, position: int) -> bool:
    """Whether meta kernels describe this result of an overload as no device returns it."""
    return position in _MISTAKEN.get(name, ())


def number_like(dtype: torch.dtype) -> bool | int | float | complex:
    """A Python number of the dtype's category."""
    if dtype is torch.bool:
        return True
    if dtype.is_complex:
        return 1j
    return 1.0 if dtype.is_floating_point else 1


class _StandIn(torch.Tensor):
    """A meta tensor that prints without asking autograd.

    Meta kernels print their arguments to say that an overload does not match. Below autograd, where they run, torch's
    own printing raises inside forward-mode AD, and the thread's dispatch keys stay wrong for good.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # torch's own idiom

    def __repr__(self) -> str:  # type: ignore[override]
        return f"tensor(shape={tuple(self.shape)}, dtype={self.dtype})"


def _stand_in(x: Any, device: str) -> Any:
    if isinstance(x, TensorSpec):
        like = torch.empty_strided(x.layout.sizes, x.layout.strides, dtype=x.dtype, device=device)
        return like.as_subclass(_StandIn)
    if isinstance(x, ScalarSpec):
        return number_like(x.dtype) if x.weak else torch.ones((), dtype=x.dtype)
    if isinstance(x, tuple):
        return [_stand_in(v, device) for v in x]
    if isinstance(x, torch.device):
        return torch.device(device)
    return None if isinstance(x, torch.Generator) else x


def _wide_target(name: str, argument: str, x: Any) -> Any:
    """Classes may be uint8, which the loss's meta kernel takes for a bad gather."""
    if name.startswith("aten::nll_loss") and argument == "target" and x.dtype is torch.uint8:
        return replace(x, dtype=torch.int64)
    return x


def layout_of(t: torch.Tensor) -> Layout:
    """A new tensor's. Of a reduction to no elements the meta kernels say stride 0, and CPU torch does not."""
    sizes, strides = tuple(t.shape), tuple(t.stride())
    return Layout(sizes, contiguous_strides(sizes) if 0 in sizes and 0 in strides else strides)


def infer(call: Call) -> Inferred:
    """Results' layouts, and which out= arguments must grow.

    Raises torch's errors for shapes and dtypes that do not go together, or NoMeta.
    """
    form = resolve(call.name)
    if not form.derived:
        return _infer_functional(call, form)
    inferred = _infer_functional(_functional(call), resolve(form.functional))
    return Inferred((), _resized(call, form, inferred.metas))


def _functional(call: Call) -> Call:
    """The call without what it writes, when its form is derived."""
    form = resolve(call.name)
    if not form.derived:
        return call
    return replace(call, name=form.functional, args=tuple(call.args[i] for i in form.arguments))


def _resized(call: Call, form: Form, metas: Sequence[Meta | None]) -> dict[int, Layout]:
    """Layouts of out= arguments that must grow; what is written in place must have the shape already."""
    arguments, resized = overload(form.name)._schema.arguments, {}
    targets = [(p, x) for p in form.written for x in _leaves(call.args[p])]
    for (position, target), meta in zip(targets, metas, strict=False):
        if meta is None or not isinstance(target, TensorSpec) or target.layout.sizes == meta.layout.sizes:
            continue
        inputs = [x for i, x in enumerate(call.args) if i not in form.written and isinstance(x, TensorSpec)]
        if not arguments[position].is_out or (_is_pointwise(form.functional) and target in inputs):
            raise RuntimeError(
                f"output with shape {list(target.layout.sizes)} doesn't match the broadcast shape "
                f"{list(meta.layout.sizes)}"
            )
        sizes = meta.layout.sizes
        contiguous = form.functional in RESIZED_CONTIGUOUS or not meta.layout.dense or _in_two_steps(call, target)
        resized[position] = Layout(sizes, contiguous_strides(sizes)) if contiguous else meta.layout
    return resized


def _in_two_steps(call: Call, target: TensorSpec) -> bool:
    """Whether torch computes complex numbers and copies their real parts."""
    first = call.args[0]
    return call.name == "aten::abs.out" and first.dtype.is_complex and not target.dtype.is_complex


def _leaves(x: Any) -> tuple[Any, ...]:
    """The elements of a Tensor[] argument, or the argument alone."""
    return x if isinstance(x, tuple) else (x,)


def _is_pointwise(name: str) -> bool:
    return name in rows and rows[name].pointwise


def _infer_functional(call: Call, form: Form) -> Inferred:
    if _is_pointwise(call.name) and not form.written and any(isinstance(x, TensorSpec) for x in call.args):
        count = len(overload(call.name)._schema.returns)
        return Inferred((Meta(None, _elementwise_layout(call)),) * count, {})
    return _ask_meta_kernel(call, form)


# Of one operand for torch, which converts it to the result's dtype beforehand; bounds are none.
_CONVERTED_FIRST = frozenset({"aten::clamp", "aten::clamp_min", "aten::clamp_max"})


def _gets_fractions(call: Call) -> bool:
    given = [x.dtype for x in call.args if isinstance(x, (TensorSpec, ScalarSpec))]
    return not given[0].is_floating_point and any(d.is_floating_point for d in given[1:])


def _elementwise_layout(call: Call) -> Layout:
    """By TensorIterator's rules. The dtype is left to the row (it is checked against meta kernels in the tests)."""
    operands = [x.layout for x in call.args if isinstance(x, TensorSpec)]
    if call.name == "aten::rsub.Tensor":
        operands.reverse()  # other - self
    if not rows[call.name].reads_self:  # fill, copy: the result is like self, whatever comes in
        first = call.args[0].layout
        if broadcast([x.sizes for x in operands]) != first.sizes:
            shapes = " ".join(str(list(x.sizes)) for x in operands[1:])
            raise RuntimeError(f"output with shape {list(first.sizes)} doesn't match the broadcast shape {shapes}")
        operands = [first]
    if call.name in _CONVERTED_FIRST and _gets_fractions(call):
        operands = [closed_up(operands[0])]
    if call.name in ELEMENTWISE_CONTIGUOUS:
        sizes = broadcast([x.sizes for x in operands])
        return Layout(sizes, contiguous_strides(sizes))
    numbers = any(isinstance(x, ScalarSpec) for x in call.args) and call.name not in _CONVERTED_FIRST
    return result_layout(operands, numbers)


def _ask_meta_kernel(call: Call, form: Form) -> Inferred:
    if call.name in _ALERTING and torch.are_deterministic_algorithms_enabled():
        raise NoMeta("its meta kernel asks whether the op is deterministic on CUDA")
    if call.name == "aten::roll" and call.args[2] and not call.args[0].layout.numel:
        call = replace(call, args=(call.args[0], (0,), (0,)))  # the CPU does not look where there is nothing to roll
    op = overload(call.name)
    arguments = op._schema.arguments
    stand_ins = [
        _stand_in(_wide_target(call.name, a.name, x), "meta") for x, a in zip(call.args, arguments, strict=True)
    ]
    positional = [x for x, a in zip(stand_ins, arguments, strict=True) if not a.kwarg_only]
    named = {a.name: x for x, a in zip(stand_ins, arguments, strict=True) if a.kwarg_only}
    try:
        with torch.no_grad():
            out = op(*positional, **named)
    # AttributeError: _thnn_fused_lstm_cell's, without biases; ZeroDivisionError: batch norm's of one element;
    # KeyError: tables of dtypes that miss the float8 ones
    except (NotImplementedError, AttributeError, ZeroDivisionError, KeyError) as error:
        raise NoMeta(str(error)) from error
    except AssertionError as error:  # a check that kernels make with TORCH_CHECK
        raise RuntimeError(str(error)) from error
    # TypeError: that of _batch_norm_with_update, without weights
    except (RuntimeError, TypeError) as error:
        if any(text in str(error) for text in _NOT_THE_CALLERS_FAULT):
            raise NoMeta(str(error)) from error
        if str(error).startswith(_INDEX_ERRORS):
            raise IndexError(str(error)) from error
        raise
    resized = {
        p: layout_of(stand_ins[p])
        for p in form.written
        if isinstance(stand_ins[p], torch.Tensor) and tuple(stand_ins[p].shape) != call.args[p].layout.sizes
    }
    metas = tuple(_as_on_cpu(call.name, stand_ins, _flat_metas(out))) if form.returns_fresh else ()
    mistaken = _MISTAKEN.get(form.name, ())
    return Inferred(tuple(None if i in mistaken else m for i, m in enumerate(metas)), resized)


def without_meta(call: Call) -> list[Later]:
    """What there is to say of a call's results without a meta kernel."""
    call = _functional(call)
    stand_ins = [_stand_in(x, "meta") for x in call.args]
    return [Later(partial(corrected, call.name, i, stand_ins)) for i in range(rules_of(call.name))]


def _as_on_cpu(name: str, stand_ins: Sequence[Any], metas: Sequence[Meta | None]) -> Sequence[Meta | None]:
    if not has_rule(name):
        return metas
    return [m and Meta(m.dtype, corrected(name, i, stand_ins, m.layout)) for i, m in enumerate(metas)]


def _flat_metas(out: Any) -> Sequence[Meta | None]:
    if isinstance(out, torch.Tensor):
        return [Meta(out.dtype, layout_of(out))]
    if isinstance(out, (list, tuple)):
        return [m for x in out for m in _flat_metas(x)]
    return []
