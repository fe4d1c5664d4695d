"""Calls that differ in one size share an executable once three sizes were seen: a cache that grows by a row a step.

A size is looked for as a number that stands in one or more places of the arguments' shapes, all else being equal. Sizes
that are buckets themselves, such as the widths of most layers, do not count. From the fourth on a call runs in the
program of its bucket, whose inputs are padded and whose results have their true sizes; so does a call whose tensors
are views of what grows, and differ in their strides alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from torch_neuronx.compiler import executables, residents
from torch_neuronx.compiler.executables import Interface, Obtained, ResultInfo, Source
from torch_neuronx.lowering.call import Lowered
from torch_neuronx.lowering.errors import Refused, Unsupported
from torch_neuronx.lowering.forms import resolve
from torch_neuronx.lowering.padded.ladder import ladder
from torch_neuronx.lowering.padded.poison import poisoned
from torch_neuronx.lowering.padded.serves import Input, Linear, Output, Serves, capacity_of, fitted, laid_out
from torch_neuronx.lowering.spec import Call, ScalarSpec, TensorSpec
from torch_neuronx.lowering.table import rows
from torch_neuronx.lowering.views import Layout
from torch_neuronx.runtime.targets import runtime

SWITCH: Final = "TORCH_NEURONX_EAGER_BUCKETS"
SEEN: Final = 3  # sizes before a program for all of them pays
LARGEST: Final = 1 << 18  # elements: of more, moving them to their padded places takes longer than loading a program
SMALLEST: Final = 32
MOST_FAMILIES: Final = 1 << 13

# Their generator state is an argument though they draw nothing without dropout, which their rule refuses.
_DRAWS_NOTHING: Final = frozenset({"aten::_scaled_dot_product_fused_attention_overrideable"})

Padding = tuple[tuple[tuple[int, int, int], ...], tuple[int, ...], bool]


@dataclass(frozen=True)
class Example:
    """One size, and what the exact executable of its call returns."""

    size: int
    interface: Interface


@dataclass
class Family:
    """Calls that differ in one size, or in the strides of views alone.

    refused   why it has no program for many sizes; None: it has, or was not asked for yet
    programs  by bucket and form of the inputs
    """

    examples: list[Example] = field(default_factory=list)
    layouts: set[Any] = field(default_factory=set)
    refused: str | None = None
    shape: Shape | None = None
    programs: dict[Any, Obtained] = field(default_factory=dict)

    @property
    def seen_enough(self) -> bool:
        return len(self.examples) >= SEEN


@dataclass(frozen=True)
class Shape:
    """What the calls of a family return.

    outputs  one after the other: an Output, a Linear for a number, or None
    returns  how results become the overload's returns; ("integer", Linear) for a number
    """

    outputs: tuple[Any, ...]
    returns: tuple[Any, ...]


_families: dict[Any, Family] = {}
_lock = threading.Lock()


def clear() -> None:
    """Forgets what was seen, and the executables."""
    with _lock:
        _families.clear()


residents.on_letting_go(clear)


def refusals() -> dict[str, int]:
    """Why families have no program for many sizes, with how many."""
    found: dict[str, int] = {}
    with _lock:
        for family in _families.values():
            if family.refused is not None:
                found[family.refused] = found.get(family.refused, 0) + 1
    return found


def look(call: Call) -> Form | None:
    """The call taken apart; None: it is not one of those that may share a program, or sharing is switched off."""
    if os.environ.get(SWITCH, "1") == "0" or torch.are_deterministic_algorithms_enabled():
        return None
    if (
        call.name not in rows
        or resolve(call.name).written
        or (call.rng is not None and call.name not in _DRAWS_NOTHING)
    ):
        return None
    form = Form(call)
    return (
        form if form.tensors and all(map(form.is_plain, form.tensors)) and runtime().capabilities.host_visible else None
    )


class Form:
    """A call's arguments, one after the other, and the families it may belong to."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.tensors: list[TensorSpec] = []  # in the core's order
        self.scalars: list[int] = []  # where they are among the parameters
        self._parts: list[Any] = [call.name, torch.get_default_dtype()]
        self._at: list[int] = []  # of the tensors among the parts
        for x in call.args:
            self._add(x)
        self._orders = [(tuple(x.layout.order), tuple(s == 0 for s in x.layout.strides)) for x in self.tensors]

    def _add(self, x: Any) -> None:
        if isinstance(x, TensorSpec):
            self._at.append(len(self._parts))
            self.tensors.append(x)
        elif isinstance(x, ScalarSpec):
            self.scalars.append(x.param)
            x = (x.dtype, x.weak)
        elif isinstance(x, tuple):
            self._parts.append(len(x))
            for v in x:
                self._add(v)
            return
        self._parts.append((type(x), x))

    def is_plain(self, x: TensorSpec) -> bool:
        """Whether a tensor is elements of its own dtype in an array that is not too long."""
        return (
            not (x.conj or x.neg)
            and 0 not in x.layout.sizes
            and x.dtype is not torch.complex32
            and self.call.slots[x.slot].dtype == x.dtype
            and x.layout.extent <= LARGEST
        )

    @property
    def may_be_flat(self) -> bool:
        """Whether the core may have flattened it: then its shape is not known."""
        first = self.tensors[0].layout
        return rows[self.call.name].pointwise and all(
            x.offset is None and x.layout == first and len(first.sizes) == 1 for x in self.tensors
        )

    @property
    def candidates(self) -> list[int | None]:
        """The sizes that may be the varying one; None: no size varies, but where views begin and step."""
        found: list[int | None] = [n for n in {n: None for x in self.tensors for n in x.layout.sizes} if n > 1]
        if any(x.offset is not None for x in self.tensors) and "linalg" not in self.call.name:
            found.append(None)
        return found

    def family(self, size: int | None) -> tuple[Any, ...]:
        """The call without the size, and without the strides that it may have to do with."""
        parts = [*self._parts, size is None]
        for at, x, order in zip(self._at, self.tensors, self._orders, strict=True):
            lay = x.layout
            if size is not None and size in lay.sizes:
                masked = tuple(-1 if n == size else n for n in lay.sizes)
                parts[at] = (x.dtype, masked, order, lay.dense, x.slot)
            else:
                parts[at] = (x.dtype, lay.sizes, lay.strides if x.offset is None else order, x.slot)
        return tuple(parts)


def serve(form: Form, device: int) -> tuple[Obtained, Padding] | None:
    """The program of the call's bucket and what it takes; None: the call has its own, or none is made yet."""
    for size in form.candidates:
        family = _families.get((device, form.family(size)))
        if family is None or family.refused is not None or not family.seen_enough:
            continue
        try:
            return _in_bucket(family, form, size, device)
        except (Unsupported, Refused, executables.LoweringFailed) as reason:
            family.refused = f"{form.call.name}: {reason}"
    return None


def note(form: Form, obtained: Obtained, device: int) -> None:
    """Remembers a call that has an executable of its own."""
    for size in form.candidates:
        if size is not None and not _counts(size):
            continue
        with _lock:
            if len(_families) > MOST_FAMILIES:
                _drop_unused()
            family = _families.setdefault((device, form.family(size)), Family())
        if family.refused is not None or family.seen_enough:
            continue
        if size is None:
            layouts = tuple(x.layout.strides for x in form.tensors)
            if layouts not in family.layouts and any(_counts(s) for strides in layouts for s in strides):
                family.layouts.add(layouts)
                family.examples.append(Example(0, obtained.interface))
        elif all(e.size != size for e in family.examples):
            if form.may_be_flat and not _goes_on(family.examples, size):
                family.examples.clear()
            family.examples.append(Example(size, obtained.interface))


def bucket(n: int) -> int:
    """What a size is padded to: few programs are worth more here than little padding, which is of small tensors."""
    return max(SMALLEST, 1 << (n - 1).bit_length())


def _drop_unused() -> None:
    """Forgets the families that have no program for many sizes; the lock is held."""
    used = {key: family for key, family in _families.items() if family.programs}
    _families.clear()
    _families.update(used if len(used) <= MOST_FAMILIES // 2 else {})


def _counts(size: int) -> bool:
    """Whether a size tells that something grows: one that is a bucket itself may as well be a layer's width."""
    return size > 1 and ladder(size, ()) != size


def _goes_on(examples: list[Example], size: int) -> bool:
    """Whether sizes grow by equal steps. Of a flattened call no more is known than how many elements there are."""
    known = [e.size for e in examples]
    return size > known[-1] and (len(known) < 2 or size - known[-1] == known[-1] - known[-2]) if known else True


def _in_bucket(family: Family, form: Form, size: int | None, device: int) -> tuple[Obtained, Padding]:
    call = form.call
    if family.shape is None:
        family.shape = _shape_of(family.examples)
    bound = None if size is None else bucket(size)
    inputs, numbers = _inputs(form, size, bound)
    if size is not None:
        numbers = (size, *numbers)
    key = (bound, inputs, tuple(form.scalars), call.params, call.rng)
    found = family.programs.get(key)
    if found is None:
        serves = Serves(bound, call.params, inputs, family.shape.outputs, call.params + len(numbers))
        found = family.programs[key] = _obtain(form, size, serves, device)
    described = tuple((-1 if x.tensor is None else x.tensor, x.slot, x.capacity) for x in inputs)
    return _at_size(found, family.shape, size or 0), (described, numbers, poisoned())


def _obtain(form: Form, size: int | None, serves: Serves, device: int) -> Obtained:
    if serves.elements > LARGEST:
        raise Unsupported(f"{serves.elements} elements, more than {LARGEST}")
    call = form.call
    identity = f"bucket {form.family(size)!r} {serves!r} {form.scalars} {call.rng}"
    signature = f"sizes to {serves.bound}" if serves.bound else "any strides"
    return executables.obtain(Source(call.name, identity, signature, lambda: _lower(call, serves)), device)


def _lower(call: Call, serves: Serves) -> Lowered:
    from torch_neuronx.lowering.padded.single import lower_single  # it imports sympy, which takes long

    try:
        return lower_single(call, serves)
    except (Unsupported, Refused):
        raise
    except Exception as error:  # the calls have programs of their own
        raise Unsupported(f"{type(error).__name__}: {error}") from error


def _inputs(form: Form, size: int | None, bound: int | None) -> tuple[tuple[Input, ...], tuple[int, ...]]:
    """What the program takes, and the strides that go with it."""
    inputs: list[Input] = []
    strides: list[int] = []
    plain: set[int] = set()
    first = form.call.params + (size is not None)
    for i, x in enumerate(form.tensors):
        varies = size is not None and size in x.layout.sizes
        if not varies and x.offset is None:
            if x.slot not in plain:
                plain.add(x.slot)
                inputs.append(Input(None, x.slot))
            continue
        sizes = tuple(Linear(1, 0) if varies and n == size else Linear(0, n) for n in x.layout.sizes)
        room = capacity_of(sizes, bound) if bound else 0
        lies = varies and _lies_padded(sizes, x.layout)
        places = None if lies else tuple(range(first + len(strides), first + len(strides) + len(sizes)))
        if not lies:
            strides += x.layout.strides
        capacity = room if varies and x.layout.extent <= room else bucket(x.layout.extent)
        inputs.append(Input(i, x.slot, sizes, places, capacity))
    return tuple(inputs), tuple(strides)


def _lies_padded(sizes: tuple[Linear, ...], layout: Layout) -> bool:
    """Whether a tensor's memory is its padded form: only its first dimension that is not 1 varies."""
    moving = [n for n in sizes if n.slope or n.start != 1]
    return layout.row_major and not any(n.slope for n in moving[1:])


def _shape_of(examples: list[Example]) -> Shape:
    """What all sizes have in common, from what some have. Raises Unsupported when results are not linear in them."""
    known = [e.size for e in examples]
    faces = [e.interface for e in examples]
    first = faces[0]
    if any(_structure(f.returns) != _structure(first.returns) or f.checks != first.checks for f in faces):
        raise Unsupported("what is returned differs between sizes")
    if any(f.rng_blocks for f in faces):
        raise Unsupported("it draws random numbers")
    if any(r.kind not in ("fresh", "check") for f in faces for r in f.results):
        raise Unsupported("a size of its result depends on data")
    outputs: list[Any] = []

    def one(returned: list[Any]) -> Any:
        x = returned[0]
        if isinstance(x, list):
            return [one([r[i] for r in returned]) for i in range(len(x))]
        if x is None:
            outputs.append(None)
            return None
        if x[0] == "integer":
            outputs.append(_linear(known, [r[1] for r in returned]))
            return ("integer", outputs[-1])
        if x[0] != "result":
            raise Unsupported("it returns one of its arguments")
        outputs.append(_output(known, [f.results[r[1]].layout for f, r in zip(faces, returned, strict=True)]))
        return ("result", x[1])

    returns = tuple(one([f.returns[i] for f in faces]) for i in range(len(first.returns)))
    if [x[1] for x in _flat(returns) if x is not None and x[0] == "result"] != [
        i for i, r in enumerate(first.results) if r.kind == "fresh"
    ]:
        raise Unsupported("its results are returned in another order")
    return Shape(tuple(outputs), returns)


def _flat(returns: Any) -> Iterator[Any]:
    for x in returns:
        if isinstance(x, list):
            yield from _flat(x)
        else:
            yield x


def _structure(returns: Any) -> Any:
    return [
        _structure(x) if isinstance(x, list) else None if x is None else (x[0], x[1] if x[0] == "result" else None)
        for x in returns
    ]


def _output(known: list[int], layouts: list[Layout]) -> Output:
    order = tuple(layouts[0].order)
    for lay in layouts:
        if tuple(lay.order) != order or lay != laid_out(lay.sizes, order):
            raise Unsupported("the strides of its result are not those of a dense tensor")
    sizes = tuple(_linear(known, [lay.sizes[d] for lay in layouts]) for d in range(len(order)))
    return Output(sizes, order)


def _linear(known: list[int], values: list[int]) -> Linear:
    found = fitted(known, values)
    if found is None:
        raise Unsupported(f"its results have the sizes {values} for {known}")
    return found


def _at_size(obtained: Obtained, shape: Shape, size: int) -> Obtained:
    """The program with the layouts its results have in a call of this size."""

    def returned(x: Any) -> Any:
        if isinstance(x, list):
            return [returned(v) for v in x]
        return ("integer", x[1].at(size)) if x is not None and x[0] == "integer" else x

    tensors = (x for x in shape.outputs if isinstance(x, Output))
    results = tuple(
        ResultInfo(r.kind, r.dtype, next(tensors).at(size), r.storage_numel, r.slot) if r.kind == "fresh" else r
        for r in obtained.interface.results
    )
    returns = tuple(returned(x) for x in shape.returns)
    return Obtained(obtained.executable, Interface(results, returns, 0, obtained.interface.checks))
