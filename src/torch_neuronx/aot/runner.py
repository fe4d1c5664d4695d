"""Launching a bundle's programs: the core's call of a graph, whose question for an executable a bundle answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from torch_neuronx import _C
from torch_neuronx.aot.manifest import Leaf, Manifest
from torch_neuronx.aot.padding import Padding, at, varies
from torch_neuronx.compiler.executables import Obtained
from torch_neuronx.dynamo.resolver import weakly
from torch_neuronx.eager.interrupts import held_back
from torch_neuronx.eager.resolve import argument_of, run_entry, slot_of
from torch_neuronx.lowering.spec import Call
from torch_neuronx.lowering.views import Layout, contiguous_strides

Find = Callable[[str, Call, int], Obtained]


class OtherCall(Exception):
    """No program was compiled for arguments that lie in memory as these do."""


class Runner:
    """Calls one graph. `find(key, call, device)` gives the executable; `key` is equal for all calls that share one."""

    def __init__(self, manifest: Manifest, find: Find) -> None:
        self.manifest, self._find = manifest, find
        self.padding = Padding(manifest) if manifest.sizing == "padded" else None
        count, floats = len(manifest.placeholders), ()
        if self.padding is not None:
            floats = tuple(range(count, count + self.padding.extra - 1))  # type: ignore[assignment]
            count += self.padding.extra
        self._handle = _C.make_graph(
            manifest.name, count, manifest.results, manifest.written, floats, manifest.random, weakly(self._resolve)
        )

    def run(self, args: list[Any], sizes: Mapping[str, int], bounds: Mapping[str, int]) -> list[Any]:
        """The program's results. `args` lie as canonical() puts them; they are kept from the caller's list."""
        if self.padding is not None:
            args = self.padding.arguments(args, sizes, bounds)
        return list(_C.run_graph(self._handle, list(args)))

    def _resolve(
        self, name: str, args: tuple[Any, ...], slots: tuple[Any, ...], params: int, rng: int, device: int
    ) -> tuple[Any, ...]:
        """The core's question for the executable of a call it has not seen before."""
        described = tuple(argument_of(x, "") for x in args)
        state = rng if rng >= 0 else None
        call = Call("graph::inference", described, tuple(slot_of(s) for s in slots), params, state)
        if not all(s.present for s in call.slots):
            raise OtherCall
        shared = call if self.padding is None else self.padding.canonical(call)
        with held_back():
            found = self._find(repr(shared), call, device)
        if self.padding is not None:
            found = self.padding.at_sizes(found, self._sizes_of(described))
        return run_entry(found)

    def _sizes_of(self, described: tuple[Any, ...]) -> dict[str, int]:
        position = {p: k for k, p in enumerate(self.manifest.placeholders)}
        found = {}
        for s in self.manifest.symbols:
            x = described[position["leaf", s.leaf]]
            found[s.name] = (int(x) if s.dim is None else x.layout.sizes[s.dim] - s.offset) // s.scale
        return found


def strides_of(leaf: Leaf, shape: tuple[int, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """How an argument lies in memory when a program reads it: dense, as it was traced unless its sizes vary."""
    traced = contiguous_strides(shape) if varies(leaf) else at(leaf.stride, sizes)
    return traced if Layout(shape, traced).dense else contiguous_strides(shape)


def canonical(x: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The tensor with these strides and nothing else in its storage: itself if it is so, or a copy."""
    x = x.detach()
    whole = x.storage_offset() == 0 and x.untyped_storage().nbytes() == x.numel() * x.itemsize
    if not whole or x.is_conj() or x.is_neg() or not _alike(x, strides):
        x = fresh(x, strides)
    return x if x.stride() == strides else x.as_strided(x.shape, strides)


def _alike(x: torch.Tensor, strides: tuple[int, ...]) -> bool:
    pairs = zip(x.shape, x.stride(), strides, strict=True)
    return x.numel() == 0 or all(a == b for n, a, b in pairs if n != 1)


def fresh(x: torch.Tensor, strides: tuple[int, ...], device: torch.device | None = None) -> torch.Tensor:
    """A copy in memory of its own, by way of the host, which compiles nothing."""
    host = torch.empty_strided(x.shape, strides, dtype=x.dtype).copy_(x.detach().cpu())
    return torch.empty_strided(x.shape, strides, dtype=x.dtype, device=device or x.device).copy_(host)
