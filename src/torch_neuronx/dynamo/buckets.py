"""Varying sizes of a graph: what they are in a call, what they are padded to, and the arguments that go with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from torch_neuronx import _C
from torch_neuronx.compiler.executables import Interface, Obtained
from torch_neuronx.dynamo.aliases import Aliases
from torch_neuronx.lowering.expressions import evaluate
from torch_neuronx.lowering.graph import output_nodes, written_positions
from torch_neuronx.lowering.padded import data_sizes
from torch_neuronx.lowering.padded.graph import Entering, Request
from torch_neuronx.lowering.padded.ladder import ladder
from torch_neuronx.lowering.padded.poison import poisoned
from torch_neuronx.lowering.padded.sizes import NeedsExact, symbolic_in
from torch_neuronx.lowering.spec import Call
from torch_neuronx.lowering.views import Layout, contiguous_strides, packed


@dataclass(frozen=True)
class _Source:
    """Where a symbol's size is found: an input's dimension, or an input that is a number."""

    position: int
    dim: int | None


class Varying:
    """The symbols of one graph."""

    def __init__(
        self,
        module: fx.GraphModule,
        buckets: tuple[int, ...],
        aliases: Aliases,
        saved: frozenset[int] = frozenset(),
        backward: bool = False,
    ) -> None:
        """`saved` are outputs that only this graph's backward sees."""
        self.module, self.buckets, self.aliases = module, buckets, aliases
        self.placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        self.sources: dict[str, _Source] = {}
        self.symbols: dict[str, Any] = {}
        self.limits: dict[str, int] = {}
        for i, node in enumerate(self.placeholders):
            self._find(i, node.meta.get("val"))
        self.written = written_positions(module.graph)
        roots = {root for root, _ in aliases.of_outputs.values()}
        views = {*aliases.of_inputs, *aliases.of_outputs}
        told = set(self.symbols.values())
        self.of_data = frozenset(
            k
            for k, n in enumerate(output_nodes(module.graph))
            if isinstance(n, fx.Node) and not data_sizes.symbols_in(n.meta.get("val")) <= told
        )
        nodes = output_nodes(module.graph)
        self.numbers_of_data = [k for k in self.of_data if isinstance(nodes[k].meta["val"], torch.SymInt)]
        self.kept = tuple(k for k, _ in self._varying_outputs() if k in saved and k not in roots | views | self.of_data)
        self.entering = tuple(i for i, n in enumerate(self.placeholders) if _is_symbolic(n.meta.get("val")))
        # Of others a size that is a bucket itself would ask for a program of its own.
        self.may_lie = frozenset(
            i
            for i in self.entering
            if _grows_outermost(self.placeholders[i].meta["val"]) or (backward and _is_saved(self.placeholders[i]))
        )

    def _find(self, position: int, traced: Any) -> None:
        sizes = enumerate(traced.shape) if isinstance(traced, torch.Tensor) else [(None, traced)]
        for dim, size in sizes:
            if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                name = str(size.node.expr)
                self.sources.setdefault(name, _Source(position, dim))
                self.symbols[name] = size.node.expr
                upper = size.node.shape_env.var_to_range[size.node.expr].upper
                if upper.is_Integer and int(upper) < 1 << 40:
                    self.limits[name] = int(upper)

    @property
    def writes(self) -> tuple[int, ...]:
        """The written inputs whose sizes vary: programs return their values, and `written_back` copies them."""
        return tuple(i for i in self.written if i in self.entering)

    def written_back(self, args: list[Any], out: list[Any]) -> list[Any]:
        """The graph's own outputs, after the values behind them went to the inputs they belong to."""
        first = len(out) - len(self.writes)
        with torch.no_grad():
            for i, value in zip(self.writes, out[first:], strict=True):
                args[i].copy_(value)
        return out[:first]

    @property
    def extra(self) -> int:
        """How many arguments follow the graph's own: sizes, strides, and one for how inputs are read."""
        return len(self.sources) + sum(self.placeholders[i].meta["val"].ndim for i in self.entering) + 1

    def obstacle(self) -> str | None:
        """Why this graph can only be compiled for exact sizes, as far as that shows before it is lowered."""
        free = {str(s) for n in self.placeholders for s in data_sizes.symbols_in(n.meta.get("val"))}
        if not free <= self.sources.keys():
            return f"no input tells the sizes {sorted(free - self.sources.keys())}"
        return None

    def sizes(self, args: list[Any]) -> dict[str, int]:
        return {
            name: int(args[s.position]) if s.dim is None else int(args[s.position].shape[s.dim])
            for name, s in self.sources.items()
        }

    def bounds(self, sizes: dict[str, int]) -> dict[str, int]:
        found = {name: ladder(n, self.buckets) for name, n in sizes.items()}
        return {name: max(min(b, self.limits.get(name, b)), sizes[name]) for name, b in found.items()}

    def arguments(self, args: list[Any]) -> list[Any]:
        """The arguments of the padded program: inputs in storages of their largest size, then sizes and strides."""
        sizes = self.sizes(args)
        exact, bounds = self._symbols(sizes), self._symbols(self.bounds(sizes))
        poison = poisoned()
        out, strides, forms = list(args), [], 0
        for k, i in enumerate(self.entering):
            traced = self.placeholders[i].meta["val"]
            out[i] = _C.with_capacity(args[i].detach(), math.prod(_at(n, bounds) for n in traced.shape), poison)
            strides += out[i].stride()
            if i in self.may_lie:
                forms |= _lies(out[i], self._padded(self.placeholders[i], exact, bounds)) << k
        return [*out, *sizes.values(), *strides, forms]

    def _symbols(self, numbers: dict[str, int]) -> dict[Any, int]:
        return {self.symbols[name]: n for name, n in numbers.items()}

    def sizes_of(self, args: tuple[Any, ...]) -> dict[str, int]:
        """The sizes of a call whose arguments `args` describe."""
        return {
            name: int(args[s.position]) if s.dim is None else args[s.position].layout.sizes[s.dim]
            for name, s in self.sources.items()
        }

    def numbers(self, args: tuple[Any, ...]) -> dict[int, int]:
        """The sizes and strides that follow a graph's own arguments, by position. `args` describe a call."""
        strides = [n for i in self.entering for n in args[i].layout.strides]
        return dict(enumerate((*self.sizes_of(args).values(), *strides), start=len(self.placeholders)))

    def request(self, args: tuple[Any, ...]) -> tuple[Request, dict[Any, int]]:
        """What the program of such a call serves, and the sizes of this call. `args` describe its arguments."""
        found = self.sizes_of(args)
        exact = self._symbols(found)
        first = len(self.placeholders)
        at, forms = first + len(self.sources), args[-1]
        entering = []
        for k, i in enumerate(self.entering):
            ndim = self.placeholders[i].meta["val"].ndim
            order = tuple(self._layout(self.placeholders[i], exact).order)
            entering.append((i, Entering(None, order) if forms >> k & 1 else Entering(tuple(range(at, at + ndim)))))
            at += ndim
        return (
            Request(
                tuple(self.bounds(found).items()),
                tuple((name, first + k) for k, name in enumerate(self.sources)),
                tuple(entering),
                tuple((k, self._order(k, n, exact)) for k, n in self._varying_outputs()),
                tuple(sorted({*self.aliases.of_inputs, *self.aliases.of_outputs})),
                tuple((i, tuple(self._layout(self.placeholders[i], exact).order)) for i in self.writes),
                self.kept,
            ),
            exact,
        )

    def _order(self, k: int, node: fx.Node, exact: dict[Any, int]) -> tuple[int, ...]:
        return tuple(range(node.meta["val"].ndim) if k in self.of_data else self._layout(node, exact).order)

    def next_bucket(self, call: Call, request: Request, grown: str) -> tuple[Call, Request] | None:
        """A canonical call and its request as of the bucket that follows in one symbol; None at the symbol's limit."""
        bounds = dict(request.bounds)
        after = ladder(bounds[grown] + 1, self.buckets)
        larger = bounds | {grown: max(min(after, self.limits.get(grown, after)), bounds[grown])}
        if larger == bounds:
            return None
        slots = list(call.slots)
        at = {self.symbols[name]: b for name, b in larger.items()}
        for i in self.entering:
            where = call.args[i].slot
            slots[where] = replace(
                slots[where], numel=math.prod(_at(n, at) for n in self.placeholders[i].meta["val"].shape)
            )
        return replace(call, slots=tuple(slots)), replace(request, bounds=tuple(larger.items()))

    def canonical(self, call: Call) -> Call:
        """The call without what differs between the sizes that one program serves."""
        args = list(call.args)
        for i in self.entering:
            args[i] = replace(args[i], layout=Layout((), ()), fits=False)
        for i, node in enumerate(self.placeholders):
            if isinstance(node.meta.get("val"), torch.SymInt):
                args[i] = None  # the program computes it from the symbols
        return replace(call, args=tuple(args))

    def at_sizes(self, obtained: Obtained, exact: dict[Any, int]) -> Obtained:
        """The program with the layouts its results have in a call of these sizes."""
        face = obtained.interface
        results, returns = list(face.results), list(face.returns)
        for k, node in enumerate(output_nodes(self.module.graph)):
            if isinstance(returns[k], tuple) and returns[k][0] == "integer":
                returns[k] = ("integer", _at(node.meta["val"] if isinstance(node, fx.Node) else node, exact))
        bounds = self._symbols(self.bounds({str(symbol): n for symbol, n in exact.items()}))
        for k, node in self._varying_outputs():
            kind, index = (returns[k] or (None, 0))[:2]
            if k in self.of_data:
                results[index] = replace(results[index], layout=self._room(node, exact, results[index].storage_numel))
                continue
            layout = self._padded(node, exact, bounds) if k in self.kept else self._layout(node, exact)
            # less than that is what tracing takes for full: statistics of batch norm in eval mode
            if kind == "result" and layout.extent <= results[index].storage_numel:
                results[index] = replace(results[index], layout=layout)
        for i, (_, index) in zip(self.writes, returns[len(output_nodes(self.module.graph)) :], strict=True):
            results[index] = replace(results[index], layout=self._layout(self.placeholders[i], exact))
        for k, (root, window) in self.aliases.of_outputs.items():
            kind, index = returns[root][:2]
            returns[k] = ("view", kind, index, *window.at(exact))
        drawn = int(evaluate(face.rng_blocks, {str(symbol): n for symbol, n in exact.items()}))
        return Obtained(obtained.executable, Interface(tuple(results), tuple(returns), drawn, face.checks))

    def _varying_outputs(self) -> list[tuple[int, fx.Node]]:
        nodes = enumerate(output_nodes(self.module.graph))
        return [(k, n) for k, n in nodes if isinstance(n, fx.Node) and _is_symbolic(n.meta.get("val"))]

    def _layout(self, node: fx.Node, sizes: dict[Any, int]) -> Layout:
        traced = node.meta["val"]
        shape, strides = (tuple(_at(n, sizes) for n in x) for x in (traced.shape, traced.stride()))
        layout = Layout(shape, strides)
        return layout if layout.dense else without_holes(layout)

    def _room(self, node: fx.Node, exact: dict[Any, int], elements: int) -> Layout:
        """The layout of all rows there is room for; the core cuts it to those that there are."""
        if any(data_sizes.symbols_in(n) - exact.keys() for n in node.meta["val"].shape[1:]):
            raise NeedsExact("a result of which another dimension than the first depends on data")
        rest = tuple(_at(n, exact) for n in node.meta["val"].shape[1:])
        sizes = (elements // max(math.prod(rest), 1), *rest)
        return Layout(sizes, contiguous_strides(sizes))

    def _padded(self, node: fx.Node, exact: dict[Any, int], bounds: dict[Any, int]) -> Layout:
        """The layout of a tensor whose memory has room for its largest size in every dimension."""
        room = tuple(_at(n, bounds) for n in node.meta["val"].shape)
        layout = self._layout(node, exact)
        return Layout(layout.sizes, packed(room, layout.order))


def without_holes(layout: Layout) -> Layout:
    """Dense in the same order: most of these are saved for backward, where only the elements matter."""
    return Layout(layout.sizes, packed(layout.sizes, layout.order))


def _is_symbolic(traced: Any) -> bool:
    return isinstance(traced, torch.Tensor) and bool(symbolic_in(traced))


def _at(size: Any, symbols: dict[Any, int]) -> int:
    traced: Any = size
    return int(traced.node.expr.subs(symbols)) if isinstance(traced, torch.SymInt) else int(traced)


def _grows_outermost(traced: torch.Tensor) -> bool:
    """Whether memory is padded as it lies there: only the first dimension that is not 1 varies."""
    sizes: list[Any] = list(traced.shape)
    moving = [n for n in sizes if isinstance(n, torch.SymInt) or n != 1]
    return not any(isinstance(n, torch.SymInt) for n in moving[1:])


def _is_saved(placeholder: fx.Node) -> bool:
    """Whether an input of a backward graph is what forward made for it, by AOTAutograd's names."""
    return not str(placeholder.target).startswith(("primals", "tangents"))


def _lies(x: torch.Tensor, layout: Layout) -> bool:
    """Whether an input's memory is laid out so from its start."""
    steps = zip(x.shape, x.stride(), layout.strides, strict=True)
    return x.storage_offset() == 0 and all(n == 1 or mine == asked for n, mine, asked in steps)


def is_varying(module: fx.GraphModule) -> bool:
    return any(symbolic_in(n.meta.get("val")) for n in module.graph.nodes if n.op == "placeholder")
