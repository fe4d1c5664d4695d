"""Shapes, strides and dtypes of a call's results, from torch's meta kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from torch_neuronx.lowering.call import Later, Meta
from torch_neuronx.lowering.decompose import bind_arguments
from torch_neuronx.lowering.forms import Form, resolve
from torch_neuronx.lowering.layout_rules import RESIZED_CONTIGUOUS, corrected, has_rule, rules_of
from torch_neuronx.lowering.spec import Call, ScalarSpec, TensorSpec
from torch_neuronx.lowering.table import overload, rows
from torch_neuronx.lowering.views import Layout


@dataclass(frozen=True)
class Inferred:
    """metas: one per fresh tensor returned; resized: new layout per written argument that must grow."""

    metas: tuple[Meta | None, ...]
    resized: dict[int, Layout]


class ResizeNeeded(Exception):
    """out= arguments (by position) must take new layouts before the call can be lowered."""

    def __init__(self, resized: dict[int, Layout]) -> None:
        super().__init__(f"out= arguments {sorted(resized)} change shape")
        self.resized = resized


class NoMeta(Exception):
    """torch has no meta kernel for this overload."""


# Refusals of meta kernels that are not errors of the call: a size that depends on data, and uint8
# masks, which meta_index_Tensor takes for int8 ones.
_NOT_THE_CALLERS_FAULT = ("cannot repeat_interleave a meta tensor", "tensors used as indices must be long")

# Returned tensors (by position) that meta kernels describe as no device, or not the CPU, returns
# them: (1,) where a lone sample's loss is 0-d, saved statistics where evaluation saves none. The
# row's own shape counts; they are contiguous.
_MISTAKEN: dict[str, tuple[int, ...]] = {
    "aten::multi_margin_loss": (0,),
    "aten::multilabel_margin_loss_forward": (0,),
    "aten::native_batch_norm": (1, 2),
    "aten::_native_batch_norm_legit": (1, 2),
    "aten::_native_batch_norm_legit_functional": (1, 2),
    "aten::_native_batch_norm_legit_no_training": (1, 2),
    "aten::_batch_norm_no_update": (1, 2),
}


def _number(spec: ScalarSpec) -> Any:
    if spec.dtype is torch.bool:
        return True
    if spec.dtype.is_complex:
        return 1j
    return 1.0 if spec.dtype.is_floating_point else 1


def _stand_in(x: Any, device: str) -> Any:
    if isinstance(x, TensorSpec):
        return torch.empty_strided(x.layout.sizes, x.layout.strides, dtype=x.dtype, device=device)
    if isinstance(x, ScalarSpec):
        return _number(x) if x.weak else torch.ones((), dtype=x.dtype)
    if isinstance(x, tuple):
        return [_stand_in(v, device) for v in x]
    if isinstance(x, torch.device):
        return torch.device(device)
    return None if isinstance(x, torch.Generator) else x


def layout_of(t: torch.Tensor) -> Layout:
    return Layout(tuple(t.shape), tuple(t.stride()))


def infer_pointwise(call: Call) -> Inferred | None:
    """Layout of a pointwise result over equally laid out dense operands, or None: then ask the meta kernel.

    The first Python meta kernel of a process imports torch._dynamo, which takes about a second. The
    dtype is left to the row (it is checked against meta kernels in the tests).
    """
    form = resolve(call.name)
    row = rows.get(call.name)
    tensors = [x for x in call.args if isinstance(x, TensorSpec)]
    if row is None or not row.pointwise or form.written or not tensors:
        return None
    layout = tensors[0].layout
    if any(t.layout != layout for t in tensors) or not layout.dense or not layout.sizes:
        return None
    return Inferred((Meta(None, layout),) * len(overload(call.name)._schema.returns), {})


def infer(call: Call) -> Inferred:
    """Runs the overload on meta tensors.

    Raises what the meta kernel raises (shape and dtype errors in torch's own words), or NoMeta.
    """
    op = overload(call.name)
    arguments = op._schema.arguments
    stand_ins = [_stand_in(x, "meta") for x in call.args]
    positional = [x for x, a in zip(stand_ins, arguments, strict=True) if not a.kwarg_only]
    named = {a.name: x for x, a in zip(stand_ins, arguments, strict=True) if a.kwarg_only}
    try:
        with torch.no_grad():
            out = op(*positional, **named)
    # AttributeError: _thnn_fused_lstm_cell's, without biases; ZeroDivisionError: batch norm's of one element
    except (NotImplementedError, AttributeError, ZeroDivisionError) as error:
        raise NoMeta(str(error)) from error
    except RuntimeError as error:
        if any(text in str(error) for text in _NOT_THE_CALLERS_FAULT):
            raise NoMeta(str(error)) from error
        raise
    form = resolve(call.name)
    resized = {
        p: layout_of(stand_ins[p])
        for p in form.written
        if isinstance(stand_ins[p], torch.Tensor) and tuple(stand_ins[p].shape) != call.args[p].layout.sizes
    }
    resized = {p: layout for p, layout in resized.items() if p not in _unclear(form, call)}
    if resized and form.derived and form.functional not in RESIZED_CONTIGUOUS:
        resized = _as_functional(form, stand_ins, resized)
    metas = tuple(_as_on_cpu(call.name, stand_ins, _flat_metas(out))) if form.returns_fresh else ()
    mistaken = _MISTAKEN.get(call.name, ())
    return Inferred(tuple(None if i in mistaken else m for i, m in enumerate(metas)), resized)


def _unclear(form: Form, call: Call) -> set[int]:
    """Positions of out= arguments whose size the meta kernel mistakes: statistics that evaluation does not save."""
    names = [a.name for a in overload(call.name)._schema.arguments]
    if "training" not in names or call.args[names.index("training")]:
        return set()
    return {form.written[i] for i in _MISTAKEN.get(form.functional, ()) if i < len(form.written)}


def without_meta(call: Call) -> list[Later]:
    """What there is to say of a call's results without a meta kernel."""
    stand_ins = [_stand_in(x, "meta") for x in call.args]
    return [Later(partial(corrected, call.name, i, stand_ins)) for i in range(rules_of(call.name))]


def _as_functional(form: Form, stand_ins: Sequence[Any], resized: dict[int, Layout]) -> dict[int, Layout]:
    """The layouts a resized out= takes: the functional result's. Meta kernels in Python make it contiguous."""
    positional, named = bind_arguments(overload(form.functional), [stand_ins[i] for i in form.arguments], {})
    try:
        with torch.no_grad():
            out = overload(form.functional)(*positional, **named)
    except (NotImplementedError, RuntimeError):
        return resized
    metas = _as_on_cpu(form.functional, [stand_ins[i] for i in form.arguments], _flat_metas(out))
    fresh = {p: m.layout for p, m in zip(form.written, metas, strict=False) if m is not None}
    fitting = {p: lay for p, lay in fresh.items() if p in resized and lay.sizes == resized[p].sizes and lay.dense}
    return resized | fitting


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
