"""Runs a program on both devices, a step at a time, and compares everything that can be seen of its tensors."""

from __future__ import annotations

import warnings
from typing import Any, Final

import torch

import torch_neuronx  # noqa: F401  # the device
from tests.property import tensors
from tests.property.program import Program, Step, namespace, run, tensors_of

# Relative error of a "near" value, in steps of the dtype; half types are rounded once from float32.
_NEAR: Final = {torch.float64: 1 << 10, torch.float32: 1 << 6, torch.bfloat16: 1, torch.float16: 1}
_REAL: Final = {torch.complex64: torch.float32, torch.complex128: torch.float64}


class Difference(AssertionError):
    """The device is not like the CPU; `kind` is what differs, `line` the first line after which it does."""

    def __init__(self, kind: str, text: str, line: str = "", op: str = "", program: str = "") -> None:
        super().__init__(f"{text}\n  after: {line}\n\n{program}" if line else text)
        self.kind, self.text, self.line, self.op = kind, text, line, op


def check(program: Program) -> None:
    """Raises Difference at the first step after which the devices differ."""
    cpu, neuron = namespace("cpu"), namespace("neuron")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in program.steps:
            scale = _scale(step, cpu)
            errors = run(step.code, cpu), run(f"{step.code}\ntorch.neuron.synchronize()", neuron)
            try:
                _compare_errors(*errors)
                if step.final:
                    return
                _compare_all(step, scale, tensors_of(cpu), tensors_of(neuron))
            except Difference as difference:
                raise Difference(difference.kind, difference.text, step.code, step.op, str(program)) from None


def _compare_errors(cpu: Exception | None, neuron: Exception | None) -> None:
    if type(cpu) is not type(neuron):
        raise Difference("error", f"the CPU: {_shown(cpu)}; neuron: {_shown(neuron)}")


def _shown(error: Exception | None) -> str:
    return "no error" if error is None else f"{type(error).__name__}: {str(error).splitlines()[:1]}"


def _scale(step: Step, names: dict[str, Any]) -> float:
    """The largest finite magnitude among the operands, at least 1."""
    largest = 1.0
    for name in step.tensors if step.precision == "sum" else ():
        t = names.get(name)
        if isinstance(t, torch.Tensor) and t.numel():
            size = t.detach().to(torch.complex128).abs()
            largest = max(largest, float(torch.where(size.isfinite(), size, 0).max()))
    return largest


def raw(t: torch.Tensor) -> torch.Tensor:
    """The tensor's elements on the CPU, read from a copy of its whole storage: no program is compiled for it."""
    storage = t.untyped_storage()
    whole = torch.empty(0, dtype=t.dtype, device=t.device).set_(storage, 0, (storage.nbytes() // t.itemsize,), (1,))
    return whole.cpu().as_strided(t.shape, t.stride(), t.storage_offset())


def _properties(t: torch.Tensor) -> dict[str, object]:
    return {
        "dtype": t.dtype,
        "shape": tuple(t.shape),
        "strides": tuple(s if n != 1 else 0 for n, s in zip(t.shape, t.stride(), strict=True)),  # of 1: no matter
        "offset": t.storage_offset() if t.numel() else 0,
        "contiguous": t.is_contiguous(),
        "conjugate": t.is_conj(),
        "negated": t.is_neg(),
        "version": t._version,
        "requires_grad": t.requires_grad,
    }


def _compare_all(step: Step, scale: float, cpu: dict[str, torch.Tensor], neuron: dict[str, torch.Tensor]) -> None:
    if list(cpu) != list(neuron):
        raise Difference("tensors", f"the CPU has {list(cpu)}, neuron {list(neuron)}")
    for name, want in cpu.items():
        got = neuron[name]
        if got.device.type != "neuron":
            raise Difference("device", f"{name} is on {got.device}")
        _compare_properties(name, got, want)
    _compare_sharing(cpu, neuron)
    for name, want in cpu.items():
        problem = values_differ(raw(neuron[name]), raw(want), step.precision, scale)
        if problem:
            raise Difference("values", f"{name}: {problem}")
    for name, want in cpu.items():
        _carry_over(want, neuron[name])


def _compare_properties(name: str, got: torch.Tensor, want: torch.Tensor) -> None:
    mine, theirs = _properties(got), _properties(want)
    for what, value in theirs.items():
        if mine[what] != value:
            raise Difference(what, f"{name}: {what} {mine[what]}, on the CPU {value}")

    # A result whose size depends on data keeps the room it might have needed.
    if got.untyped_storage().nbytes() < want.untyped_storage().nbytes():
        raise Difference("storage", f"{name}: storage of {got.untyped_storage().nbytes()} bytes, "
                         f"on the CPU {want.untyped_storage().nbytes()}")  # fmt: skip


def _compare_sharing(cpu: dict[str, torch.Tensor], neuron: dict[str, torch.Tensor]) -> None:
    def relation(t: dict[str, torch.Tensor], a: str, b: str) -> tuple[bool, bool]:
        return t[a] is t[b], t[a].untyped_storage()._cdata == t[b].untyped_storage()._cdata

    names = list(cpu)
    for i, a in enumerate(names):
        for b in names[:i]:
            if relation(neuron, a, b) != relation(cpu, a, b):
                raise Difference("sharing", f"{a} and {b}: (same, share storage) {relation(neuron, a, b)}, "
                                 f"on the CPU {relation(cpu, a, b)}")  # fmt: skip


def values_differ(got: torch.Tensor, want: torch.Tensor, precision: str, scale: float) -> str | None:
    """What is wrong, in words, or None."""
    got, want = got.resolve_conj(), want.resolve_conj()
    if want.numel() == 0 or _same(got, want).all():
        return None
    if precision == "equal":
        unequal = ~((got == want) | (got.isnan() & want.isnan()))
        return f"values {got.tolist()}, on the CPU {want.tolist()} ({want.dtype})" if unequal.any() else None
    rounded = precision != "exact" and (want.is_floating_point() or want.is_complex())
    if rounded and _close(got, want, precision, scale).all():
        return None
    return f"values {got.tolist()}, on the CPU {want.tolist()} ({want.dtype}, {precision})"


def _same(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Equal with the sign of zero; any NaN is like any other."""
    if want.is_complex():
        return _same(torch.view_as_real(got), torch.view_as_real(want)).all(-1)
    if not want.is_floating_point():
        return got == want if want.dtype not in tensors.UNSIGNED else got.to(torch.int64) == want.to(torch.int64)
    same = (got == want) & (torch.signbit(got) == torch.signbit(want))
    return same | (got.isnan() & want.isnan())


def _close(got: torch.Tensor, want: torch.Tensor, precision: str, scale: float) -> torch.Tensor:
    real = _REAL.get(want.dtype, want.dtype)
    step = torch.finfo(real).eps
    complex_ = want.is_complex()
    if complex_ and not (torch.view_as_real(want).isfinite().all() and torch.view_as_real(got).isfinite().all()):
        # Which part of an infinite or undefined complex number is NaN is the algorithm's affair.
        finite = torch.view_as_real(want).isfinite().all(-1)
        return (finite == torch.view_as_real(got).isfinite().all(-1)) & (
            ~finite | _close(torch.where(finite, got, 0), torch.where(finite, want, 0), precision, scale)
        )
    wide = torch.complex128 if complex_ else torch.float64
    a, b = got.to(wide), want.to(wide)
    relative = _NEAR[real] * step * 1.01
    absolute = torch.finfo(real).tiny if precision == "near" else 32 * step * scale * scale
    if precision == "near" and real is torch.float16:
        absolute = torch.finfo(real).smallest_normal * step
    error, bound = (a - b).abs(), absolute + max(relative, 4 * step if precision == "sum" else 0) * b.abs()
    return (a == b) | (a.isnan() & b.isnan() if not complex_ else False) | (error <= bound)


def _carry_over(want: torch.Tensor, got: torch.Tensor) -> None:
    """Gives the device the CPU's bits, so that differences that were allowed do not add up."""
    bits = torch.uint8
    source = torch.empty(0, dtype=bits).set_(want.untyped_storage(), 0, (want.untyped_storage().nbytes(),), (1,))
    storage = got.untyped_storage()
    mine = torch.empty(0, dtype=bits, device=got.device).set_(storage, 0, (storage.nbytes(),), (1,))
    if source.numel() and not torch.equal(mine.cpu()[: source.numel()], source):
        count = source.numel() // got.itemsize
        flat = torch.empty(0, dtype=got.dtype, device=got.device).set_(storage, 0, (count,), (1,))
        theirs = torch.empty(0, dtype=got.dtype).set_(want.untyped_storage(), 0, (count,), (1,))
        flat.copy_(theirs)
