"""Random numbers over padded sizes: every element gets the number that eager mode draws for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sympy
import torch

from torch_neuronx.lowering.module import Places, current
from torch_neuronx.lowering.padded import layout
from torch_neuronx.lowering.padded.rules import Node, rule
from torch_neuronx.lowering.padded.sizes import expression, size_of
from torch_neuronx.lowering.value import Dim, Value


@contextmanager
def drawing(dims: Sequence[Dim]) -> Iterator[None]:
    """What is drawn inside is for the elements of an array of `dims`, in row-major order."""
    program = current()
    count: Any = math.prod([sympy.sympify(size_of(d)) for d in dims])
    before, program.rng_places = program.rng_places, Places(expression(count), layout.places(dims))
    try:
        yield
    finally:
        program.rng_places = before


@rule(
    *("aten::native_dropout", "aten::_fused_dropout", "aten::rrelu_with_noise_functional"),
    *("aten::bernoulli", "aten::bernoulli.p", "aten::bernoulli.Tensor"),
    *("aten::uniform", "aten::normal_functional", "aten::log_normal", "aten::exponential", "aten::cauchy"),
    *("aten::geometric", "aten::random", "aten::random.to", "aten::random.from"),
    *("aten::normal.Tensor_Tensor", "aten::normal.Tensor_float", "aten::normal.float_Tensor"),
    *("aten::rand", "aten::randn", "aten::randint", "aten::randint.low"),
    *("aten::rand_like", "aten::randn_like", "aten::randint_like", "aten::randint_like.low_dtype"),
)
def _random(node: Node) -> Value | tuple[Value, ...]:
    names = [k for k, v in node.arguments.items() if isinstance(v, Value) and v.ndim]
    changed: dict[str, Any] = {}
    if names:
        given, dims = layout.broadcast([node[k] for k in names])
        # A row that draws with operands checks them: 1 is a good probability and a good scale.
        given = [layout.mask(x, range(x.ndim), 1) if x.dtype is not torch.bool else x for x in given]
        changed = dict(zip(names, given, strict=True))
    else:
        dims = tuple(layout.dims_for(node.sizes[0], []))
        changed = {"size": [d.bound for d in dims]}
    with drawing(dims):
        results = node.emit(changed)
    if isinstance(results, Value):
        return layout.with_dims(results, dims)
    return tuple(layout.with_dims(r, dims) for r in results)
