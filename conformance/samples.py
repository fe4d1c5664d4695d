"""op_db's samples, and tensors on the device with the strides, offsets and shared storages of those on the CPU."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

MOST = 8  # samples a unit, as the conformance tool takes


@cache
def op_db() -> dict[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db as entries

    return {name_of(op): op for op in entries}


def name_of(op: Any) -> str:
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def of(op: Any, dtype: torch.dtype, most: int = MOST) -> Iterator[tuple[Any, list[bool]]]:
    """Samples on the CPU, each with which of its tensors stay there on any device (tensor_split's indices)."""
    torch.manual_seed(0)
    random.seed(0)
    samples = list(itertools.islice(op.sample_inputs("cpu", dtype), most))
    try:
        elsewhere = list(itertools.islice(op.sample_inputs("meta", dtype), most))
        stay = [[t.device.type == "cpu" for t in tensors(arguments(s))] for s in elsewhere]
    except Exception:  # noqa: BLE001 - not every entry makes meta samples; then nothing stays
        stay = []
    for i, sample in enumerate(samples):
        count = len(tensors(arguments(sample)))
        yield sample, stay[i] if i < len(stay) and len(stay[i]) == count else [False] * count


def arguments(sample: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    return sample.input, tuple(sample.args), dict(sample.kwargs)


def tensors(x: Any) -> list[torch.Tensor]:
    return [t for t in tree_flatten(x)[0] if isinstance(t, torch.Tensor)]


def place(given: Any, stay: list[bool], device: str) -> Any:
    """A copy of the arguments on `device`, laid out alike; tensors of one storage share one there too."""
    storages: dict[int, torch.Tensor] = {}
    keep = iter(stay)

    def one(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return _placed(x, "cpu" if next(keep) else device, storages)
        return x

    inputs, args, kwargs = tree_map(one, given)
    if kwargs.get("device") is not None:
        kwargs["device"] = torch.device(device)
    return inputs, args, kwargs


def _placed(t: torch.Tensor, device: str, storages: dict[int, torch.Tensor]) -> torch.Tensor:
    if t.layout != torch.strided or t.is_quantized or t.is_nested or t.is_conj() or t.is_neg():
        return t.detach().clone().to(device)
    source = t.detach()
    key = source.untyped_storage()._cdata
    if key not in storages:
        whole = torch.empty(0, dtype=t.dtype).set_(source.untyped_storage())
        storages[key] = whole.clone().to(device)
    base = storages[key]
    if base.dtype != t.dtype:
        return source.clone().to(device)
    return torch.empty(0, dtype=t.dtype, device=device).set_(
        base.untyped_storage(), source.storage_offset(), source.shape, source.stride()
    )
