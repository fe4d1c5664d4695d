"""Every OpInfo with a sparse layout, forward and backward, against the CPU.

`python -m tests.sparse.opinfos [REGEX]` lists what differs.
"""

from __future__ import annotations

import argparse
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import SkipTest

import torch
from torch.testing._internal.common_methods_invocations import op_db, sparse_unary_ufuncs
from torch.utils._pytree import tree_map

import torch_neuronx  # noqa: F401 - registers the device
from tests.sparse.compare import assert_same, leaf, tensors, to_device

LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
DTYPES = (torch.float32, torch.float64, torch.complex64, torch.int64)
RANDOM = frozenset({"randn_like"})


@dataclass(frozen=True)
class Unit:
    """One entry of the table: an operator, a layout, a dtype, and whether its gradient is meant."""

    op: Any
    layout: torch.layout
    dtype: torch.dtype
    backward: bool

    def __str__(self) -> str:
        variant = f".{self.op.variant_test_name}" if self.op.variant_test_name else ""
        layout, dtype = str(self.layout).removeprefix("torch."), str(self.dtype).removeprefix("torch.")
        return f"{self.op.name}{variant}|{layout}|{dtype}|{'backward' if self.backward else 'forward'}"


@dataclass
class Outcome:
    """How many samples agreed, and how many there was nothing to agree with, CPU torch failing them itself."""

    agreed: int = 0
    refused: int = 0


def _supports(op: Any, layout: torch.layout) -> bool:
    return op.supports_sparse_layout(layout)


def units() -> Iterator[Unit]:
    for op in op_db:
        for layout in LAYOUTS:
            if not _supports(op, layout):
                continue
            for dtype in DTYPES:
                if dtype not in op.dtypes:
                    continue
                yield Unit(op, layout, dtype, False)
                if op.supports_autograd and dtype in op.supported_backward_dtypes("cpu"):
                    yield Unit(op, layout, dtype, True)


def samples(unit: Unit) -> list[Any]:
    torch.manual_seed(0)
    try:
        return list(unit.op.sample_inputs_sparse(unit.layout, "cpu", unit.dtype, requires_grad=unit.backward))
    except SkipTest:
        return []
    except NotImplementedError:  # torch's own tests convert the dense samples then
        return list(_converted(unit))


def _converted(unit: Unit) -> Iterator[Any]:
    block = (1, 1) if unit.layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    for sample in unit.op.sample_inputs("cpu", unit.dtype, requires_grad=False):
        x = sample.input
        if unit.op.name == "to_sparse":
            yield sample
        elif unit.layout == torch.sparse_coo or x.dim() == 2:
            sparse = (x * (x.abs() > x.abs().float().mean())).to_sparse(layout=unit.layout, blocksize=block)
            sample.input = sparse.requires_grad_(unit.backward)
            yield sample


def _on_cpu(x: Any) -> Any:
    return tree_map(lambda t: leaf(t, "cpu") if isinstance(t, torch.Tensor) else t, x)


def _gradients(out: Any, inputs: Any, cotangents: list[torch.Tensor]) -> list[torch.Tensor | None]:
    outs = [t for t in tensors(out) if t.requires_grad]
    ins = [t for t in tensors(inputs) if t.requires_grad]
    return list(torch.autograd.grad(outs, ins, cotangents, allow_unused=True)) if outs and ins else []


def _cotangents(out: Any) -> list[torch.Tensor]:
    """A tensor like each result, of its own layout, with other values."""
    outs = [t.detach() for t in tensors(out) if t.requires_grad]
    return [(t * 0.5).sin() if t.layout == torch.strided else t * 0.5 for t in outs]


def run_sample(unit: Unit, sample: Any, outcome: Outcome) -> None:
    """Raises AssertionError when the device and the CPU differ, and whatever the device raises."""
    call = (sample.input, tuple(sample.args), dict(sample.kwargs))
    random = unit.op.name in RANDOM
    try:
        x, args, kwargs = _on_cpu(call)
        want = unit.op.op(x, *args, **kwargs)
        cotangents = _cotangents(want) if unit.backward else []
        gradients = _gradients(want, (x, args, kwargs), cotangents) if unit.backward else []
    except Exception:  # noqa: BLE001 - what CPU torch cannot do is not ours to compare with
        outcome.refused += 1
        return
    x, args, kwargs = to_device(call)
    if "device" in kwargs:
        kwargs["device"] = "neuron"
    got = unit.op.op(x, *args, **kwargs)
    assert_same(got, want, values=not random)
    if unit.backward:
        assert_same(_gradients(got, (x, args, kwargs), to_device(cotangents)), gradients, values=not random)
    outcome.agreed += 1


def run(unit: Unit, most: int = 0) -> Outcome:
    outcome = Outcome()
    for number, sample in enumerate(samples(unit)):
        if most and number >= most:
            break
        run_sample(unit, sample, outcome)
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("regex", nargs="?", default=".*")
    parser.add_argument("--most", type=int, default=0, help="samples a unit, 0 for all")
    parser.add_argument("--unary", action="store_true", help="only torch's list of sparse unary functions")
    parser.add_argument("--trace", action="store_true")
    arguments = parser.parse_args()
    unary = {op.name for op in sparse_unary_ufuncs}
    counts: Counter[str] = Counter()
    for unit in units():
        if not re.fullmatch(arguments.regex, str(unit)) or (arguments.unary and unit.op.name not in unary):
            continue
        try:
            outcome = run(unit, arguments.most)
            status = "pass" if outcome.agreed else "nothing to compare"
        except Exception as error:  # noqa: BLE001 - one unit that fails must not end the run
            status = "FAIL"
            if arguments.trace:
                traceback.print_exc()
            print("FAIL", unit, f"{type(error).__name__}: {error}".replace("\n", " ")[:300], flush=True)
        counts[status] += 1
    print(dict(counts))
    return counts["FAIL"]


if __name__ == "__main__":
    sys.exit(main())
