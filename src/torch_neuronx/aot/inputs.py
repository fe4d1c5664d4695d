"""The arguments of a call: put in order, checked leaf by leaf, and the sizes that vary found in them."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_neuronx.aot.manifest import Leaf, Manifest, Symbol
from torch_neuronx.lowering.expressions import Expression, evaluate, to_text


class Inputs:
    """What a loaded program takes. Every error names the argument."""

    def __init__(self, manifest: Manifest, in_spec: pytree.TreeSpec, device: torch.device) -> None:
        self.manifest, self.spec, self.device = manifest, in_spec, device
        args, kwargs = in_spec.children()
        self.positional: int = args.num_children
        self.keywords: list[str] = list(kwargs.context)
        self._children = [*args.children(), *kwargs.children()]
        self.names = [*manifest.argument_names[: self.positional], *self.keywords]

    def leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The leaves in order. Raises TypeError for a missing, unexpected or differently built argument."""
        given = self._bound(args, kwargs)
        out: list[Any] = []
        for name, value, spec in zip(self.names, given, self._children, strict=True):
            found, structure = pytree.tree_flatten(value)
            if structure != spec:
                raise TypeError(
                    f"{self._program}: the argument {name} is built as {_describe(structure)}, the program was "
                    f"exported with {_describe(spec)}"
                )
            out += found
        return out

    @property
    def _program(self) -> str:
        return self.manifest.name

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        takes = f"It takes {', '.join(self.names) or 'nothing'}."
        if len(args) > self.positional:
            raise TypeError(
                f"{self._program} takes {self.positional} positional arguments and was given {len(args)}. {takes}"
            )
        found = dict(zip(self.names, args, strict=False))
        for name, value in kwargs.items():
            if name not in self.names:
                raise TypeError(f"{self._program} takes no argument {name!r}. {takes}")
            if name in found:
                raise TypeError(f"{self._program} was given the argument {name} twice")
            found[name] = value
        missing = [n for n in self.names if n not in found]
        if missing:
            raise TypeError(f"{self._program} needs the argument {missing[0]}. {takes}")
        return [found[n] for n in self.names]

    def sizes(self, leaves: Sequence[Any]) -> dict[str, int]:
        """The sizes that vary. Raises TypeError for a wrong kind or dtype, ValueError for a device, rank or size."""
        for leaf, x in zip(self.manifest.leaves, leaves, strict=True):
            self._check_kind(leaf, x)
        sizes = {s.name: self._solve(s, leaves[s.leaf]) for s in self.manifest.symbols}
        for leaf, x in zip(self.manifest.leaves, leaves, strict=True):
            if leaf.kind == "tensor":
                for d, (wanted, n) in enumerate(zip(leaf.shape, x.shape, strict=True)):
                    self._equal(f"dimension {d} of {leaf.name}", wanted, int(n), sizes)
            elif leaf.kind == "integer":
                self._equal(leaf.name, leaf.value, x, sizes)
        for guard in self.manifest.guards:
            if not evaluate(guard, sizes):
                raise ValueError(
                    f"{self._program} was exported for sizes with {to_text(guard)}; here {self._where(sizes)}"
                )
        return sizes

    def _check_kind(self, leaf: Leaf, x: Any) -> None:
        if leaf.kind == "integer":
            if not isinstance(x, int) or isinstance(x, bool):
                raise TypeError(f"{self._program}: {leaf.name} must be an integer, not a {type(x).__name__}")
            return
        if leaf.kind == "constant":
            if type(x) is not type(leaf.value) or x != leaf.value:
                raise ValueError(
                    f"{self._program}: {leaf.name} was exported as {leaf.value!r} and can be nothing else, "
                    f"not {str(x)[:80]}"
                )
            return
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{self._program}: {leaf.name} must be a tensor, not a {type(x).__name__}")
        if x.dtype != leaf.dtype:
            raise TypeError(f"{self._program}: {leaf.name} must have dtype {leaf.dtype}, not {x.dtype}")
        if x.layout != torch.strided:
            raise TypeError(f"{self._program}: {leaf.name} must be a dense tensor, not one of layout {x.layout}")
        wanted = torch.device("cpu") if leaf.device == "cpu" else self.device
        if x.device != wanted:
            raise ValueError(
                f"{self._program}: {leaf.name} must be on {wanted}, not {x.device}. Move it with .to('{wanted}')."
            )
        if x.ndim != len(leaf.shape):
            shape = ", ".join(to_text(n) for n in leaf.shape)
            raise ValueError(
                f"{self._program}: {leaf.name} must have {len(leaf.shape)} dimensions, [{shape}], not {x.ndim} as in "
                f"{list(x.shape)}"
            )

    def _solve(self, s: Symbol, x: Any) -> int:
        n = int(x) if s.dim is None else int(x.shape[s.dim])
        value, rest = divmod(n - s.offset, s.scale)
        where = self._place(s)
        if rest:
            raise ValueError(f"{self._program}: {where} must be {self._formula(s)}, which {n} is not")
        if not s.least <= value <= s.most:
            low, high = (s.scale * v + s.offset for v in (s.least, s.most))
            raise ValueError(f"{self._program}: {where} must be from {low} to {high}, not {n}")
        return value

    def _place(self, s: Symbol) -> str:
        name = self.manifest.leaves[s.leaf].name
        return name if s.dim is None else f"dimension {s.dim} of {name}"

    def _formula(self, s: Symbol) -> str:
        return f"{s.scale} * n" + (f" + {s.offset}" if s.offset else "")

    def _equal(self, where: str, wanted: Expression, n: int, sizes: Mapping[str, int]) -> None:
        value = evaluate(wanted, sizes)
        if value != n:
            why = "" if isinstance(wanted, int) else f" ({to_text(wanted)} with {self._where(sizes)})"
            raise ValueError(f"{self._program}: {where} must be {value}{why}, not {n}")

    def _where(self, sizes: Mapping[str, int]) -> str:
        found = [f"{s.name} = {sizes[s.name]} by {self._place(s)}" for s in self.manifest.symbols]
        return ", ".join(found)

    def bounds(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes of the program that serves these. Raises ValueError when there is none."""
        out = {}
        for s in self.manifest.symbols:
            k = bisect.bisect_left(s.served, sizes[s.name])
            exact = self.manifest.sizing == "exact"
            if k == len(s.served) or (exact and s.served[k] != sizes[s.name]):
                shown = ", ".join(str(s.scale * n + s.offset) for n in s.served)
                n = s.scale * sizes[s.name] + s.offset
                kind = "exactly the sizes" if exact else "sizes up to"
                raise ValueError(
                    f"{self._program}: {self._place(s)} is {n}, and this bundle has programs for {kind} {shown}. "
                    "Compile it with buckets that hold this size."
                )
            out[s.name] = s.served[k]
        return out


def _describe(spec: pytree.TreeSpec) -> str:
    if spec.is_leaf():
        return "one value"
    kind = getattr(spec.type, "__name__", str(spec.type))
    keys = f" with keys {spec.context}" if spec.type is dict else f" of {spec.num_children}"
    return kind + keys
