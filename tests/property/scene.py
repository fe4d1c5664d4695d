"""What a generator of steps sees: the program's tensors on the CPU so far, and how to draw from them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from hypothesis import strategies as st

from tests.property import tensors
from tests.property.program import Program, Step, namespace, run, tensors_of

T = TypeVar("T")
MOST_TENSORS = 8

# Where the device does more than CPU torch on purpose: kernels that the CPU lacks, and writes over what is read.
_MORE_ON_THE_DEVICE = ("not implemented for", "some elements of the input tensor and the written-to tensor refer")

# What an extent of 1 or 0 of their results steps by is an accident of how the CPU finds them (for gradients: in which
# order they were added up).
_UNPROMISED_STRIDES = ("index", "vector_norm", "grad")


class NotApplicable(Exception):
    """The step drawn needs a tensor that is not there."""


class Unspecified(Exception):
    """What happened on the CPU is no promise: the program ends before this step."""


class Scene:
    """Draws, and remembers a program while it runs on the CPU."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.names = namespace("cpu")
        self.steps: list[Step] = []
        self.made = 0

    # What can be drawn

    def pick(self, options: Sequence[T]) -> T:
        if not options:
            raise NotApplicable
        return self.draw(st.sampled_from(options))

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) >= 100 - percent

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.names[name]

    def has(self, name: str) -> bool:
        """Whether an operand is a tensor, not a number."""
        return isinstance(self.names.get(name), torch.Tensor)

    def tensor(self, wanted: Callable[[torch.Tensor], bool] = lambda t: True) -> str:
        """The name of a live tensor, the latest first."""
        return self.pick([n for n, t in reversed(tensors_of(self.names).items()) if wanted(t)])

    def floating(self) -> str:
        return self.tensor(lambda t: t.is_floating_point())

    def target(self, wanted: Callable[[torch.Tensor], bool] = lambda t: True, *, plain: bool = False) -> str:
        """A tensor to write to; `plain`: one that no op refuses."""

        def good(t: torch.Tensor) -> bool:
            return wanted(t) and (not tensors.overlaps(t) or (tensors.refused_in_place(t) and not plain))

        return self.tensor(good)

    def beside(self, target: str, wanted: Callable[[torch.Tensor], bool] = lambda t: True) -> str:
        """A tensor in other memory than `target`."""
        cdata = self[target].untyped_storage()._cdata
        return self.tensor(lambda t: t.untyped_storage()._cdata != cdata and wanted(t))

    def number(self, *, whole: bool = False) -> str:
        numbers = ("1", "2", "0", "-1", "3", "True", "100", "-3", "300", "-200")
        return self.pick(numbers if whole else (*numbers, "0.5", "-2.5", "1.5", "-0.0", "0.1", "nan", "inf", "-1e3"))

    def dim(self, t: torch.Tensor) -> int:
        """Mostly a dimension that is there."""
        if self.chance(4):
            return self.pick((5, -5))
        n = max(t.dim(), 1)
        return self.integer(0, n - 1) - (n if self.chance(30) else 0)

    def dims(self, t: torch.Tensor) -> str:
        n = max(t.dim(), 1)
        chosen = self.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
        shifted = [d - n if self.chance(20) else d for d in chosen]
        return str(tuple(shifted)) if len(shifted) > 1 or self.chance(30) else str(shifted[0])

    def dtype(self) -> torch.dtype:
        return self.pick(tensors.RARE if self.chance(4) else tensors.DTYPES)

    def operand(self, like: str, *, numbers: bool = True, away: bool = False) -> str:
        """A number or a tensor, mostly one that broadcasts with `like`; `away`: not in its memory, unless the same."""
        if numbers and self.chance(25):
            return self.number()
        shape = self[like].shape
        cdata = self[like].untyped_storage()._cdata

        def good(t: torch.Tensor) -> bool:
            pairs = zip(reversed(t.shape), reversed(shape), strict=False)
            here = t.untyped_storage()._cdata == cdata and t is not self[like]
            return all(n == m or 1 in (n, m) for n, m in pairs) and not (away and here)

        if self.chance(4) and not away:
            return self.tensor()
        if self.chance(25):
            return self.start(self.pick([tuple(shape), tuple(shape[1:]), (*shape[:-1], 1)[: len(shape)], ()]))
        return self.tensor(good)

    def literal(self, shape: Sequence[int], dtype: torch.dtype, *, finite: bool = False) -> str:
        """torch.tensor(...) with drawn values; `finite`: such that a chain of functions stays tame."""
        count = 1
        for n in shape:
            count *= n
        pool = tensors.TAME if finite else tensors.values_of(dtype)
        values = self.draw(st.lists(st.sampled_from(pool), min_size=count, max_size=count))
        given = f"[{', '.join(values)}]" if shape else values[0]
        view = f".reshape({tuple(shape)})" if len(shape) > 1 else ""
        return f"torch.tensor({given}, dtype={dtype}, device=D){view}"

    def draw_mask(self, shape: Sequence[int]) -> str:
        return self.literal(shape, torch.bool)

    # What happens

    def start(
        self, shape: Sequence[int] | None = None, dtype: torch.dtype | None = None, *, finite: bool = False
    ) -> str:
        """A new tensor."""
        shape = self.pick(tensors.SHAPES) if shape is None else shape
        dtype = self.dtype() if dtype is None else dtype
        name = self.new_name()
        self.record(Step(f"{name} = {self.literal(shape, dtype, finite=finite)}", "tensor"))
        return name

    def new_name(self) -> str:
        self.made += 1
        return f"t{self.made - 1}"

    def record(self, step: Step) -> None:
        error = run(step.code, self.names)
        if error is not None:
            raise error
        self.steps.append(step)

    def do(self, code: str, op: str, precision: str = "exact", *, data: bool = False, statement: bool = False) -> None:
        """Runs a drawn line on the CPU and takes it into the program, with names for the tensors it makes.

        `data`: it may be refused because of values, when part of the work is done.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            error = run(code if statement else f"_ = {code}", self.names)
        made = [] if error is not None or statement else self._made(self.names.pop("_"))
        if len(made) > 3:
            code, made = f"({code})[-1]", made[-1:]
        if error is not None:
            if any(text in str(error) for text in _MORE_ON_THE_DEVICE):
                raise NotApplicable
        elif any(tensors.subnormal(t) for t in (*tensors_of(self.names).values(), *made)):
            raise Unspecified
        if op in _UNPROMISED_STRIDES and any(t.dim() > 1 and min(t.shape) <= 1 for t in made):
            code = f"({code}).clone(memory_format=torch.contiguous_format)"
            run(f"_ = {code}", self.names)
            made = [self.names.pop("_")]
        targets = [self.new_name() for _ in made]
        line = f"{', '.join(targets)} = {code}" if targets else code
        self.names.update(zip(targets, made, strict=True))
        self.steps.append(Step(line, op, precision, final=error is not None and data))
        if self.steps[-1].final:
            raise Unspecified
        self._forget()

    def _made(self, result: Any) -> list[torch.Tensor]:
        results = result if isinstance(result, (tuple, list)) else (result,)
        return list(results) if all(isinstance(x, torch.Tensor) for x in results) else []

    def _forget(self) -> None:
        live = list(tensors_of(self.names))
        for name in live[: max(0, len(live) - MOST_TENSORS)]:
            self.record(Step(f"del {name}", "del"))

    def program(self) -> Program:
        return Program(tuple(self.steps))
