"""The .neff container: what goes in comes out, and nothing else does."""

import dataclasses
import hashlib
import io
import json
import struct

import cache_child as child
import pytest

from torch_neuronx.compiler import container
from torch_neuronx.compiler.container import Container, CorruptFile, decode, encode, peek

KEY = "0123456789abcdef"
PREAMBLE = struct.Struct("<8sIIQQ")


@pytest.fixture
def whole():
    return child.container(KEY, payload=bytes(range(256)) * 3)


def sealed(body):
    return body + hashlib.sha256(body).digest()


def with_header(header):
    """A file with a right checksum around any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return sealed(PREAMBLE.pack(container.MAGIC, container.FORMAT_VERSION, len(text), 0, 0) + text)


def reason(data):
    with pytest.raises(CorruptFile) as caught:
        decode(data)
    return caught.value.reason


def test_round_trip(whole):
    assert decode(encode(whole)) == whole


def test_empty_parts_round_trip():
    empty = Container.build(b"", b"", key=KEY, fingerprint="", op="", created_by="")
    assert decode(encode(empty)) == empty


def test_unicode_round_trip(whole):
    named = dataclasses.replace(whole, header=dataclasses.replace(whole.header, op="aten::größe λ 🦀"))
    assert decode(encode(named)) == named


def test_encoding_is_canonical(whole):
    header = dataclasses.replace(whole.header, interface=dict(reversed(whole.header.interface.items())))
    assert encode(dataclasses.replace(whole, header=header)) == encode(whole)


def test_every_flipped_bit_is_found(whole):
    data = encode(whole)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(CorruptFile):
            decode(bytes(damaged))


def test_every_truncation_is_found(whole):
    data = encode(whole)
    for length in range(len(data)):
        with pytest.raises(CorruptFile):
            decode(data[:length])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"\x89NE", "ends after 3 bytes"),
        (b"ELF and so on" * 20, "not a .neff"),
        (bytes(4096), "not a .neff"),
    ],
)
def test_garbage(data, words):
    assert words in reason(data)


def test_trailing_bytes(whole):
    assert "announces" in reason(encode(whole) + b"\0")


def test_format_version(whole):
    data = bytearray(encode(whole))
    data[8:12] = struct.pack("<I", 7)
    assert "format 7" in reason(sealed(bytes(data[:-32])))


def test_huge_sizes_allocate_nothing():
    assert "header of" in reason(PREAMBLE.pack(container.MAGIC, 1, 2**32 - 1, 0, 0))
    assert "announces" in reason(PREAMBLE.pack(container.MAGIC, 1, 8, 2**64 - 1, 2**64 - 1) + bytes(100))


@pytest.mark.parametrize("header", [b"\xff\xfe", b"{", b"[" * 100_000, [], None, 3, {}, {"key": KEY}])
def test_header_of_another_kind(header):
    assert "header" in reason(with_header(header))


def test_header_with_an_unknown_field(whole):
    assert "other fields" in reason(with_header(dataclasses.asdict(whole.header) | {"code": "x"}))


@pytest.mark.parametrize(("field", "value"), [("key", 3), ("op", None), ("interface", []), ("options", "x")])
def test_header_field_of_a_wrong_type(whole, field, value):
    assert f"header's {field}" in reason(with_header(dataclasses.asdict(whole.header) | {field: value}))


def test_header_of_another_program(whole):
    assert "another program" in reason(with_header(dataclasses.asdict(whole.header)))


def test_encode_refuses_another_programs_header(whole):
    with pytest.raises(ValueError, match=r"Container.build"):
        encode(dataclasses.replace(whole, program=b"other"))


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"bytes", "\ud800"])
def test_encode_refuses_what_is_not_json(whole, value):
    header = dataclasses.replace(whole.header, interface={"x": value})
    with pytest.raises(ValueError, match=r"aten::add\.Tensor is not JSON"):
        encode(dataclasses.replace(whole, header=header))


def test_peek_reads_the_header_only(whole):
    stream = io.BytesIO(encode(whole))
    assert peek(stream) == whole.header
    assert stream.tell() < len(encode(whole)) - 256 * 3


def test_peek_at_garbage():
    for data in (b"", b"garbage" * 10, encode(child.container(KEY))[:50]):
        with pytest.raises(CorruptFile):
            peek(io.BytesIO(data))
