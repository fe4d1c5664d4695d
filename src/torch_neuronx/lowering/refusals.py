"""Calls that the CPU refuses and torch's meta kernels let pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch

from torch_neuronx.lowering.dtypes import is_integral
from torch_neuronx.lowering.forms import resolve
from torch_neuronx.lowering.spec import Call, TensorSpec
from torch_neuronx.lowering.table import overload

Refusal = Callable[[str, Call], None]


def refuse(call: Call) -> None:
    """Raises torch's kind of error for a call whose arguments cannot go together."""
    functional = resolve(call.name).functional
    if check := _CHECKS.get(functional):
        check(functional, call)


def _one_dtype(name: str, call: Call) -> None:
    tensors = [x for x in call.args if isinstance(x, TensorSpec)]
    if len({t.dtype for t in tensors}) > 1:
        shown = ", ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.layout.sizes)}" for t in tensors)
        raise RuntimeError(
            f"{name}: expected all tensors to have the same dtype, but got {shown}. "
            "Convert them to one dtype with .to(dtype), or use torch.autocast."
        )


def _matrices(first: int) -> Refusal:
    """Shapes that do not go together, in the words torch has for them on every device."""

    def check(name: str, call: Call) -> None:
        _one_dtype(name, call)
        a, b = (call.args[i].layout.sizes for i in (first, first + 1))
        if len(a) == len(b) == 2 and a[1] != b[0]:
            raise RuntimeError(f"{name}: mat1 and mat2 shapes cannot be multiplied ({a[0]}x{a[1]} and {b[0]}x{b[1]})")

    return check


def _class_targets(name: str, call: Call) -> None:
    target = next(call.args[i] for i, a in enumerate(overload(name)._schema.arguments) if a.name == "target")
    if target.dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(
            f"{name}: expected class indices of dtype int64 or uint8, got {target.dtype}. Convert them with .long()."
        )


def _dimension(name: str, call: Call) -> None:
    tensor, dim = call.args[0], call.args[1]
    ndim = max(len(tensor.layout.sizes), 1)
    if not -ndim <= dim < ndim:
        raise IndexError(
            f"{name}: Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})"
        )


def _something_to_reduce(name: str, call: Call) -> None:
    tensor = call.args[0]
    base = name.removeprefix("aten::").partition(".")[0]
    if name.endswith(".dim"):
        _dimension(name, call)
        sizes, dim = tensor.layout.sizes, call.args[1]
        if sizes and sizes[dim] == 0:
            raise IndexError(f"{base}(): Expected reduction dim {dim} to have non-zero size.")
    elif 0 in tensor.layout.sizes:
        raise RuntimeError(
            f"{base}(): Expected reduction dim to be specified for input.numel() == 0. "
            "Specify the reduction dim with the 'dim' argument."
        )


def _something_to_find(name: str, call: Call) -> None:
    tensor, dim = call.args[:2]
    if dim is None and 0 in tensor.layout.sizes:
        base = name.removeprefix("aten::")
        raise IndexError(
            f"{base}(): Expected reduction dim to be specified for input.numel() == 0. "
            "Specify the reduction dim with the 'dim' argument."
        )


def _integer_power(name: str, call: Call) -> None:
    base, exponent = call.args[0], call.args[1]
    if isinstance(exponent, int) and exponent < 0 and is_integral(base.dtype):
        raise RuntimeError("Integers to negative integer powers are not allowed.")


def _same_dtype(source: int) -> Refusal:
    def check(name: str, call: Call) -> None:
        target, other = call.args[0], call.args[source]
        if isinstance(other, TensorSpec) and other.dtype != target.dtype:
            raise RuntimeError(
                f"{name}: self ({target.dtype}) and the source ({other.dtype}) must have the same dtype. "
                "Convert the source with .to(self.dtype)."
            )

    return check


def _integer_indices(name: str, call: Call) -> None:
    for index in call.args[1]:
        if isinstance(index, TensorSpec) and (index.dtype.is_floating_point or index.dtype.is_complex):
            raise IndexError(
                f"{name}: tensors used as indices must be long, int, byte or bool tensors, but one is {index.dtype}. "
                "Convert it with .long()."
            )
    _something_to_index(call)


def _something_to_index(call: Call) -> None:
    sizes, position = call.args[0].layout.sizes, 0
    for index in call.args[1]:
        if not isinstance(index, TensorSpec):
            position += 1
        elif index.dtype in (torch.bool, torch.uint8):
            position += len(index.layout.sizes)
        else:
            if position < len(sizes) and sizes[position] == 0 and 0 not in index.layout.sizes:
                raise IndexError("index is out of bounds for dimension with size 0. Index one that has elements.")
            position += 1


def _put(name: str, call: Call) -> None:
    _integer_indices(name, call)
    _same_dtype(2)(name, call)


def _boolean_mask(name: str, call: Call) -> None:
    if call.args[1].dtype is not torch.bool:
        raise RuntimeError(
            f"{name}: masked_fill only supports boolean masks, but got mask with dtype {call.args[1].dtype}. "
            "Convert it with .bool()."
        )


def _softmax_mask(name: str, call: Call) -> None:
    scores, mask, _, kind = call.args
    if mask.dtype is not torch.bool:
        raise RuntimeError(f"{name}: Mask should be a boolean tensor, but got {mask.dtype}. Convert it with .bool().")
    if kind in (None, 2) and mask.layout.sizes != scores.layout.sizes:
        raise RuntimeError(
            f"{name}: For mask_type == 2 mask shape should match input shape, but the mask is "
            f"{list(mask.layout.sizes)} and the input {list(scores.layout.sizes)}."
        )


def _range(low: int) -> Refusal:
    def check(name: str, call: Call) -> None:
        first, end = call.args[low], call.args[low + 1]
        if isinstance(first, int) and isinstance(end, int) and first >= end:
            raise RuntimeError(f"{name}: expects 'from' to be less than 'to', but got from={first} >= to={end}")

    return check


_CHECKS: Final[dict[str, Refusal]] = {
    **dict.fromkeys(
        (
            "aten::bmm",
            "aten::mv",
            "aten::dot",
            "aten::vdot",
            "aten::baddbmm",
            "aten::addbmm",
            "aten::addmv",
            "aten::convolution",
            "aten::convolution_overrideable",
        ),
        _one_dtype,
    ),
    "aten::mm": _matrices(0),
    "aten::addmm": _matrices(1),
    **{f"aten::nll_loss{kind}": _class_targets for kind in ("_forward", "2d_forward", "_backward", "2d_backward")},
    **dict.fromkeys(("aten::argmax", "aten::argmin"), _something_to_find),
    **dict.fromkeys(("aten::_softmax", "aten::_log_softmax"), _dimension),
    **dict.fromkeys(("aten::max", "aten::min", "aten::max.dim", "aten::min.dim"), _something_to_reduce),
    "aten::pow.Tensor_Scalar": _integer_power,
    "aten::index.Tensor": _integer_indices,
    "aten::index_put": _put,
    "aten::_index_put_impl": _put,
    "aten::index_add": _same_dtype(3),
    "aten::lerp.Scalar": _same_dtype(1),
    "aten::lerp.Tensor": _same_dtype(1),
    "aten::masked_fill.Scalar": _boolean_mask,
    "aten::masked_fill.Tensor": _boolean_mask,
    "aten::_masked_softmax": _softmax_mask,
    "aten::randint.low": _range(0),
    "aten::randint.low_generator": _range(0),
    "aten::random.from": _range(1),
}
