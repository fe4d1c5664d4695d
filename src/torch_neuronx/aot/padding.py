"""Calls of padded programs, from a manifest alone: their arguments, and the layouts of their results.

The same protocol as dynamo.buckets, which starts from a traced graph: inputs in storages of their largest size, then
the sizes, the strides of what is read through them, and one number that says which inputs are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch_neuronx import _C
from torch_neuronx.aot.manifest import Leaf, Manifest
from torch_neuronx.compiler.executables import Interface, Obtained
from torch_neuronx.dynamo.buckets import without_holes
from torch_neuronx.lowering.expressions import Expression, evaluate
from torch_neuronx.lowering.padded.poison import poisoned
from torch_neuronx.lowering.spec import Call, TensorSpec
from torch_neuronx.lowering.views import Layout


def at(sizes: Sequence[Expression], symbols: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(int(evaluate(n, symbols)) for n in sizes)


def varies(leaf: Leaf) -> bool:
    return leaf.kind == "tensor" and any(not isinstance(n, int) for n in leaf.shape)


class Padding:
    """How the arguments of a manifest's programs are padded."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        leaves = [manifest.leaves[i] if kind == "leaf" else None for kind, i in manifest.placeholders]
        self.entering = [(p, leaf) for p, leaf in enumerate(leaves) if leaf is not None and varies(leaf)]
        self.integers = [p for p, leaf in enumerate(leaves) if leaf is not None and leaf.kind == "integer"]
        self._forms = sum(_lies_padded(leaf) << k for k, (_, leaf) in enumerate(self.entering))

    @property
    def extra(self) -> int:
        """How many arguments follow the graph's own."""
        return len(self.manifest.symbols) + sum(len(leaf.shape) for _, leaf in self.entering) + 1

    def arguments(self, args: list[Any], sizes: Mapping[str, int], bounds: Mapping[str, int]) -> list[Any]:
        """`args` are contiguous where they vary."""
        poison = poisoned()
        out, strides = list(args), []
        for p, leaf in self.entering:
            # One more than the largest: no size fills its storage, and so all of them are one call to the core.
            out[p] = _C.with_capacity(args[p].detach(), math.prod(at(leaf.shape, bounds)) + 1, poison)
            strides += out[p].stride()
        return [*out, *(sizes[s.name] for s in self.manifest.symbols), *strides, self._forms]

    def canonical(self, call: Call) -> Call:
        """The call without what differs between the sizes that one program serves."""
        args = list(call.args)
        for p, _ in self.entering:
            assert isinstance(args[p], TensorSpec)
            args[p] = replace(args[p], layout=Layout((), ()), fits=False)
        for p in self.integers:
            args[p] = None
        return replace(call, args=tuple(args))

    def at_sizes(self, obtained: Obtained, sizes: Mapping[str, int]) -> Obtained:
        """The program with the layouts its results have in a call of these sizes."""
        face = obtained.interface
        results = list(face.results)
        for output in self.manifest.outputs:
            if output.kind != "result" or output.shape is None or output.stride is None:
                continue
            kind, index = face.returns[output.index][:2]
            if kind == "result":
                layout = Layout(at(output.shape, sizes), at(output.stride, sizes))
                layout = layout if layout.dense else without_holes(layout)
                if layout.extent <= results[index].storage_numel:  # less is what tracing takes for full
                    results[index] = replace(results[index], layout=layout)
        drawn = int(evaluate(face.rng_blocks, sizes))
        return Obtained(obtained.executable, Interface(tuple(results), face.returns, drawn, face.checks))


def _lies_padded(leaf: Leaf) -> bool:
    """Whether a contiguous input's memory is its padded form: only its first dimension that is not 1 varies."""
    moving = [n for n in leaf.shape if n != 1]
    return all(isinstance(n, int) for n in moving[1:])
