"""What a bundle says of itself, and its form on disk: JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

import torch

from torch_neuronx.aot.errors import BundleError
from torch_neuronx.lowering.expressions import Expression
from torch_neuronx.scalar_types import number_of

FORMAT: Final = "torchneuron bundle"
VERSION: Final = 1


@dataclass(frozen=True)
class Weight:
    """A parameter, buffer or constant.

    names   what the program calls it; several when it is tied
    key     its name among the stored tensors
    device  where it lives: constants may stay on the CPU
    """

    names: list[str]
    key: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str


@dataclass(frozen=True)
class Leaf:
    """One leaf of the arguments.

    kind   "tensor", "integer" (one of the sizes, or checked against `value`) or "constant", which must equal `value`
    """

    name: str
    kind: str
    dtype: torch.dtype | None = None
    device: str | None = None
    shape: tuple[Expression, ...] = ()
    stride: tuple[Expression, ...] = ()
    value: Any = None


@dataclass(frozen=True)
class Output:
    """One leaf of what is returned.

    kind    "result": a tensor the program returns, at `index`; "input": an argument as it was given; "integer": the
            size `value`; "constant": `value`
    device  where a result belongs
    shape   of a result whose sizes vary, with `stride`; else None
    """

    kind: str
    index: int = -1
    value: Any = None
    device: str = "neuron"
    shape: tuple[Expression, ...] | None = None
    stride: tuple[Expression, ...] | None = None


@dataclass(frozen=True)
class Symbol:
    """A size that varies: found at dimension `dim` of leaf `leaf` (None: the leaf itself) as scale * symbol + offset.

    served   the sizes there are programs for: padded, the largest size of each; exact, these alone
    """

    name: str
    leaf: int
    dim: int | None
    scale: int
    offset: int
    least: int
    most: int
    served: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """One program: for which call, for which sizes, and where."""

    call: str
    sizes: dict[str, int]
    file: str
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """A bundle.

    sizing        "static", "padded" or "exact"
    placeholders  the program's arguments: ("weight", i) or ("leaf", i)
    written       positions of arguments whose memory it writes
    floats        positions of arguments that are numbers known at run time
    guards        conditions on the sizes
    """

    name: str
    target: str
    fingerprint: str | None
    versions: dict[str, str]
    sizing: str
    random: bool
    in_spec: str
    out_spec: str
    argument_names: tuple[str, ...]
    leaves: tuple[Leaf, ...]
    outputs: tuple[Output, ...]
    results: int
    placeholders: tuple[tuple[str, int], ...]
    written: tuple[int, ...]
    symbols: tuple[Symbol, ...]
    guards: tuple[Expression, ...]
    weights: tuple[Weight, ...]
    weights_file: str | None
    weights_sha256: str
    programs: tuple[Program, ...]

    def encode(self) -> bytes:
        """Raises BundleError for constants that are not JSON."""
        data = {"format": FORMAT, "version": VERSION, **asdict(self)}
        try:
            return json.dumps(data, default=_encode, indent=1, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise BundleError(
                f"the program's arguments or results have a constant that is not JSON: {error}"
            ) from error


def _encode(x: Any) -> Any:
    if isinstance(x, torch.dtype):
        return number_of(x)
    raise TypeError(f"{type(x).__name__} has no place in a bundle")
