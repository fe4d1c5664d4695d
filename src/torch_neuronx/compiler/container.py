"""The `.neff` container: one program, its executable and what they are valid for, in one checksummed file.

    magic 8 | format version u32 | header length u32 | program length u64 | executable length u64     little endian
    header: canonical JSON, UTF-8
    program: StableHLO bytecode
    executable: as the engine serialised it
    SHA-256 of everything before it

The engine must only ever see bytes that passed the checksum: one flipped byte in a serialised executable can kill the
process. The checksum guards against damage, not against an author with intent: an executable is native code.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, BinaryIO

MAGIC = b"\x89NEFF\r\n\n"  # as in PNG: a transfer that rewrites line ends or drops bit 7 shows
FORMAT_VERSION = 1
MAX_HEADER_BYTES = 16 << 20

_PREAMBLE = struct.Struct("<8sIIQQ")
_OBJECTS = frozenset({"options", "interface"})
_DIGEST_BYTES = hashlib.sha256().digest_size

Json = dict[str, Any]


class CorruptFile(Exception):
    """These bytes are not a whole container of this format."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Header:
    """What an executable is and where it is valid. `options` and `interface` are JSON: lists, not tuples."""

    key: str  # hex, the name under which it is cached
    fingerprint: str  # engine, its version, device kind, CPU features: valid for exactly this
    options: Json  # compile options
    op: str
    signature: str  # for people
    interface: Json  # results and aliasing, as the caller wants them back
    created_by: str
    program_sha256: str


@dataclass(frozen=True, slots=True)
class Container:
    """The contents of one `.neff` file."""

    header: Header
    program: bytes
    executable: bytes

    @classmethod
    def build(
        cls,
        program: bytes,
        executable: bytes,
        *,
        key: str,
        fingerprint: str,
        op: str,
        created_by: str,
        signature: str = "",
        options: Json | None = None,
        interface: Json | None = None,
    ) -> Container:
        """A container whose header carries the program's hash."""
        return cls(
            Header(key, fingerprint, options or {}, op, signature, interface or {}, created_by, _sha256(program)),
            program,
            executable,
        )


def encode(container: Container) -> bytes:
    """The file's bytes; equal containers give equal bytes."""
    header = _encode_header(container.header)
    if container.header.program_sha256 != _sha256(container.program):
        raise ValueError("the header carries another program's hash: make containers with Container.build()")
    sizes = len(header), len(container.program), len(container.executable)
    preamble = _PREAMBLE.pack(MAGIC, FORMAT_VERSION, *sizes)
    body = b"".join((preamble, header, container.program, container.executable))
    return body + hashlib.sha256(body).digest()


def decode(data: bytes) -> Container:
    """The container in `data`, checked as a whole before any part is believed; raises CorruptFile."""
    sizes = _sizes(data)
    expected = _PREAMBLE.size + sum(sizes) + _DIGEST_BYTES
    if len(data) != expected:
        raise CorruptFile(f"it has {len(data)} bytes where its header announces {expected}")
    body = memoryview(data)[:-_DIGEST_BYTES]
    if hashlib.sha256(body).digest() != data[-_DIGEST_BYTES:]:
        raise CorruptFile("its checksum does not match its contents")
    header, program, executable = _split(body[_PREAMBLE.size :], sizes)
    container = Container(_decode_header(header), program, executable)
    if container.header.program_sha256 != _sha256(program):
        raise CorruptFile("its header describes another program")
    return container


def peek(stream: BinaryIO) -> Header:
    """The header alone, without the checksum: to show, never to act on."""
    start = stream.read(_PREAMBLE.size)
    header_size = _sizes(start)[0]
    return _decode_header(stream.read(header_size))


def _sizes(data: bytes) -> tuple[int, int, int]:
    if not data:
        raise CorruptFile("it is empty")
    if not data.startswith(MAGIC[: len(data)]):
        raise CorruptFile("it is not a .neff container")
    if len(data) < _PREAMBLE.size:
        raise CorruptFile(f"it ends after {len(data)} bytes, inside its preamble")
    _, version, *sizes = _PREAMBLE.unpack_from(data)
    if version != FORMAT_VERSION:
        raise CorruptFile(f"it has container format {version}, this version reads format {FORMAT_VERSION}")
    header, program, executable = sizes
    if header > MAX_HEADER_BYTES:
        raise CorruptFile(f"it announces a header of {header} bytes, more than {MAX_HEADER_BYTES}")
    return header, program, executable


def _split(view: memoryview, sizes: tuple[int, ...]) -> Iterator[bytes]:
    start = 0
    for size in sizes:
        yield bytes(view[start : start + size])
        start += size


def _encode_header(header: Header) -> bytes:
    try:
        text = json.dumps(
            asdict(header), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        ).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"the header of {header.op} is not JSON ({error}): options and interface must be") from error
    if len(text) > MAX_HEADER_BYTES:
        raise ValueError(f"the header of {header.op} has {len(text)} bytes, more than {MAX_HEADER_BYTES}")
    return text


def _decode_header(data: bytes) -> Header:
    try:
        found = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"its header is not JSON ({error})") from error
    if not isinstance(found, dict) or found.keys() != {field.name for field in fields(Header)}:
        raise CorruptFile("its header has other fields than this version writes")
    for name, value in found.items():
        if not isinstance(value, dict if name in _OBJECTS else str):
            raise CorruptFile(f"its header's {name} has the wrong type")
    return Header(**found)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
