"""load: a bundle becomes a callable."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from torch_neuronx.aot import archive, trees, weight_file
from torch_neuronx.aot.errors import BundleError
from torch_neuronx.aot.faces import check_program, interface_of
from torch_neuronx.aot.inputs import Inputs
from torch_neuronx.aot.manifest import Manifest, Output, Program
from torch_neuronx.aot.manifest_reader import decode
from torch_neuronx.aot.runner import OtherCall, Runner, canonical, fresh, strides_of
from torch_neuronx.compiler import container, executables, residents
from torch_neuronx.compiler.executables import Obtained
from torch_neuronx.dynamo import metrics
from torch_neuronx.lowering.call import Lowered
from torch_neuronx.lowering.expressions import evaluate
from torch_neuronx.lowering.module import Built
from torch_neuronx.lowering.spec import Call, Result
from torch_neuronx.runtime.targets import runtime


def load(
    path: str | os.PathLike[str],
    *,
    device: str | torch.device | int | None = None,
    weights_path: str | os.PathLike[str] | None = None,
    recompile: bool = False,
) -> LoadedProgram:
    """The program in a bundle that aot_compile wrote, ready to be called.

    device        where it runs and where its inputs must be; by default the current neuron device
    weights_path  the file with the weights, when they are not inside and not where they were
    recompile     compile the StableHLO here instead of running the machine code in the file, which is as much to be
                  trusted as whoever wrote it

    Executables for another target or processor are compiled anew from StableHLO, with a warning. Raises BundleError
    for a file that is damaged, is no bundle, or does not fit together.
    """
    file = Path(path)
    entries = archive.read(file)
    manifest = decode(entries[archive.MANIFEST], str(file))
    place = _device(device)
    programs = _programs(file, manifest, entries)
    tensors = weight_file.decode(*_weights(file, manifest, entries, weights_path), manifest.weights, place)
    return LoadedProgram(file, manifest, programs, tensors, place, recompile=recompile)


def _device(device: str | torch.device | int | None) -> torch.device:
    if device is None or device == "neuron":
        device = torch.neuron.current_device()  # type: ignore[attr-defined]
    place = torch.device("neuron", device) if isinstance(device, int) else torch.device(device)
    if place.type != "neuron":
        raise ValueError(f"a bundle runs on neuron, not on {place}")
    return torch.device("neuron", place.index or 0)


def _programs(path: Path, manifest: Manifest, entries: Mapping[str, bytes]) -> dict[str, tuple[Program, bytes]]:
    found = {}
    for p in manifest.programs:
        data = entries.get(p.file)
        if data is None or p.file in (archive.MANIFEST, archive.WEIGHTS):
            raise BundleError(f"{path} has no program {p.file[:80]!r}, which its manifest names")
        if hashlib.sha256(data).hexdigest() != p.sha256:
            raise BundleError(f"{path}: the checksum of {p.file} does not match. Copy or write the bundle again.")
        if p.call in found:
            raise BundleError(f"{path} has two programs for one call")
        found[p.call] = (p, data)
    return found


def _weights(
    path: Path, manifest: Manifest, entries: Mapping[str, bytes], chosen: str | os.PathLike[str] | None
) -> tuple[bytes, str]:
    if manifest.weights_file is None:
        if chosen is not None:
            raise ValueError(f"{path} has its weights inside, so load() takes no weights_path for it")
        data, name = entries.get(archive.WEIGHTS), f"{path}: {archive.WEIGHTS}"
        if data is None:
            raise BundleError(f"{path} has no {archive.WEIGHTS}, and refers to no file")
    else:
        file = Path(chosen) if chosen is not None else path.parent / manifest.weights_file
        name = str(file)
        if file.exists() and not file.is_file():
            raise BundleError(f"{path} refers to {file} for its weights, which is not a file")
        try:
            data = file.read_bytes()
        except OSError as error:
            raise BundleError(
                f"{path} has its weights in {file}, which cannot be read ({error.strerror}). Put it there, or pass "
                "weights_path."
            ) from error
    if hashlib.sha256(data).hexdigest() != manifest.weights_sha256:
        raise BundleError(f"{name} does not have the checksum that {path} was written with: these are other weights")
    return data, name


class LoadedProgram:
    """A program that is called as the exported model was: same arguments, same structure of results.

    Buffers that it changes keep their values from call to call. Gradients do not flow through it.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        programs: dict[str, tuple[Program, bytes]],
        tensors: list[torch.Tensor],
        device: torch.device,
        *,
        recompile: bool,
    ) -> None:
        self.path, self.device, self._manifest = path, device, manifest
        self._programs, self._tensors, self._recompile = programs, tensors, recompile
        in_spec = trees.loads(manifest.in_spec, f"arguments of {path}")
        self._out_spec = trees.loads(manifest.out_spec, f"results of {path}")
        if not _is_arguments(in_spec) or in_spec.num_leaves != len(manifest.leaves):
            raise BundleError(f"{path}: its arguments have another structure than leaves")
        if self._out_spec.num_leaves != len(manifest.outputs):
            raise BundleError(f"{path}: its results have another structure than leaves")
        self._inputs = Inputs(manifest, in_spec, device)
        self._runner = Runner(manifest, self._find)
        self._known: dict[str, Obtained] = {}
        self.metrics = metrics.record(metrics.GraphMetrics(manifest.name, "bundle", 0))
        if manifest.fingerprint != runtime().fingerprint and not recompile:
            self._warn_of_target()

    def _warn_of_target(self) -> None:
        made = "holds no executables" if self._manifest.fingerprint is None else "was compiled for another processor"
        warnings.warn(
            f"{self.path} {made} (target {self._manifest.target}, {self._manifest.fingerprint}; this is "
            f"{runtime().fingerprint}): its programs are compiled here, from their StableHLO, when first called.",
            RuntimeWarning,
            stacklevel=4,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises TypeError or ValueError, with the argument's name, for what the program does not take."""
        leaves = self._inputs.leaves(args, kwargs)
        sizes = self._inputs.sizes(leaves)
        bounds = self._inputs.bounds(sizes)
        with torch.no_grad():
            returned = self._run(leaves, sizes, bounds)
        return torch.utils._pytree.tree_unflatten(returned, self._out_spec)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The weights and buffers as they are now; writing to one changes what the program computes."""
        return {name: t for w, t in zip(self._manifest.weights, self._tensors, strict=True) for name in w.names}

    def __repr__(self) -> str:
        return f"<{self._manifest.name} from {self.path}: {', '.join(self._inputs.names)}>"

    def _run(self, leaves: list[Any], sizes: dict[str, int], bounds: dict[str, int]) -> list[Any]:
        args = [self._argument(kind, i, leaves, sizes) for kind, i in self._manifest.placeholders]
        try:
            results = self._runner.run(args, sizes, bounds)
        except OtherCall:
            args = self._apart(args)
            try:
                results = self._runner.run(args, sizes, bounds)
            except OtherCall:
                raise BundleError(
                    f"{self.path} was made by torchneuron {self._manifest.versions.get('torchneuron')}, whose programs "
                    "are called in another way. Write it again with aot_compile."
                ) from None
        for position in self._manifest.written:
            kind, i = self._manifest.placeholders[position]
            if kind == "leaf" and args[position] is not leaves[i]:
                leaves[i].detach().copy_(args[position])
        return [self._output(o, results, leaves, sizes) for o in self._manifest.outputs]

    def _argument(self, kind: str, i: int, leaves: list[Any], sizes: dict[str, int]) -> Any:
        if kind == "weight":
            return self._tensors[i]
        leaf, x = self._manifest.leaves[i], leaves[i]
        if leaf.kind == "integer":
            return int(x)
        strides = strides_of(leaf, tuple(x.shape), sizes)
        if x.device.type != "cpu":
            return canonical(x, strides)
        return fresh(x, strides, self.device) if x.ndim else x.detach()

    def _apart(self, args: list[Any]) -> list[Any]:
        """Every input in memory of its own: they may have shared it, or nothing was written to it yet."""
        out = list(args)
        for position, (kind, _) in enumerate(self._manifest.placeholders):
            x = args[position]
            if kind == "leaf" and isinstance(x, torch.Tensor) and x.device.type != "cpu":
                out[position] = fresh(x, x.stride())
        return out

    def _output(self, o: Output, results: list[Any], leaves: list[Any], sizes: dict[str, int]) -> Any:
        if o.kind == "result":
            return results[o.index].cpu() if o.device == "cpu" else results[o.index]
        if o.kind == "input":
            return leaves[o.index]
        return int(evaluate(o.value, sizes)) if o.kind == "integer" else o.value

    def _find(self, key: str, call: Call, device: int) -> Obtained:
        """The executable of a call, from the bundle or compiled from what is in it."""
        if key not in self._programs:
            raise OtherCall
        if key not in self._known:
            with metrics.measured(self.metrics):
                self._known[key] = self._obtain(*self._programs[key], device)
        return self._known[key]

    def _obtain(self, program: Program, data: bytes, device: int) -> Obtained:
        where = f"{self.path}: {program.file}"
        try:
            held = container.decode(data)
        except container.CorruptFile as corrupt:
            raise BundleError(f"{where} cannot be used: {corrupt.reason}") from corrupt
        face = interface_of(held.header.interface, self._manifest, program.sizes, where)
        if held.executable and not self._recompile and held.header.fingerprint == runtime().fingerprint:
            residents.one_more()
            try:
                return executables.loaded(held.executable, face, device)
            except Exception as error:  # noqa: BLE001 - whatever the engine says, there is the StableHLO
                warnings.warn(f"{where}: the engine refused its executable ({error}).", RuntimeWarning, stacklevel=2)
        check_program(held.program, face, where)
        built = Built(held.program, lambda: "", face.checks, face.rng_blocks)
        results = tuple(Result(r.kind, r.dtype, r.layout, r.slot) for r in face.results)
        lowered = Lowered(built, results, face.returns)
        try:
            return executables.obtain(executables.program_source(self._manifest.name, lowered), device)
        except Exception as error:
            raise BundleError(f"{where} cannot be compiled for this target: {error}") from error


def _is_arguments(spec: Any) -> bool:
    children = spec.children()
    return len(children) == 2 and spec.type is tuple and children[0].type is tuple and children[1].type is dict
