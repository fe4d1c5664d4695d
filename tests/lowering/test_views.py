"""Reading and writing every kind of view of a flat storage, against torch.as_strided."""

from __future__ import annotations

import itertools
import random

import emulate
import numpy as np
import pytest
import torch

from torch_neuronx.lowering import hlo, views
from torch_neuronx.lowering.module import Argument, build_module
from torch_neuronx.lowering.views import Layout
from torch_neuronx.runtime.protocol import ResultType

aten = torch.ops.aten

# name: (storage elements, sizes, strides, offset)
VIEWS = {
    "whole": (24, (4, 6), (6, 1), 0),
    "whole transposed": (24, (6, 4), (1, 6), 0),
    "whole permuted": (24, (4, 2, 3), (1, 12, 4), 0),
    "whole channels last": (48, (2, 3, 2, 4), (24, 1, 12, 3), 0),
    "whole with extents one": (6, (1, 6, 1), (6, 1, 1), 0),
    "extent one, odd stride": (6, (1, 6), (17, 1), 0),
    "scalar": (1, (), (), 0),
    "scalar inside": (24, (), (), 13),
    "prefix": (24, (10,), (1,), 0),
    "slice": (24, (10,), (1,), 7),
    "rows": (24, (2, 6), (6, 1), 6),
    "columns": (24, (4, 2), (6, 1), 3),
    "block": (24, (2, 3), (6, 1), 8),
    "block transposed": (24, (3, 2), (1, 6), 8),
    "one column": (24, (4,), (6,), 5),
    "one row": (24, (6,), (1,), 18),
    "row as matrix": (24, (1, 6), (6, 1), 12),
    "stepped": (24, (8,), (3,), 1),
    "stepped to the end": (24, (8,), (3,), 2),
    "stepped, step does not divide": (24, (5,), (5,), 3),
    "stepped rows": (24, (2, 6), (12, 1), 6),
    "stepped columns": (24, (4, 3), (6, 2), 1),
    "select in three dimensions": (60, (3, 5), (20, 1), 5),
    "slice in three dimensions": (60, (3, 2, 3), (20, 5, 1), 6),
    "expanded scalar": (24, (3, 4), (0, 0), 5),
    "expanded row": (24, (5, 6), (0, 1), 12),
    "expanded column": (24, (4, 5), (6, 0), 2),
    "expanded whole": (6, (3, 6), (0, 1), 0),
    "expanded in the middle": (24, (4, 3, 6), (6, 0, 1), 0),
    "diagonal": (25, (5,), (6,), 0),
    "diagonal above": (25, (4,), (6,), 1),
    "diagonal of a wide matrix": (24, (4,), (7,), 0),
    "wraps over a row": (24, (3, 4), (6, 1), 4),
    "overlapping windows": (24, (5, 4), (2, 1), 3),
    "overlapping, equal strides": (24, (4, 3), (1, 1), 2),
    "strides that do not nest": (40, (3, 3), (7, 2), 1),
    "tail of a storage": (7, (3,), (2,), 2),
    "empty": (24, (0, 4), (4, 1), 0),
    "empty inside": (24, (3, 0, 2), (6, 2, 1), 5),
    "empty storage": (0, (0,), (1,), 0),
}


def runs(body, inputs, results):
    """Builds, compiles and runs `body(values)`; flat numpy arrays in and out."""
    arguments = [Argument(x.shape, torch.from_numpy(x[:0]).dtype) for x in inputs]
    built = build_module("views", arguments, lambda _, values: [hlo.flatten(v) for v in body(*values)])
    kinds = [ResultType(dtype, numel) for dtype, numel in results]
    executable = emulate._runtime.compile(built.bytecode, 0, kinds)
    arrays = [emulate._runtime.put(x, a.dtype, 0) for x, a in zip(inputs, arguments, strict=True)]
    outputs = executable.execute(arrays, with_tokens=True).consume_with_handlers(executable.handlers)
    return [
        emulate._to_host(o, emulate_result(dtype, numel)) for o, (dtype, numel) in zip(outputs, results, strict=True)
    ]


def emulate_result(dtype, numel):
    from torch_neuronx.lowering.spec import Result

    return Result("fresh", dtype, Layout((numel,), (1,)))


def spec(numel, sizes, strides, offset):
    """(layout, whether an offset operand is used, whether the block form fits), as the core decides."""
    layout = Layout(tuple(sizes), tuple(strides))
    whole = offset == 0 and layout.dense and layout.numel == numel
    return layout, not whole, views.block_fits(layout, numel, offset)


def read(storage, sizes, strides, offset):
    layout, inside, fits = spec(storage.size, sizes, strides, offset)

    def body(flat, place):
        return [views.read(flat, layout, hlo.reshape(place, ()) if inside else None, fits)]

    place = np.array([offset], np.int64)
    (out,) = runs(body, [storage, place], [(torch.float32, layout.numel)])
    return torch.from_numpy(out).reshape(layout.sizes)


def write(storage, sizes, strides, offset, value):
    layout, inside, fits = spec(storage.size, sizes, strides, offset)

    def body(flat, place, new):
        shaped = hlo.reshape(new, layout.sizes)
        return [views.write(flat, layout, hlo.reshape(place, ()) if inside else None, fits, shaped)]

    place = np.array([offset], np.int64)
    (out,) = runs(body, [storage, place, value.reshape(-1)], [(torch.float32, storage.size)])
    return torch.from_numpy(out)


def test_forms_are_the_expected_ones():
    """The cheap forms are used where they can be, and never where rows would wrap."""
    form = {}
    for name, (numel, sizes, strides, offset) in VIEWS.items():
        layout, inside, fits = spec(numel, sizes, strides, offset)
        form[name] = "empty" if layout.numel == 0 else "whole" if not inside else "block" if fits else "points"
    assert {n for n, f in form.items() if f == "whole"} == {n for n in VIEWS if n.startswith("whole")} | {
        "extent one, odd stride",
        "scalar",
    }
    points = {n for n, f in form.items() if f == "points"}
    assert points == {
        "stepped, step does not divide",
        "diagonal of a wide matrix",
        "diagonal",
        "diagonal above",
        "wraps over a row",
        "overlapping windows",
        "overlapping, equal strides",
        "strides that do not nest",
        "tail of a storage",
    }


@pytest.mark.parametrize("name", VIEWS)
def test_read(name):
    numel, sizes, strides, offset = VIEWS[name]
    storage = np.arange(numel, dtype=np.float32)
    want = torch.from_numpy(storage).as_strided(sizes, strides, offset)
    assert torch.equal(read(storage, sizes, strides, offset), want)


@pytest.mark.parametrize("name", [n for n in VIEWS if not n.startswith("overlapping")])
def test_write(name):
    numel, sizes, strides, offset = VIEWS[name]
    storage = np.arange(numel, dtype=np.float32)
    want = torch.from_numpy(storage.copy())
    view = want.as_strided(sizes, strides, offset)
    shared = torch.zeros(tuple(1 if s == 0 else n for n, s in zip(sizes, strides, strict=True)))
    value = (100 + torch.arange(shared.numel()).reshape(shared.shape).float()).expand(sizes)
    if view.numel():
        narrow = want.as_strided(shared.shape, strides, offset)
        narrow.copy_(value[tuple(slice(0, n) for n in shared.shape)])
    got = write(storage, sizes, strides, offset, value.contiguous().numpy())
    assert torch.equal(got, want)


def test_block_decision_agrees_with_the_elements_it_reads():
    """Whenever block_fits says yes, the block form reads what as_strided reads: many small random views."""
    rng = random.Random(1)
    seen = 0
    for _ in range(4000):
        ndim = rng.randint(1, 3)
        sizes = tuple(rng.randint(1, 4) for _ in range(ndim))
        strides = tuple(rng.choice((1, 2, 3, 4, 6, 8, 12, 24)) for _ in range(ndim))
        numel = rng.choice((24, 48, 30))
        layout = Layout(sizes, strides)
        if layout.extent > numel:
            continue
        offset = rng.randint(0, numel - layout.extent)
        if not views.block_fits(layout, numel, offset):
            continue
        seen += 1
        assert _block_elements(layout, numel, offset) == _strided_elements(layout, offset), (layout, numel, offset)
    assert seen > 200


def _strided_elements(layout, offset):
    points = itertools.product(*(range(n) for n in layout.sizes))
    return [offset + sum(i * s for i, s in zip(p, layout.strides, strict=True)) for p in points]


def _block_elements(layout, numel, offset):
    """The block form on numpy: reshape to the chain of strides, slice, put the dimensions back."""
    dims, strides, extents = views._block(layout, numel)
    starts, rest = [], offset
    for s in strides:
        starts.append(rest // s)
        rest %= s
    starts.append(rest)
    block = np.arange(numel).reshape(extents)
    sizes = [*(layout.sizes[d] for d in dims), 1]
    block = block[tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True))]
    if list(block.shape) != sizes:
        return ["out of bounds"]
    order = sorted(range(len(dims)), key=lambda i: dims[i])
    block = block.reshape(sizes[:-1]).transpose(order)
    full = block.reshape([n if d in dims else 1 for d, n in enumerate(layout.sizes)])
    return list(np.broadcast_to(full, layout.sizes).reshape(-1))


def test_to_storage_lays_out_fresh_results():
    value = np.arange(6, dtype=np.float32)
    for sizes, strides in (((2, 3), (3, 1)), ((2, 3), (1, 2)), ((2, 3), (5, 1)), ((2, 3), (8, 2))):
        layout = Layout(sizes, strides)
        numel = layout.numel if layout.dense else layout.extent
        (out,) = runs(
            lambda v, at=layout: [views.to_storage(hlo.reshape(v, at.sizes), at)], [value], [(torch.float32, numel)]
        )
        got = torch.from_numpy(out).as_strided(sizes, strides)
        assert torch.equal(got, torch.from_numpy(value).reshape(sizes))


REINTERPRETED = [
    (torch.float32, torch.int32),
    (torch.int64, torch.float64),
    (torch.float32, torch.uint8),
    (torch.uint8, torch.int32),
    (torch.int16, torch.bfloat16),
    (torch.float64, torch.int16),
    (torch.complex64, torch.float32),
    (torch.float32, torch.complex64),
    (torch.complex128, torch.float64),
    (torch.complex64, torch.complex128),
    (torch.complex64, torch.int64),
    (torch.bool, torch.uint8),
    (torch.uint8, torch.bool),
    (torch.bool, torch.int32),
    (torch.float16, torch.float8_e5m2),
]


@pytest.mark.parametrize(("source", "target"), REINTERPRETED, ids=str)
def test_reinterpret(source, target):
    """The storage's bytes under another dtype, as view(dtype), view_as_real and view_as_complex show them."""
    raw = torch.arange(1, 33, dtype=torch.uint8)
    if torch.bool in (source, target):
        raw = raw % 2
    want = raw.view(target).view(torch.uint8).numpy()
    arguments = [Argument((32 // source.itemsize,), source)]
    built = build_module("cast", arguments, lambda _, values: [views.reinterpret(values[0], target)])
    executable = emulate._runtime.compile(built.bytecode, 0, [ResultType(target, 32 // target.itemsize)])
    array = emulate._runtime.put(raw.numpy().view(emulate.numpy_dtype(source)), source, 0)
    (out,) = executable.execute([array], with_tokens=True).consume_with_handlers(executable.handlers)
    got = emulate._to_host(out, emulate_result(target, 32 // target.itemsize))
    assert np.array_equal(got.view(np.uint8), want)


def test_ops_on_views_of_one_storage():
    """Two views of one storage in one call: read both, write one."""
    base = torch.arange(24.0).reshape(4, 6)
    emulate.check(aten.add.Tensor, base[1:3, 2:4], base[:2, ::3])
    emulate.check(aten.add.Tensor, base.t(), base[0].expand(6, 6)[:, :4])
    x = base.clone()
    emulate.check(lambda v: v[1:3, 2:4].mul_(v[:1, ::3]), x)
    emulate.check(lambda v: v.diagonal().add_(1), base.clone())
    emulate.check(lambda v: v.t()[2:4].fill_(7), base.clone())
    emulate.check(lambda v: v[::2, 1::2].copy_(v[1::2, ::2]), base.clone())


def test_views_with_another_dtype():
    z = torch.randn(3, 4, dtype=torch.complex64)
    emulate.check(aten.mul.Tensor, torch.view_as_real(z)[..., 0], 2.0)
    emulate.check(lambda v: torch.view_as_real(v)[..., 1].zero_(), z.clone())
    emulate.check(aten.add.Tensor, torch.arange(6.0).view(torch.int32)[2:4], 1)


def test_offset_is_an_operand():
    """x[i] for every i is one program."""
    emulate._programs.clear()
    x = torch.arange(24.0).reshape(4, 6)
    for i in range(4):
        emulate.check(aten.mul.Tensor, x[i], x[3 - i])
    assert len(emulate._programs) == 1
