"""torch.vmap over op_db: the device's vmap against a loop on the CPU.

`python -m tests.functorch.sweep [REGEX] [--most N]` lists what differs and counts. An entry's samples are drawn under
two seeds and stacked, so that a batch holds valid inputs only; each is mapped over its first argument, and over all
tensors. What CPU torch's own vmap refuses, or does not give what its loop gives, is not counted.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

import torch_neuronx
from tests.databases.both import equal, tensors

VARIANTS = ("first", "all")
# Memory nobody wrote has no value, and these ask for a result on the CPU.
_NOT_COMPARED = frozenset(
    {
        *("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
        *("linspace", "logspace", "to"),
    }
)


@dataclass
class Outcome:
    """Samples by what became of them: agreed, refused by CPU torch, or different here, and the words of the first."""

    agreed: int = 0
    not_mapped: int = 0
    differ: int = 0
    why: str = ""


def name_of(op: Any) -> str:
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def entries(regex: str = ".*") -> list[Any]:
    return [op for op in op_db if torch.float32 in op.dtypes and re.fullmatch(regex, name_of(op))]


def _drawn(op: Any, seed: int, most: int) -> list[Any]:
    torch.manual_seed(seed)
    random.seed(seed)
    found = itertools.islice(op.sample_inputs("cpu", torch.float32), most)
    return list(found)


@dataclass(frozen=True)
class Mapped:
    """A call whose tensors at `batched` have a leading dimension of two."""

    op: Any
    compared: Callable[[Any], Any]  # what the entry says is defined of a result: not the signs of eigenvectors
    leaves: list[Any]
    structure: Any
    batched: tuple[int, ...]

    def on(self, device: str) -> Mapped:
        moved = [x.to(device) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        moved = [torch.device(device) if isinstance(x, torch.device) else x for x in moved]
        return Mapped(self.op, self.compared, moved, self.structure, self.batched)

    def _call(self, *mapped: torch.Tensor) -> list[torch.Tensor]:
        leaves = list(self.leaves)
        for position, x in zip(self.batched, mapped, strict=True):
            leaves[position] = x
        inputs, args, kwargs = tree_unflatten(leaves, self.structure)
        out = self.op.op(inputs, *args, **kwargs)
        if self.op.name == "matrix_exp":  # its error is that of its largest element, 1e5 in these samples
            out = out / out.abs().amax()
        return tensors(self.compared(out))

    def vmap(self) -> list[torch.Tensor]:
        return torch.vmap(self._call, randomness="error")(*(self.leaves[i] for i in self.batched))

    def loop(self) -> list[torch.Tensor]:
        rows = [self._call(*(self.leaves[i][row].clone() for i in self.batched)) for row in range(2)]
        return [torch.stack(pair) for pair in zip(*rows, strict=True)]


def calls(op: Any, most: int) -> Iterator[Mapped]:
    for one, two in zip(_drawn(op, 0, most), _drawn(op, 1, most), strict=False):
        (first, structure), (second, other) = (
            tree_flatten((s.input, tuple(s.args), dict(s.kwargs))) for s in (one, two)
        )
        inputs = len(tree_flatten(one.input)[0])
        if structure != other:
            continue
        alike = [i for i, (a, b) in enumerate(zip(first, second, strict=True)) if _stackable(a, b)]
        leaves = [torch.stack([a, b]) if i in alike else a for i, (a, b) in enumerate(zip(first, second, strict=True))]
        only = tuple(i for i in alike if i < inputs)
        kept = [x if i in only else first[i] for i, x in enumerate(leaves)]
        if only:
            yield Mapped(op, one.output_process_fn_grad, kept, structure, only)
        if len(alike) > len(only):
            yield Mapped(op, one.output_process_fn_grad, leaves, structure, tuple(alike))


def _given(sample: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    return sample.input, tuple(sample.args), dict(sample.kwargs)


def _stackable(a: Any, b: Any) -> bool:
    return (
        isinstance(a, torch.Tensor)
        and isinstance(b, torch.Tensor)
        and a.layout == b.layout == torch.strided
        and a.shape == b.shape
        and a.dtype == b.dtype
    )


def _expected(call: Mapped) -> list[torch.Tensor] | None:
    """The CPU's loop, where the CPU's vmap gives the same."""
    try:
        want, mapped = call.loop(), call.vmap()
        for g, w in zip(mapped, want, strict=True):
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5, equal_nan=True)
    except Exception:  # noqa: BLE001 - whatever CPU torch refuses is not ours to compare with
        return None
    return want


def run(op: Any, most: int) -> Outcome:
    outcome = Outcome()
    for call in calls(op, most):
        want = None if op.name in _NOT_COMPARED else _expected(call)
        if want is None:
            outcome.not_mapped += 1
            continue
        try:
            equal(call.on("neuron").vmap(), want, name_of(op))
        except Exception as error:  # noqa: BLE001 - whatever it is, the device differs
            outcome.differ += 1
            outcome.why = outcome.why or f"{type(error).__name__}: {str(error)[:400]}"
        else:
            outcome.agreed += 1
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("regex", nargs="?", default=".*")
    parser.add_argument("--most", type=int, default=3, help="samples an entry, each mapped in two ways")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    for op in entries(arguments.regex):
        outcome = run(op, arguments.most)
        mapped = outcome.agreed + outcome.differ
        counts["entries"] += 1
        counts["entries CPU torch maps"] += mapped > 0
        counts["entries that agree"] += mapped > 0 and not outcome.differ
        counts["samples CPU torch maps"] += mapped
        counts["samples that agree"] += outcome.agreed
        if outcome.differ:
            print(f"{name_of(op)}: {outcome.differ} of {mapped} differ: {outcome.why}", flush=True)
    for what, count in counts.items():
        print(f"{count:6} {what}")
    fallbacks = torch_neuronx.get_fallback_ops()
    print(f"{sum(fallbacks.values()):6} calls on the CPU {dict(fallbacks) or ''}")
    return int(counts["entries that agree"] != counts["entries CPU torch maps"])


if __name__ == "__main__":
    sys.exit(main())
