"""Calls that the CPU refuses and torch's meta kernels let pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from torch_neuronx.lowering.dtypes import is_integral
from torch_neuronx.lowering.forms import resolve
from torch_neuronx.lowering.spec import Call, TensorSpec

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


def _integer_power(name: str, call: Call) -> None:
    base, exponent = call.args[0], call.args[1]
    if isinstance(exponent, int) and exponent < 0 and is_integral(base.dtype):
        raise RuntimeError("Integers to negative integer powers are not allowed.")


_CHECKS: Final[dict[str, Refusal]] = {
    **dict.fromkeys(
        (
            "aten::mm",
            "aten::bmm",
            "aten::mv",
            "aten::dot",
            "aten::vdot",
            "aten::addmm",
            "aten::baddbmm",
            "aten::addbmm",
            "aten::addmv",
            "aten::convolution",
            "aten::convolution_overrideable",
        ),
        _one_dtype,
    ),
    **dict.fromkeys(("aten::_softmax", "aten::_log_softmax"), _dimension),
    **dict.fromkeys(("aten::max", "aten::min", "aten::max.dim", "aten::min.dim"), _something_to_reduce),
    "aten::pow.Tensor_Scalar": _integer_power,
}
