"""What a call looks like to the lowering: tensors by layout and storage slot, scalars by operand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from torch_neuronx.lowering.views import Layout


@dataclass(frozen=True, slots=True)
class Slot:
    """A distinct storage of the call, as the flat array that holds it."""

    dtype: torch.dtype
    numel: int
    present: bool = True  # False: nothing written yet, so it is no argument of the program


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor argument: a view of a slot."""

    dtype: torch.dtype
    layout: Layout
    slot: int
    offset: int | None = None  # index of its storage offset among the parameters; None: dense and whole
    fits: bool = False  # the block form reads it (views.block_fits)
    conj: bool = False  # lazily conjugated: clone and copy_ see such tensors
    neg: bool = False  # lazily negated


@dataclass(frozen=True, slots=True)
class ScalarSpec:
    """A number passed at run time: a Scalar, a float, or a 0-d CPU tensor."""

    dtype: torch.dtype
    param: int  # index of its first 64-bit word among the parameters (complex takes two)
    weak: bool = True  # a wrapped number, not a 0-d tensor


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an overload, complete enough to lower it and to name it in a cache."""

    name: str  # "aten::add.Tensor"
    args: tuple[Any, ...]  # in schema order: specs, tuples of them, or plain Python attributes
    slots: tuple[Slot, ...]
    params: int  # number of 64-bit words in the parameter vector
    rng: int | None = None  # index of (seed, offset) among the parameters


@dataclass(frozen=True, slots=True)
class Result:
    """One result of the program, in order.

    kind    "fresh": a new tensor of `layout`; "write": the new value of slot `slot`;
            "count": int64, the valid rows of fresh result `slot`, "columns": the same, where its columns lie one
            behind the other; "check": int32 error code.
    """

    kind: str
    dtype: torch.dtype
    layout: Layout
    slot: int = -1
