"""op_db through torch.compile(backend="neuron", dynamic=True): what is padded, what is exact and why, what is wrong.

Each unit runs the samples that the conformance tool compiles, every one twice: with zeros and with NaN or 123456789 in
the padding of its inputs. Random numbers are compared with those that eager mode draws on the device.

    python -m conformance.dynamic --out build/conformance/dynamic.jsonl [--ops REGEX] [--jobs 2]

It goes on where it was; `--report` only prints the totals.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

import torch_neuronx
from conformance import gaps, samples, units, workers
from torch_neuronx.debug import fallback_report
from torch_neuronx.dynamo import metrics
from torch_neuronx.lowering.padded.poison import POISON

DTYPES = ("float32", "int64")
MODE = "dynamic"
_TOLERANCE = {torch.float32: 1e-3, torch.complex64: 1e-3, torch.float64: 1e-6, torch.complex128: 1e-6}


class CpuFails(Exception):
    """CPU torch does not run the sample either."""


def same(got: Any, want: Any, values: bool) -> None:
    """Raises AssertionError where results differ in structure, dtype, shape, or value."""
    g, w = tree_flatten(got)[0], tree_flatten(want)[0]
    if len(g) != len(w):
        raise AssertionError(f"{len(g)} results, eager has {len(w)}")
    for x, y in zip(g, w, strict=True):
        if not isinstance(y, torch.Tensor):
            if values and isinstance(y, (int, float, complex)):
                torch.testing.assert_close(torch.tensor(x), torch.tensor(y), rtol=1e-3, atol=1e-3, equal_nan=True)
            continue
        if not isinstance(x, torch.Tensor) or x.dtype != y.dtype or x.shape != y.shape:
            raise AssertionError(f"{_described(x)}, eager gives {_described(y)}")
        if values:
            _equal(x, y)


def _described(x: Any) -> str:
    return f"{x.dtype} {tuple(x.shape)}" if isinstance(x, torch.Tensor) else type(x).__name__


def _equal(x: torch.Tensor, y: torch.Tensor) -> None:
    x, y = (t.detach().cpu() for t in (x, y))
    if y.layout != torch.strided:
        x, y = x.to_dense(), y.to_dense()
    allowed = _TOLERANCE.get(y.dtype, 1e-2)
    x, y = (t.resolve_conj().resolve_neg() for t in (x, y))
    torch.testing.assert_close(x, y, rtol=allowed, atol=allowed, equal_nan=True)


def _repeats(first: Any, second: Any) -> bool:
    """Whether two runs of CPU torch, differently seeded, give the same."""
    try:
        same(first, second, values=True)
    except AssertionError:
        return False
    return True


def _on(op: Any, given: Any, stay: list[bool], device: str, seed: int, call: Callable[..., Any] | None = None) -> Any:
    torch.manual_seed(seed)
    inputs, args, kwargs = samples.place(given, stay, device)
    return (call or op.op)(inputs, *args, **kwargs)


def _reference(op: Any, given: Any, stay: list[bool]) -> tuple[Any, bool, bool]:
    """What the results must be, whether their values count, and whether they are random."""
    try:
        first, second = (_on(op, given, stay, "cpu", seed) for seed in (1, 2))
    except Exception as error:
        raise CpuFails(f"{type(error).__name__}: {error}") from error
    if "empty" in op.name:
        return first, False, False
    if samples.name_of(op) not in gaps.load().seeded and _repeats(first, second):
        return first, True, False
    return _on(op, given, stay, "neuron", 1), True, True


def _run(op: Any, dtype: torch.dtype, found: dict[str, Any]) -> int:
    """Runs all samples, also behind one that fails; the first wrong one, else the first refused, is reported."""
    function = op.op
    torch._dynamo.reset()
    call = torch.compile(lambda x, *args, **kwargs: function(x, *args, **kwargs), backend="neuron", dynamic=True)
    ran = 0
    for number, (sample, stay) in enumerate(samples.of(op, dtype)):
        given = samples.arguments(sample)
        want, values, drawn = _reference(op, given, stay)
        found["seeded"] |= drawn
        post = None if drawn else sample.output_process_fn_grad
        for poison in ("0", "1"):
            os.environ[POISON] = poison
            try:
                got = _on(op, given, stay, "neuron", 1, call)
                same(got, want, values=False)
                same(*((post(got), post(want)) if post else (got, want)), values=values)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the sample's result
                _note(found, error, f"sample {number}{', poisoned' if poison == '1' else ''}")
        ran += 1
    return ran


def _note(found: dict[str, Any], error: Exception, where: str) -> None:
    status = "fail" if isinstance(error, AssertionError) else "error"
    if found["status"] == "pass" or (status, found["status"]) == ("fail", "error"):
        found.update(status=status, msg=f"{where}: {type(error).__name__}: {error}"[:1500])


def check(identity: str) -> dict[str, Any]:
    """One unit's record: its status, what its graphs were, the reasons of those that are exact, fallbacks."""
    name, dtype, _ = identity.split("|")
    found: dict[str, Any] = {"status": "pass", "msg": "", "seeded": False}
    metrics.clear()
    torch._dynamo.utils.counters.clear()
    before = {r.op: r.count for r in fallback_report()}
    try:
        if not _run(samples.op_db()[name], getattr(torch, dtype), found):
            found.update(status="skip", msg="no samples")
    except CpuFails as error:
        found.update(status="skip", msg=str(error)[:300])
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the unit's result
        _note(found, error, "making samples")
    after = {r.op: r.count for r in fallback_report()}
    graphs = torch_neuronx.get_dynamo_metrics()
    found["fallback_ops"] = sorted(op for op, n in after.items() if n > before.get(op, 0))
    found["breaks"] = sum(torch._dynamo.utils.counters["graph_break"].values())
    found["graphs"] = {
        "fixed": sum(not g["varying"] for g in graphs),
        "padded": sum(g["varying"] and g["exact_because"] is None for g in graphs),
        "exact": sum(g["varying"] and g["exact_because"] is not None for g in graphs),
    }
    found["because"] = sorted({g["exact_because"] for g in graphs if g["exact_because"] is not None})
    torch._dynamo.reset()
    return found


def identities(ops: str | None) -> list[str]:
    return [
        f"{name}|{dtype}|{MODE}"
        for name, op in samples.op_db().items()
        if ops is None or re.fullmatch(ops, name)
        for dtype in DTYPES
        if getattr(torch, dtype) in op.dtypes
    ]


def records(file: Path) -> list[dict[str, Any]]:
    """The last record of each unit."""
    found: dict[str, dict[str, Any]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # the torn last line of an interrupted run
        found[record["id"]] = record
    return list(found.values())


def summary(found: Sequence[dict[str, Any]]) -> str:
    """Totals, reasons by how many units have them, and what does not pass."""
    listed = [r for r in found if r["status"] != "skip"]
    skipped = len(found) - len(listed)
    by = collections.Counter(r["status"] for r in listed)
    graphs: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    for r in listed:
        graphs.update(r.get("graphs", {}))
        reasons.update(r.get("because", ()))
    only = [r for r in listed if r["status"] == "pass"]
    lines = [
        f"units {len(listed)} (and {skipped} that CPU torch does not run): "
        + ", ".join(f"{_NAMES[s]} {by[s]}" for s in _NAMES),
        f"pass {100 * by['pass'] / max(len(listed), 1):.1f} %; seeded {sum(bool(r.get('seeded')) for r in listed)}, "
        f"with fallbacks {sum(bool(r.get('fallback_ops')) for r in listed)}, "
        f"with graph breaks {sum(bool(r.get('breaks')) for r in listed)}",
        f"of those that pass: {sum(_kind(r) == 'padded' for r in only)} all padded, "
        f"{sum(_kind(r) == 'mixed' for r in only)} partly, {sum(_kind(r) == 'exact' for r in only)} exact, "
        f"{sum(_kind(r) == 'fixed' for r in only)} without a varying size",
        f"graphs: {dict(graphs)}",
        "exact because:",
        *(f"  {n:4} {reason}" for reason, n in reasons.most_common()),
        "what does not pass:",
        *(f"  {r['id']} {_NAMES[r['status']]}: {_short(r['msg'])}" for r in listed if r["status"] != "pass"),
    ]
    return "\n".join(lines)


_NAMES = {"pass": "pass", "fail": "wrong", "error": "refused", "crash": "crash", "timeout": "timeout"}


def _kind(record: dict[str, Any]) -> str:
    padded, exact = record["graphs"]["padded"], record["graphs"]["exact"]
    if padded and exact:
        return "mixed"
    return "padded" if padded else "exact" if exact else "fixed"


def _short(text: str) -> str:
    return re.sub(r"\s+", " ", text)[:240]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--worker", action="store_true")
    options.add_argument("--report", action="store_true", help="only print the totals")
    options.add_argument("--out", type=Path, default=Path("build/conformance/dynamic.jsonl"))
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--ops", help="regular expression on entries")
    options.add_argument("--retry", default="", help="statuses to run again, e.g. fail,crash")
    chosen = options.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if chosen.worker:
        torch._dynamo.config.recompile_limit = 64
        workers.serve(check)
        return
    if not chosen.report:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        again = set(filter(None, chosen.retry.split(",")))
        done = {r["id"] for r in records(chosen.out) if r["status"] not in again}
        todo = [i for i in identities(chosen.ops) if i not in done]
        random.Random(0).shuffle(todo)  # so that what an interrupted run has is a fair sample
        workers.run("conformance.dynamic", todo, chosen.out, chosen.jobs)
    print(summary([r for r in records(chosen.out) if units.Unit(*r["id"].split("|")).mode == MODE]))


if __name__ == "__main__":
    main()
