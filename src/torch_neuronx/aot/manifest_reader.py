"""Reading a manifest: it comes back only when every part has its type and fits the others."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from torch_neuronx.aot.errors import BundleError
from torch_neuronx.aot.manifest import FORMAT, VERSION, Leaf, Manifest, Output, Program, Symbol, Weight
from torch_neuronx.lowering import expressions
from torch_neuronx.scalar_types import dtype_of

_LARGEST: Final = 1 << 48
_HASH = re.compile(r"[0-9a-f]{64}")


def decode(data: bytes, where: str) -> Manifest:
    """Raises BundleError for anything but a manifest of this version whose parts fit together."""
    try:
        found = json.loads(data.decode(), parse_constant=_no_constant)
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            raise ValueError("it is not a torchneuron bundle's")
        if (version := found.pop("version", None)) != VERSION:
            raise ValueError(f"it has version {str(version)[:20]}, this torchneuron reads {VERSION}")
        manifest = _manifest(found)
        _check(manifest)
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError) as error:
        raise BundleError(f"{where}: its manifest cannot be used: {error}") from error
    return manifest


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _exactly(data: Any, kind: type, what: str) -> Any:
    if type(data) is not kind:
        raise ValueError(f"{what} is {str(data)[:80]!r}, not {kind.__name__}")
    return data


def _fields(data: Any, readers: Mapping[str, Callable[[Any, str], Any]], what: str) -> dict[str, Any]:
    _exactly(data, dict, what)
    if data.keys() != readers.keys():
        raise ValueError(f"{what} has the fields {sorted(data)}, not {sorted(readers)}")
    return {name: read(data[name], f"{what}.{name}") for name, read in readers.items()}


def _text(x: Any, what: str) -> str:
    _exactly(x, str, what).encode()  # JSON can hold what is no text, and the core takes UTF-8
    return str(x)


def _flag(x: Any, what: str) -> bool:
    return bool(_exactly(x, bool, what))


def _integer(x: Any, what: str) -> int:
    if abs(_exactly(x, int, what)) > _LARGEST:
        raise ValueError(f"{what} is {x}")
    return int(x)


def _natural(x: Any, what: str) -> int:
    if _integer(x, what) < 0:
        raise ValueError(f"{what} is {x}")
    return int(x)


def _hash(x: Any, what: str) -> str:
    if _HASH.fullmatch(_text(x, what)) is None:
        raise ValueError(f"{what} is no SHA-256")
    return str(x)


def _maybe(read: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    return lambda x, what: None if x is None else read(x, what)


def _each(read: Callable[[Any, str], Any]) -> Callable[[Any, str], tuple[Any, ...]]:
    return lambda x, what: tuple(read(v, f"{what}[{i}]") for i, v in enumerate(_exactly(x, list, what)))


def _map(read: Callable[[Any, str], Any]) -> Callable[[Any, str], dict[str, Any]]:
    return lambda x, what: {k: read(v, f"{what}.{k}") for k, v in _exactly(x, dict, what).items()}


def _one_of(*names: str) -> Callable[[Any, str], str]:
    def read(x: Any, what: str) -> str:
        if x not in names:
            raise ValueError(f"{what} is {str(x)[:80]!r}, not one of {', '.join(names)}")
        return str(x)

    return read


def _anything(x: Any, what: str) -> Any:
    return x


def _plain(x: Any, what: str) -> Any:
    if x is not None and not isinstance(x, (bool, int, float, str)):
        raise ValueError(f"{what} is a {type(x).__name__}")
    return x


def _dtype(x: Any, what: str) -> torch.dtype:
    return dtype_of(_exactly(x, int, what))


def _sizes(x: Any, what: str) -> tuple[Any, ...]:
    return _each(_anything)(x, what)  # checked when the symbols are known


def _placeholder(x: Any, what: str) -> tuple[str, int]:
    if len(_exactly(x, list, what)) != 2:
        raise ValueError(f"{what} is {str(x)[:80]}")
    return _one_of("weight", "leaf")(x[0], what), _natural(x[1], what)


def _weight(x: Any, what: str) -> Weight:
    readers = {
        "names": lambda x, what: list(_each(_text)(x, what)),
        "key": _text,
        "dtype": _dtype,
        "shape": _each(_natural),
        "stride": _each(_natural),
        "device": _one_of("neuron", "cpu"),
    }
    return Weight(**_fields(x, readers, what))


def _leaf(x: Any, what: str) -> Leaf:
    readers = {
        "name": _text,
        "kind": _one_of("tensor", "integer", "constant"),
        "dtype": _maybe(_dtype),
        "device": _maybe(_one_of("neuron", "cpu")),
        "shape": _sizes,
        "stride": _sizes,
        "value": _anything,
    }
    return Leaf(**_fields(x, readers, what))


def _output(x: Any, what: str) -> Output:
    readers = {
        "kind": _one_of("result", "input", "integer", "constant"),
        "index": _integer,
        "value": _anything,
        "device": _one_of("neuron", "cpu"),
        "shape": _maybe(_sizes),
        "stride": _maybe(_sizes),
    }
    return Output(**_fields(x, readers, what))


def _symbol(x: Any, what: str) -> Symbol:
    readers = {
        "name": _text,
        "leaf": _natural,
        "dim": _maybe(_natural),
        "scale": _natural,
        "offset": _integer,
        "least": _natural,
        "most": _natural,
        "served": _each(_natural),
    }
    return Symbol(**_fields(x, readers, what))


def _program(x: Any, what: str) -> Program:
    return Program(**_fields(x, {"call": _text, "sizes": _map(_natural), "file": _text, "sha256": _hash}, what))


def _manifest(x: Any) -> Manifest:
    readers = {
        "name": _text,
        "target": _text,
        "fingerprint": _maybe(_text),
        "versions": _map(_text),
        "sizing": _one_of("static", "padded", "exact"),
        "random": _flag,
        "in_spec": _text,
        "out_spec": _text,
        "argument_names": _each(_text),
        "leaves": _each(_leaf),
        "outputs": _each(_output),
        "results": _natural,
        "placeholders": _each(_placeholder),
        "written": _each(_natural),
        "symbols": _each(_symbol),
        "guards": _each(_anything),
        "weights": _each(_weight),
        "weights_file": _maybe(_text),
        "weights_sha256": _hash,
        "programs": _each(_program),
    }
    return Manifest(**_fields(x, readers, "it"))


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise ValueError(message)


def _check(m: Manifest) -> None:
    """Whether what refers to other parts finds them."""
    names = [s.name for s in m.symbols]
    _require(len(set(names)) == len(names), "two sizes of one name")
    _require((m.sizing == "static") == (not names), f"sizes that vary in a {m.sizing} program")
    for s in m.symbols:
        _require(s.leaf < len(m.leaves) and s.scale > 0 and s.least <= s.most, f"the size {s.name} is found nowhere")
        leaf = m.leaves[s.leaf]
        there = leaf.kind == "integer" if s.dim is None else s.dim < len(leaf.shape)
        _require(there, f"the size {s.name} is found nowhere")
        _require(bool(s.served) and list(s.served) == sorted(set(s.served)), f"the sizes served of {s.name}")
    for leaf in m.leaves:
        _require(len(leaf.shape) == len(leaf.stride), f"{leaf.name} has other strides than sizes")
        _require((leaf.kind == "tensor") == (leaf.dtype is not None and leaf.device is not None), f"{leaf.name}")
        _check_sizes((*leaf.shape, *leaf.stride), names)
        _check_value(leaf.kind, leaf.value, names)
    for o in m.outputs:
        _check_sizes((*(o.shape or ()), *(o.stride or ())), names)
        _check_value(o.kind, o.value, names)
        _require(len(o.shape or ()) == len(o.stride or ()), "an output has other strides than sizes")
        limit = {"result": m.results, "input": len(m.leaves)}.get(o.kind)
        _require(limit is None or 0 <= o.index < limit, f"an output that is number {o.index} of {limit}")
    _check_sizes(m.guards, names)
    for kind, i in m.placeholders:
        _require(i < len(m.weights if kind == "weight" else m.leaves), f"there is no {kind} {i}")
        _require(kind == "weight" or m.leaves[i].kind != "constant", f"leaf {i} is no argument of the program")
    _require(all(i < len(m.placeholders) for i in m.written), "an argument that is written and not there")
    for w in m.weights:
        _require(bool(w.names) and len(w.shape) == len(w.stride), f"the weight {w.key}")
        _require(math.prod(w.shape) <= _LARGEST, f"the weight {w.key} has shape {w.shape}")
        _require(_dense(w.shape, w.stride), f"the weight {w.key} of shape {w.shape} has strides {w.stride}")
    for p in m.programs:
        _require(p.sizes.keys() == set(names), f"{p.file} is for other sizes")
    _require(bool(m.programs), "it has no program")
    _require(m.results == sum(o.kind == "result" for o in m.outputs), f"{m.results} results")


def _check_sizes(sizes: tuple[Any, ...], names: list[str]) -> None:
    for n in sizes:
        expressions.check(n, names)


def _check_value(kind: str, value: Any, names: list[str]) -> None:
    if kind == "integer":
        expressions.check(value, names)
    else:
        _plain(value, "a constant")


def _dense(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    expected = 1
    if 0 in shape:
        return True
    for n, step in sorted(((n, s) for n, s in zip(shape, stride, strict=True) if n != 1), key=lambda x: x[1]):
        if step != expected:
            return False
        expected *= n
    return True
