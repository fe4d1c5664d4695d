"""The safetensors format: 8 bytes with the header's length, a JSON header, then the elements. Checked as a whole."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

from torch_neuronx.aot.errors import BundleError

_LENGTH = struct.Struct("<Q")
_LONGEST_HEADER: Final = 100 << 20  # the format's own limit
_NAMES: Final[dict[torch.dtype, str]] = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.uint16: "U16",
    torch.int32: "I32",
    torch.uint32: "U32",
    torch.int64: "I64",
    torch.uint64: "U64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e8m0fnu: "F8_E8M0",
}


def form(dtype: torch.dtype, shape: tuple[int, ...]) -> tuple[str, list[int]]:
    """How such a tensor is stored: dtypes that the format does not have, as bytes in a further dimension."""
    name = _NAMES.get(dtype)
    return (name, list(shape)) if name is not None else ("U8", [*shape, dtype.itemsize])


def encode(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """The file of these CPU tensors, elements in row-major order."""
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    at = 0
    for name, tensor in tensors.items():
        data = raw(tensor)
        dtype, shape = form(tensor.dtype, tuple(tensor.shape))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return b"".join((_LENGTH.pack(len(text)), text, *parts))


def raw(tensor: torch.Tensor) -> bytes:
    """A tensor's elements in row-major order."""
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


class File:
    """The tensors of a file's bytes. Raises BundleError unless they are a whole safetensors file."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data, self._name = data, name
        if len(data) < _LENGTH.size:
            raise BundleError(f"{name} is no safetensors file: it has {len(data)} bytes")
        (length,) = _LENGTH.unpack_from(data)
        self._start = _LENGTH.size + length
        if length > _LONGEST_HEADER or self._start > len(data):
            raise BundleError(f"{name} is no safetensors file: it announces a header of {length} bytes")
        try:
            header = json.loads(data[_LENGTH.size : self._start].decode())
        except (ValueError, RecursionError) as error:
            raise BundleError(f"{name} is no safetensors file: its header is not JSON ({error})") from error
        if not isinstance(header, dict):
            raise BundleError(f"{name} is no safetensors file: its header is not an object")
        self._entries = {k: v for k, v in header.items() if k != "__metadata__"}

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def elements(self, key: str, dtype: torch.dtype, shape: tuple[int, ...]) -> memoryview:
        """The bytes of a tensor, which must be of this dtype and shape; raises BundleError."""
        entry = self._entries.get(key)
        if entry is None:
            raise BundleError(f"{self._name} has no tensor {key!r}")
        wanted_dtype, wanted_shape = form(dtype, shape)
        found = (entry.get("dtype"), entry.get("shape")) if isinstance(entry, dict) else (None, None)
        if found != (wanted_dtype, wanted_shape):
            raise BundleError(
                f"{self._name}: {key} is stored as {found[0]} of shape {found[1]}, the program needs {wanted_dtype} of "
                f"shape {wanted_shape}"
            )
        nbytes = math.prod(shape) * dtype.itemsize
        offsets = entry.get("data_offsets")
        if (
            not isinstance(offsets, list)
            or [type(o) for o in offsets] != [int, int]
            or not 0 <= offsets[0] <= offsets[1] <= len(self._data) - self._start
            or offsets[1] - offsets[0] != nbytes
        ):
            raise BundleError(f"{self._name}: {key} should have {nbytes} bytes, and lies at {offsets}")
        return memoryview(self._data)[self._start + offsets[0] : self._start + offsets[1]]

    def tensor(self, key: str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        """A CPU tensor of its own memory; raises BundleError."""
        elements = self.elements(key, dtype, shape)
        if not elements:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(bytearray(elements), dtype=dtype).reshape(shape)
