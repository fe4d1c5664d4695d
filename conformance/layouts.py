"""Strides, views and storage of results against CPU torch: what the conformance tool does not look at.

Each sample is run as it comes, and with its first tensor transposed in memory and in channels_last.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import torch_neuronx  # noqa: F401 - registers the device
from conformance import samples, units, workers

DTYPES = ("bool", "int64", "float32", "complex64")
MODES = ("forward", "out", "inplace")
_CPU_WRITES_BEYOND = ("tril", "triu")  # torch 2.13: into a transposed out= of several matrices
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def transposed(t: torch.Tensor) -> torch.Tensor:
    """The same values with the memory order of the dimensions turned round."""
    return t.permute(*reversed(range(t.dim()))).contiguous().permute(*reversed(range(t.dim())))


def variants(given: Any) -> Iterator[tuple[str, Any]]:
    """The arguments as they come, and with the first tensor in other orders of memory."""
    yield "as it comes", given
    inputs, args, kwargs = given
    if not isinstance(inputs, torch.Tensor) or inputs.layout != torch.strided or inputs.dim() < 2:
        return
    yield "transposed", (transposed(inputs.detach()), args, kwargs)
    if inputs.dim() in _FORMATS:
        yield "channels_last", (inputs.detach().contiguous(memory_format=_FORMATS[inputs.dim()]), args, kwargs)


def describe(out: Any, given: Any) -> list[dict[str, Any]]:
    """What there is to compare of each returned tensor."""
    inputs, outputs = samples.tensors(given), samples.tensors(out)
    return [_described(t, inputs, outputs[:i]) for i, t in enumerate(outputs)]


def _described(t: torch.Tensor, inputs: list[torch.Tensor], earlier: list[torch.Tensor]) -> dict[str, Any]:
    if t.layout != torch.strided:
        return {"layout": t.layout, "shape": tuple(t.shape)}
    shared = [f"input {i}" for i, x in enumerate(inputs) if _share(x, t)]
    shared += [f"output {i}" for i, x in enumerate(earlier) if _share(x, t)]
    return {
        "shape": tuple(t.shape),
        "strides": _significant(t),
        "shares the storage of": shared,
        "offset": t.storage_offset() if shared else None,
        "is input": [i for i, x in enumerate(inputs) if x is t],
        "view": bool(shared) and t._is_view(),  # a view of a hidden temporary is nobody's business
        "conj": t.is_conj(),
        "neg": t.is_neg(),
    }


def _share(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.layout != torch.strided or a.device != b.device:
        return False
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def _significant(t: torch.Tensor) -> tuple[int, ...] | None:
    """Strides of dimensions that are walked along; those of size 1, and of empty tensors, mean nothing."""
    if t.numel() == 0:
        return None
    return tuple(st if size > 1 else 0 for size, st in zip(t.shape, t.stride(), strict=True))


def _forward(op: Any, placed: Any) -> list[dict[str, Any]]:
    inputs, args, kwargs = placed
    return describe(op.op(inputs, *args, **kwargs), placed)


def _inplace(op: Any, placed: Any) -> list[dict[str, Any]]:
    inputs, args, kwargs = placed
    before = inputs._version
    found = describe(op.get_inplace()(inputs, *args, **kwargs), placed)
    return [*found, {"version counted": inputs._version > before}]


def _out(op: Any, placed: Any) -> list[dict[str, Any]]:
    """Into empty tensors, which are resized, and into transposed ones, which keep their strides."""
    inputs, args, kwargs = placed
    fresh = op.op(inputs, *args, **kwargs)
    found: list[dict[str, Any]] = []
    into = (lambda t: t.new_empty(0), lambda t: transposed(torch.zeros_like(t)))
    for make in into[:1] if op.name in _CPU_WRITES_BEYOND else into:
        outs = [make(t) for t in samples.tensors(fresh)]
        given = outs[0] if isinstance(fresh, torch.Tensor) else outs if isinstance(fresh, list) else tuple(outs)
        returned = op.op(inputs, *args, **kwargs, out=given)
        found += describe(outs, ()) + describe(returned, outs)
    return found


_RUN: dict[str, Callable[[Any, Any], list[dict[str, Any]]]] = {"forward": _forward, "inplace": _inplace, "out": _out}


def compare(op: Any, given: Any, stay: list[bool], mode: str) -> bool:
    """False when CPU torch cannot run it so."""
    try:
        torch.manual_seed(1)
        want = _RUN[mode](op, samples.place(given, stay, "cpu"))
    except Exception:  # noqa: BLE001 - not every sample suits every mode
        return False
    torch.manual_seed(1)
    got = _RUN[mode](op, samples.place(given, stay, "neuron"))
    if len(got) != len(want):
        raise AssertionError(f"{len(got)} results, CPU torch has {len(want)}")
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        for key in w:
            if g.get(key) != w[key]:
                raise AssertionError(
                    f"result {i} of shape {w.get('shape')}: {key} {g.get(key)}, CPU torch has {w[key]}"
                )
    return True


def check(identity: str) -> dict[str, Any]:
    name, dtype, mode = identity.split("|")
    op, ran = samples.op_db()[name], 0
    try:
        for number, (sample, stay) in enumerate(samples.of(op, getattr(torch, dtype))):
            if mode == "inplace" and getattr(sample, "broadcasts_input", False):
                continue
            for how, given in variants(samples.arguments(sample)):
                try:
                    ran += compare(op, given, stay, mode)
                except Exception as error:
                    error.add_note(f"sample {number}, {how}")
                    raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the unit's result
        where = "; ".join(getattr(error, "__notes__", ()))
        text = f"{where}: {type(error).__name__}: {error}"
        return {"status": "fail" if isinstance(error, AssertionError) else "error", "msg": text[:400]}
    return {"status": "pass", "msg": ""} if ran else {"status": "skip", "msg": "no sample suits this mode"}


def identities(ops: str | None) -> list[str]:
    found = []
    for name, op in samples.op_db().items():
        if ops is not None and not re.fullmatch(ops, name):
            continue
        available = {"forward": True, "out": op.supports_out, "inplace": op.get_inplace() is not None}
        claimed = units.in_order(str(d).removeprefix("torch.") for d in op.dtypes)
        found += [f"{name}|{d}|{m}" for d in claimed if d in DTYPES for m in MODES if available[m]]
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--worker", action="store_true")
    options.add_argument("--out", type=Path)
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--ops", help="regular expression on entries")
    chosen = options.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if chosen.worker:
        workers.serve(check)
        return
    done = units.read(chosen.out, {m: m for m in MODES})
    todo = [i for i in identities(chosen.ops) if units.Unit(*i.split("|")) not in done]
    workers.run("conformance.layouts", todo, chosen.out, chosen.jobs)


if __name__ == "__main__":
    main()
