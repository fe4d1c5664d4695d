"""aot_compile: an exported program becomes one file."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jaxlib
import torch
from torch.export import ExportedProgram

import torch_neuronx
from torch_neuronx.aot import archive, sizing, trees, weight_file
from torch_neuronx.aot.errors import BundleError
from torch_neuronx.aot.manifest import Leaf, Manifest, Output, Program, Symbol, Weight
from torch_neuronx.aot.names import argument_names, leaf_names
from torch_neuronx.aot.padding import at
from torch_neuronx.aot.program import Graph, graph_of, is_random, on_device
from torch_neuronx.aot.runner import Runner, fresh, strides_of
from torch_neuronx.aot.targets import compiler_of
from torch_neuronx.compiler import executables
from torch_neuronx.compiler.container import Container, encode
from torch_neuronx.compiler.executables import Obtained
from torch_neuronx.dynamo.aliases import Aliases
from torch_neuronx.dynamo.buckets import Varying
from torch_neuronx.dynamo.graph import CompilationError
from torch_neuronx.lowering import expressions
from torch_neuronx.lowering.call import Lowered
from torch_neuronx.lowering.errors import Unsupported
from torch_neuronx.lowering.graph import NodeFailed, lower_graph, output_nodes, written_positions
from torch_neuronx.lowering.padded.graph import Request, lower_padded
from torch_neuronx.lowering.padded.sizes import NeedsExact
from torch_neuronx.lowering.spec import Call
from torch_neuronx.runtime.targets import target as present_target


@dataclass(frozen=True)
class BundleInfo:
    """What aot_compile wrote.

    programs       the sizes of each program: one empty dict when no size varies
    compiled       False: the file holds StableHLO alone
    exact_because  why sizes that vary are not padded, when they are not
    """

    path: Path
    target: str
    sizing: str
    programs: tuple[dict[str, int], ...]
    compiled: bool
    exact_because: str | None


def aot_compile(
    exported_program: ExportedProgram,
    path: str | os.PathLike[str],
    *,
    buckets: sizing.Buckets = None,
    weights: str = "inside",
    weights_path: str | os.PathLike[str] | None = None,
    target: str | None = None,
    model_name: str = "model",
) -> BundleInfo:
    """Compiles a program of torch.export into one file that torch_neuronx.load() runs without the model's code.

    buckets       what sizes that vary are compiled for: None, all steps of 2^k and 3 * 2^k up to their upper bounds;
                  a list of sizes, each serving those below it; {argument: {dimension: sizes}}; "exact", one program
                  for each size
    weights       "inside" the file, or by "reference" to a safetensors file
    weights_path  that file, by default the bundle's name with .safetensors; written unless it is there
    target        "host", "plugin" or another name; by default the one that is present. Without a compiler for it the
                  file holds StableHLO alone, which is compiled where it is loaded, and a warning says so.

    Raises BundleError when the program cannot be shipped, CompilationError when it cannot be compiled, ValueError for
    options that make no sense.
    """
    if weights not in ("inside", "reference"):
        raise ValueError(f'aot_compile: weights is "inside" or "reference", not {weights!r}')
    if weights == "inside" and weights_path is not None:
        raise ValueError('aot_compile: weights_path goes with weights="reference"')
    file = Path(path)
    with torch.no_grad():
        draft = _Draft(on_device(exported_program), buckets, model_name, target or present_target())
        contents = draft.compile()
    stored = Path(weights_path) if weights_path is not None else file.with_suffix(".safetensors")
    entries, manifest = draft.finish(contents, stored if weights == "reference" else None, file.parent)
    archive.write(file, {archive.MANIFEST: manifest.encode(), **entries})
    sizes = tuple(p.sizes for p in manifest.programs)
    compiled = manifest.fingerprint is not None
    return BundleInfo(file, manifest.target, manifest.sizing, sizes, compiled, draft.exact_because)


class _Described(Exception):
    """Stops a call when it is known what it looks like to the core."""

    def __init__(self, key: str, call: Call) -> None:
        self.key, self.call = key, call


def _describe(key: str, call: Call, device: int) -> Obtained:
    raise _Described(key, call)


class _Draft:
    """One bundle in the making."""

    def __init__(self, exported: ExportedProgram, buckets: Any, name: str, target: str) -> None:
        self.exported, self.buckets = exported, buckets
        self.exact_because: str | None = 'buckets="exact"' if buckets == "exact" else None
        self.graph: Graph = graph_of(exported)
        self.compiler, obstacle = compiler_of(target)
        if self.compiler is None:
            warnings.warn(
                f"aot_compile: the programs for target {target!r} stay StableHLO, because {obstacle}. "
                "They are compiled where the bundle is loaded.",
                RuntimeWarning,
                stacklevel=4,
            )
        names = argument_names(exported)
        described, numbers, self.tensors = weight_file.describe(self.graph.weights, exported.state_dict)
        self.manifest = self._manifest(name, target, names, described, numbers)

    def _manifest(
        self, name: str, target: str, names: list[str], described: list[Weight], numbers: list[int]
    ) -> Manifest:
        graph, exported = self.graph, self.exported
        in_spec = exported.call_spec.in_spec
        out_spec = exported.call_spec.out_spec
        assert in_spec is not None and out_spec is not None
        called = leaf_names(in_spec, names)
        leaves = [_leaf(n, value) for n, value in zip(called, graph.leaves, strict=True)]
        symbols = self._symbols(leaves, exact=self.buckets == "exact")
        position = dict(zip(graph.weights, numbers, strict=True))
        placeholders = tuple((k, position[v] if k == "weight" else v) for k, v in graph.sources)
        outputs = tuple(_output(kind, v, graph) for kind, v in graph.outputs)
        return Manifest(
            name=name,
            target=target,
            fingerprint=self.compiler.fingerprint if self.compiler else None,
            versions={
                "torchneuron": torch_neuronx.__version__,
                "torch": torch.__version__,
                "jaxlib": jaxlib.__version__,
            },
            sizing="static" if not symbols else "exact" if self.buckets == "exact" else "padded",
            random=is_random(graph.module),
            in_spec=trees.dumps(in_spec, "arguments"),
            out_spec=trees.dumps(out_spec, "results"),
            argument_names=tuple(names),
            leaves=tuple(leaves),
            outputs=outputs,
            results=sum(o.kind == "result" for o in outputs),
            placeholders=placeholders,
            written=written_positions(graph.module.graph),
            symbols=tuple(symbols),
            guards=tuple(self._guards(leaves, symbols)),
            weights=tuple(described),
            weights_file=None,
            weights_sha256="0" * 64,
            programs=(),
        )

    def _guards(self, leaves: list[Leaf], symbols: list[Symbol]) -> list[Any]:
        known = {s.name for s in symbols}
        by_name = {leaf.name: leaf for leaf in leaves}

        def size(name: str, dim: int | None) -> Any:
            leaf = by_name.get(name)
            if leaf is None or (dim is not None and dim >= len(leaf.shape)):
                raise expressions.NotExpressible(f"a condition on {name}")
            return leaf.value if dim is None else leaf.shape[dim]

        found: list[Any] = []
        unknown: list[str] = []
        for text in getattr(self.exported, "_guards_code", None) or []:
            try:
                found.append(expressions.from_python(text, size))
                expressions.check(found[-1], known)
            except (expressions.NotExpressible, ValueError, SyntaxError):
                unknown.append(text)
        for condition in self.graph.assertions:
            text = str(condition)
            try:
                found.append(expressions.from_condition(condition))
                expressions.check(found[-1], known)
            except (expressions.NotExpressible, ValueError):
                unknown.append(text)
        if unknown:
            raise BundleError(f"the exported program requires {unknown[0]}, which a bundle cannot check")
        return [x for i, x in enumerate(found) if x not in found[:i]]

    def compile(self) -> dict[str, bytes]:
        """The programs' files; fills in the manifest."""
        if self.manifest.sizing == "padded":
            try:
                return self._programs(self._varying())
            except NeedsExact as reason:
                self.exact_because = str(reason)
                symbols = tuple(self._symbols(self.manifest.leaves, exact=True))
                self.manifest = replace(self.manifest, sizing="exact", symbols=symbols)
        return self._programs(None)

    def _varying(self) -> Varying:
        varying = Varying(self.graph.module, (), Aliases(self.graph.module))
        if (obstacle := varying.obstacle()) is not None:
            raise NeedsExact(obstacle)
        if set(varying.entering) & set(self.manifest.written):
            raise NeedsExact("a write to an input of varying size")
        if list(varying.sources) != [s.name for s in self.manifest.symbols]:
            raise NeedsExact(f"the sizes {[s.name for s in self.manifest.symbols]}, which no dimension is by itself")
        return varying

    def _symbols(self, leaves: Sequence[Leaf], *, exact: bool) -> list[Symbol]:
        buckets = sizing.check_buckets(self.buckets, leaves)
        ranges = sizing.ranges_of(self.exported)
        return sizing.symbols_of(leaves, self.graph.leaves, ranges, buckets, self.exact_because if exact else None)

    def _programs(self, varying: Varying | None) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        programs: list[Program] = []
        self.runner = Runner(self.manifest, _describe)
        for sizes in sizing.combinations(self.manifest.symbols):
            if not self._allowed(sizes):
                continue
            key, call = self._described(sizes)
            try:
                data = encode(self._container(call, sizes, varying))
            except (NodeFailed, executables.LoweringFailed, Unsupported) as error:
                at_sizes = f" for sizes {sizes}" if sizes else ""
                raise CompilationError(f"aot_compile: the program cannot be compiled{at_sizes}: {error}") from error
            file = archive.program_name(len(programs))
            files[file] = data
            programs.append(Program(key, sizes, file, hashlib.sha256(data).hexdigest()))
        if not programs:
            raise BundleError("no size that buckets names fulfils the exported program's conditions")
        self.manifest = replace(self.manifest, programs=tuple(programs))
        return files

    def _allowed(self, sizes: Mapping[str, int]) -> bool:
        """Whether a program for just these sizes has a use."""
        if self.manifest.sizing != "exact":
            return True
        return all(expressions.evaluate(g, sizes) for g in self.manifest.guards)

    def _described(self, sizes: dict[str, int]) -> tuple[str, Call]:
        """The key and the call of arguments of these sizes."""
        leaves = self.manifest.leaves
        sources = self.manifest.placeholders
        arguments = [self.tensors[i] if k == "weight" else _example(leaves[i], sizes) for k, i in sources]
        try:
            self.runner.run(arguments, sizes, sizes)
        except _Described as described:
            return described.key, described.call
        raise RuntimeError("the core ran a graph that has no executable")

    def _container(self, call: Call, sizes: dict[str, int], varying: Varying | None) -> Container:
        lowered = self._lower(call, sizes, varying)
        return executables.container_of(executables.program_source(self.manifest.name, lowered), self.compiler)

    def _lower(self, call: Call, sizes: dict[str, int], varying: Varying | None) -> Lowered:
        if varying is None:
            return lower_graph(self.graph.module, call)
        traced, _ = varying.request(call.args)
        request = Request(
            bounds=tuple((name, sizes[name]) for name, _ in traced.bounds),
            symbols=traced.symbols,
            entering=traced.entering,
            orders=traced.orders,
            aliases=(),
            writes=(),
        )
        return lower_padded(self.graph.module, varying.canonical(call), request)

    def finish(
        self, programs: dict[str, bytes], reference: Path | None, folder: Path
    ) -> tuple[dict[str, bytes], Manifest]:
        """All entries but the manifest, and the manifest."""
        described = self.manifest.weights
        if reference is None:
            data = weight_file.encode(described, self.tensors)
            digest = hashlib.sha256(data).hexdigest()
            return {archive.WEIGHTS: data, **programs}, replace(self.manifest, weights_sha256=digest)
        digest = weight_file.refer(reference, described, self.tensors)
        named = os.path.relpath(reference, folder)
        return programs, replace(self.manifest, weights_file=named, weights_sha256=digest)


def _versions() -> dict[str, str]:
    return {"torchneuron": torch_neuronx.__version__, "torch": torch.__version__, "jaxlib": jaxlib.__version__}


def _example(leaf: Leaf, sizes: Mapping[str, int]) -> Any:
    if leaf.kind == "integer":
        return int(expressions.evaluate(leaf.value, sizes))
    shape = at(leaf.shape, sizes)
    zeros = torch.zeros(shape, dtype=leaf.dtype)
    if leaf.device == "cpu" and not shape:
        return zeros
    return fresh(zeros, strides_of(leaf, shape, sizes), torch.device("neuron", 0))


def _leaf(name: str, traced: Any) -> Leaf:
    if isinstance(traced, torch.SymInt):
        return Leaf(name, "integer", value=sizing.size(traced))
    if not isinstance(traced, torch.Tensor):
        if traced is not None and not isinstance(traced, (bool, int, float, str)):
            raise BundleError(f"the argument {name} is a {type(traced).__name__}, which has no form in a bundle")
        return Leaf(name, "constant", value=traced)
    shape, stride = (tuple(sizing.size(n) for n in x) for x in (traced.shape, traced.stride()))
    return Leaf(name, "tensor", traced.dtype, traced.device.type, shape, stride)


def _output(kind: str, value: Any, graph: Graph) -> Output:
    if kind == "input":
        return Output("input", value)
    if kind == "size":
        return Output("integer", value=sizing.size(value))
    if kind == "constant":
        return Output("constant", value=value)
    traced = output_nodes(graph.module.graph)[value].meta["val"]
    shape, stride = (tuple(sizing.size(n) for n in x) for x in (traced.shape, traced.stride()))
    if all(isinstance(n, int) for n in shape):
        return Output("result", value, device=traced.device.type)
    return Output("result", value, device=traced.device.type, shape=shape, stride=stride)
