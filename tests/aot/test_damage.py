"""A bundle that is cut short, damaged or made with intent is refused: nothing runs, nothing is written."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.export import Dim, export

import torch_neuronx
from tests.aot.models import Transformer, made
from torch_neuronx.aot import BundleError, archive
from torch_neuronx.compiler import container

D = "neuron"
Entries = dict[str, bytes]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Entries:
    path = tmp_path_factory.mktemp("bundle") / "m.neff"
    shapes = {"ids": {1: Dim("n", min=1, max=8)}}
    torch_neuronx.aot_compile(export(made(Transformer), (torch.randint(50, (2, 7)),), dynamic_shapes=shapes), path)
    return archive.read(path)


def pack(path: Path, entries: Entries) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, data in entries.items():
            file.writestr(name, data)
    return path


def run(path: Path):
    return torch_neuronx.load(path)(torch.randint(50, (2, 7)).to(D))


def changed(entries: Entries, change: Callable[[dict], object]) -> Entries:
    """With another manifest."""
    manifest = json.loads(entries[archive.MANIFEST])
    change(manifest)
    return {**entries, archive.MANIFEST: json.dumps(manifest).encode()}


def reprogrammed(entries: Entries, change: Callable[[dict], object], *, executable: bool = True) -> Entries:
    """With another calling convention in its program, its checksums right."""
    name = archive.program_name(0)
    held = container.decode(entries[name])
    change(held.header.interface)
    data = container.encode(container.Container(held.header, held.program, held.executable if executable else b""))
    out = {**entries, name: data}
    return changed(out, lambda m: m["programs"][0].update(sha256=hashlib.sha256(data).hexdigest()))


def test_the_same_contents_are_the_same_bundle(good: Entries, tmp_path: Path) -> None:
    assert run(pack(tmp_path / "m.neff", good)).shape == (2, 7, 50)


def test_cut_short_anywhere(good: Entries, tmp_path: Path) -> None:
    whole = pack(tmp_path / "m.neff", good).read_bytes()
    for length in [0, 1, 3, 30, *range(100, len(whole), len(whole) // 40), len(whole) - 1]:
        (tmp_path / "cut.neff").write_bytes(whole[:length])
        with pytest.raises(BundleError, match="is not a whole bundle"):
            torch_neuronx.load(tmp_path / "cut.neff")


def test_a_flipped_byte_anywhere(good: Entries, tmp_path: Path) -> None:
    """Refused, or of no meaning to a bundle (a zip file has dates and attributes)."""
    whole = pack(tmp_path / "m.neff", good).read_bytes()
    reference = run(tmp_path / "m.neff").shape
    refused = 0
    for at in range(0, len(whole), max(len(whole) // 150, 1)):
        (tmp_path / "bad.neff").write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        try:
            assert run(tmp_path / "bad.neff").shape == reference
        except BundleError:
            refused += 1
    assert refused > 140


@pytest.mark.parametrize("name", ["../evil.neff", "/etc/evil", "programs/../../x", "programs\\0000.neff", "a.py"])
def test_names_that_lead_elsewhere(good: Entries, tmp_path: Path, name: str) -> None:
    with pytest.raises(BundleError, match="which no bundle has"):
        torch_neuronx.load(pack(tmp_path / "m.neff", {**good, name: b"x"}))
    assert [p.name for p in tmp_path.iterdir()] == ["m.neff"]


def test_compressed_or_doubled_entries(good: Entries, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.neff", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(archive.MANIFEST, b"0" * 10_000_000)
    with pytest.raises(BundleError, match="is compressed or encrypted"):
        torch_neuronx.load(tmp_path / "bomb.neff")
    with zipfile.ZipFile(tmp_path / "two.neff", "w") as file:
        file.writestr(archive.MANIFEST, good[archive.MANIFEST])
        with pytest.warns(UserWarning, match="Duplicate name"):
            file.writestr(archive.MANIFEST, b"{}")
    with pytest.raises(BundleError, match=r"two entries named manifest\.json"):
        torch_neuronx.load(tmp_path / "two.neff")


def test_no_such_file_and_other_files(good: Entries, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        torch_neuronx.load(tmp_path / "none.neff")
    with pytest.raises(BundleError, match=r"without manifest\.json"):
        torch_neuronx.load(pack(tmp_path / "m.neff", {archive.WEIGHTS: b""}))
    torch.save({}, tmp_path / "m.pt")
    with pytest.raises(BundleError, match="which no bundle has"):
        torch_neuronx.load(tmp_path / "m.pt")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"format": 1}',
        b"[" * 100_000,
        b'{"format": "torchneuron bundle", "version": NaN}',
    ],
)
def test_bad_json(good: Entries, tmp_path: Path, text: bytes) -> None:
    with pytest.raises(BundleError, match="its manifest cannot be used"):
        torch_neuronx.load(pack(tmp_path / "m.neff", {**good, archive.MANIFEST: text}))


def _set(**values: object) -> Callable[[dict], object]:
    return lambda m: m.update(values)


def _deep(depth: int) -> object:
    size: object = 1
    for _ in range(depth):
        size = ["+", size]
    return size


MANIFESTS: dict[str, Callable[[dict], object]] = {
    "another version": _set(version=2),
    "a field too few": lambda m: m.pop("guards"),
    "a field too many": _set(hook="os.system"),
    "a weight of another dtype": lambda m: m["weights"][0].update(dtype=4),
    "an unknown dtype": lambda m: m["weights"][0].update(dtype=12),
    "a weight of another shape": lambda m: m["weights"][0].update(shape=[50, 17]),
    "a huge weight": lambda m: m["weights"][0].update(shape=[1 << 40, 1 << 40]),
    "a negative size": lambda m: m["weights"][0].update(shape=[-1, 16]),
    "a weight with holes": lambda m: m["weights"][0].update(stride=[1000, 1]),
    "a weight that is not there": lambda m: m["weights"][0].update(key="other"),
    "weights with another checksum": _set(weights_sha256="0" * 64),
    "weights in a device": _set(weights_file="/dev/zero"),
    "a name that is no text": _set(name="\ud800"),
    "more results than there are": _set(results=1 << 40),
    "a program with another checksum": lambda m: m["programs"][0].update(sha256="0" * 64),
    "a program that is not there": lambda m: m["programs"][0].update(file="programs/0009.neff"),
    "a manifest as a program": lambda m: m["programs"][0].update(file="manifest.json"),
    "no programs": _set(programs=[]),
    "programs for other sizes": lambda m: m["programs"][0].update(sizes={}),
    "a placeholder beyond": lambda m: m["placeholders"].append(["weight", 99]),
    "a leaf beyond": lambda m: m["placeholders"].append(["leaf", 99]),
    "a write beyond": _set(written=[99]),
    "an output beyond": lambda m: m["outputs"][0].update(index=9),
    "an output before": lambda m: m["outputs"][0].update(index=-1),
    "a size of code": lambda m: m["leaves"][0].update(shape=["__import__('os')", 1]),
    "a size that takes for ever": lambda m: m["leaves"][0].update(shape=[["**", 9, 9999999], 1]),
    "a size without end": lambda m: m["leaves"][0].update(shape=[_deep(500), 1]),
    "a symbol nowhere": lambda m: m["symbols"][0].update(leaf=7),
    "a symbol of no scale": lambda m: m["symbols"][0].update(scale=0),
    "served in disorder": lambda m: m["symbols"][0].update(served=[8, 4]),
    "a structure to import": _set(
        in_spec='[1, {"type": "collections.defaultdict", "context": "{}", "children_spec": []}]'
    ),
    "an enumeration to import": _set(
        in_spec='[1, {"type": "builtins.dict", "context": "[{\\"__enum__\\": true, \\"fqn\\": \\"antigravity:x\\", '
        '\\"name\\": \\"y\\"}]", "children_spec": [{"type": null, "context": null, "children_spec": []}]}]'
    ),
    "a structure of other leaves": _set(
        out_spec='[1, {"type": "builtins.list", "context": "null", "children_spec": []}]'
    ),
    "arguments that are none": _set(in_spec='[1, {"type": null, "context": null, "children_spec": []}]'),
    "a structure nobody knows": _set(out_spec='[1, {"type": "my.Thing", "context": "null", "children_spec": []}]'),
    "a structure that is none": _set(in_spec="[1]"),
}


@pytest.mark.parametrize("what", MANIFESTS)
def test_manifests_that_do_not_fit(good: Entries, tmp_path: Path, what: str) -> None:
    with pytest.raises(BundleError) as refused:
        torch_neuronx.load(pack(tmp_path / "m.neff", changed(good, MANIFESTS[what])))
    assert "m.neff" in str(refused.value) or "/dev/zero" in str(refused.value)


INPUT = 10  # the transformer's tokens, after its ten weights

INTERFACES: dict[str, Callable[[dict], object]] = {
    "a result larger than its memory": lambda f: f["results"][0].__setitem__(2, [1 << 20, 1 << 20]),
    "a result of a negative size": lambda f: f["results"][0].__setitem__(2, [-1]),
    "an unknown kind": lambda f: f["results"][0].__setitem__(0, "code"),
    "an argument beyond": lambda f: f.update(returns=[["argument", 99]]),
    "a result beyond": lambda f: f.update(returns=[["result", 99]]),
    "a view beyond": lambda f: f.update(returns=[["view", "result", 0, [9, 9], [900000, 1], 0]]),
    "a view beyond its weight": lambda f: f.update(returns=[["view", "argument", 0, [2], [1 << 30], 0]]),
    "a view beyond its input": lambda f: f.update(returns=[["view", "argument", INPUT, [9, 9], [9, 1], 0]]),
    "too many returns": lambda f: f.update(returns=[["result", 0], ["result", 0]]),
    "checks that call": lambda f: f.update(checks=[["exec", "print(1)"]]),
    "no results": lambda f: f.pop("results"),
    "results that are none": lambda f: f.update(results=7),
}


@pytest.mark.parametrize("what", INTERFACES)
def test_calling_conventions_that_do_not_fit(good: Entries, tmp_path: Path, what: str) -> None:
    with pytest.raises(BundleError, match="its calling convention cannot be used"):
        run(pack(tmp_path / "m.neff", reprogrammed(good, INTERFACES[what])))


def test_a_program_that_is_another(good: Entries, tmp_path: Path) -> None:
    """More memory announced than the program returns: found before it is compiled."""

    def larger(face: dict) -> None:
        face["results"][0][4] += 1000

    path = pack(tmp_path / "m.neff", reprogrammed(good, larger, executable=False))
    with pytest.raises(BundleError, match="its calling convention says"):
        torch_neuronx.load(path, recompile=True)(torch.randint(50, (2, 7)).to(D))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (b"no program", "no StableHLO program that this jaxlib reads"),
        (
            b"func.func @main(%a: tensor<1xf32>) -> tensor<1xf32> { %0 = stablehlo.custom_call "
            b"@xla_python_cpu_callback(%a) : (tensor<1xf32>) -> tensor<1xf32> return %0 : tensor<1xf32> }",
            "calls xla_python_cpu_callback, which no program of this package does",
        ),
    ],
)
def test_programs_of_others(good: Entries, tmp_path: Path, program: bytes, message: str) -> None:
    name = archive.program_name(0)
    header = container.decode(good[name]).header
    data = container.encode(
        container.Container.build(
            program, b"", key=header.key, fingerprint="", op="x", created_by="x", interface=header.interface
        )
    )
    entries = changed({**good, name: data}, lambda m: m["programs"][0].update(sha256=hashlib.sha256(data).hexdigest()))
    with pytest.raises(BundleError, match=message):
        run(pack(tmp_path / "m.neff", entries))


def test_weights_that_are_none(good: Entries, tmp_path: Path) -> None:
    for data in (b"", b"\xff" * 8, b"\x02" + bytes(7) + b"{}", b"\x02" + bytes(7) + b"[]", b"\x01" + bytes(7) + b"{"):
        entries = changed({**good, archive.WEIGHTS: data}, _set(weights_sha256=hashlib.sha256(data).hexdigest()))
        with pytest.raises(BundleError, match=archive.WEIGHTS):
            torch_neuronx.load(pack(tmp_path / "m.neff", entries))
    text = good[archive.WEIGHTS]
    moved = text.replace(b'"data_offsets":[0,', b'"data_offsets":[9,', 1)
    entries = changed({**good, archive.WEIGHTS: moved}, _set(weights_sha256=hashlib.sha256(moved).hexdigest()))
    with pytest.raises(BundleError, match=r"should have .* bytes, and lies at"):
        torch_neuronx.load(pack(tmp_path / "m.neff", entries))
