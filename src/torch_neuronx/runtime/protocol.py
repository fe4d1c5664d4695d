"""What a target must offer. Everything above is decided by Capabilities, never by a target's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import torch

LAPACK_PREFIX: Final = b"lapack_"  # of the custom calls in a program that need LAPACK

Array = Any  # the runtime's one-dimensional device array


@dataclass(frozen=True)
class Capabilities:
    """What a target can do."""

    host_visible: bool  # device memory can be read through a host pointer
    serialises: bool  # executables can be saved and loaded
    donates: bool  # an argument's memory can become a result's
    lapack: bool  # jaxlib's LAPACK custom calls are registered
    fixed_order: bool  # the same program gives the same bits each time, scatters to one place included


@dataclass(frozen=True)
class ResultType:
    """dtype and element count of one result; numel None means rank 0."""

    dtype: torch.dtype
    numel: int | None


@dataclass(frozen=True)
class Executable:
    """A loaded program.

    execute(arguments, with_tokens=True) starts it; the returned object's consume_token() gives its
    token, which has block_until_ready(), and consume_with_handlers(handlers) its result arrays.
    """

    execute: Callable[..., Any]
    handlers: tuple[Any, ...]
    loaded: Any


@dataclass(frozen=True)
class Variant:
    """Compile options, beside a target's own, that may make a program faster."""

    name: str
    options: tuple[tuple[str, Any], ...]


class Runtime(Protocol):
    """One target in this process."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def fingerprint(self) -> str:
        """Engine, version and device kind: a saved executable is valid for this only."""

    @property
    def options(self) -> tuple[tuple[str, Any], ...]:
        """Compile options, part of every executable's key."""

    def device_count(self) -> int: ...

    def variants(self, program: bytes) -> tuple[Variant, ...]:
        """What is worth measuring for a program beside the target's own options."""

    def compile(
        self, program: bytes, device: int, results: Sequence[ResultType], variant: Variant | None = None
    ) -> Executable: ...

    def serialise(self, executable: Executable) -> bytes: ...

    def load(self, payload: bytes, device: int, results: Sequence[ResultType]) -> Executable: ...

    def put(self, array: np.ndarray, dtype: torch.dtype, device: int) -> Array: ...

    def host_pointer(self, array: Array) -> int: ...

    def host_copy(self, array: Array) -> int: ...
