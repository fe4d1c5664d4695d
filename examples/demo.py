"""What works, in two minutes: a linear layer, a network trained on digits, sentences ranked by a real language model.

Ends with `demo: OK accuracy=<a> fallbacks=0 compiled=<n> loaded=<m>`; the exit status is 1 when anything is not as it
should be. A second run compiles nothing: every executable comes from the cache on disk.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import TypeVar

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import digits
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import torch_neuronx
from torch_neuronx import debug

NEEDED_ACCURACY = 0.97
SECONDS_ALLOWED = 120
TOLERANCE = 1e-5

T = TypeVar("T")

# The last line goes to a log or a script as often as to a terminal: never wrap or colour it.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)


class UnmetError(Exception):
    """A promise of the demo was not kept."""


def require(kept: bool, promise: str) -> None:
    if not kept:
        raise UnmetError(promise)


def linear() -> None:
    """The line a user changes is the one that says where the model lives."""
    torch.manual_seed(0)
    model = torch.nn.Linear(10, 1).to("neuron")
    x = torch.randn(1, 10, device="neuron")
    y = model(x)
    console.print(f'  torch.nn.Linear(10, 1).to("neuron")(x) = {y}')
    expected = torch.nn.functional.linear(x.cpu(), model.weight.cpu(), model.bias.cpu())
    require(
        torch.allclose(y.cpu(), expected, atol=1e-6), f"the linear layer gives {y.item()}, the CPU {expected.item()}"
    )


def train_digits() -> float:
    """The same training twice, from the same weights on the same batches."""
    torch.set_num_threads(1)  # threads only wait for each other on a network this small; the device keeps its own
    importlib.import_module("torch._dynamo")  # torch's optimizers import it at their first step: on nobody's clock
    outcomes = {"neuron": _trained("neuron"), "CPU, one thread": _trained("cpu")}
    table = Table("device", "test accuracy", "last loss", "first epoch", "other epochs, each", "total")
    for name, run in outcomes.items():
        later = (run.seconds - run.first_epoch_seconds) / (digits.EPOCHS - 1)
        times = (f"{seconds:.2f} s" for seconds in (run.first_epoch_seconds, later, run.seconds))
        table.add_row(name, f"{run.accuracy:.2%}", f"{run.losses[-1]:.5f}", *times)
    console.print(table)
    run = outcomes["neuron"]
    require(run.accuracy >= NEEDED_ACCURACY, f"accuracy {run.accuracy:.2%} is below {NEEDED_ACCURACY:.0%}")
    require(run.seconds < SECONDS_ALLOWED, f"training took {run.seconds:.0f} s, {SECONDS_ALLOWED} s were allowed")
    return run.accuracy


def _trained(device: str) -> digits.Outcome:
    columns = (TextColumn(f"  {device:<7}"), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting", total=digits.EPOCHS)

        def report(epoch: int, loss: float) -> None:
            progress.update(task, advance=1, description=f"epoch {epoch + 1}/{digits.EPOCHS}  loss {loss:.4f}")

        return digits.train(device, report)


def rank_sentences() -> None:
    """A model nobody prepared for this device, straight from its files."""
    import sentences  # brings Transformers, which takes seconds to import

    ranking, vectors = sentences.rank(sentences.load("neuron"))
    _, expected = sentences.rank(sentences.load("cpu"))
    table = Table("likeness", f"to: {sentences.QUESTION}")
    for score, sentence in ranking:
        table.add_row(f"{score:.3f}", sentence)
    console.print(table)
    error = (vectors.cpu() - expected).abs().max().item()
    console.print(f"  largest difference from the CPU's embeddings: {error:.1e}")
    require(error <= TOLERANCE, f"embeddings differ from the CPU's by {error:.1e}, more than {TOLERANCE:.0e}")


def part(number: int, title: str, run: Callable[[], T], timings: Table) -> T:
    """Runs one part under a heading, and adds what it cost to the closing table."""
    console.rule(f"{number}. {title}", align="left")
    before, executed, fallen, start = debug.counters(), _executed(), _fallbacks(), time.perf_counter()
    value = run()
    torch.neuron.synchronize()
    spent = time.perf_counter() - start
    after = debug.counters()
    numbers = (
        _executed() - executed,
        _fallbacks() - fallen,
        after["compiled"] - before["compiled"],
        after["loaded"] - before["loaded"],
    )
    timings.add_row(title, *(f"{n:,}" for n in numbers), f"{spent:.1f} s")
    return value


def _executed() -> int:
    return sum(torch_neuronx.get_executed_ops().values())


def _fallbacks() -> int:
    return sum(torch_neuronx.get_fallback_ops().values())


def show_fallbacks() -> None:
    for record in debug.fallback_report():
        sites = ", ".join(record.call_sites)
        console.print(f"  [red]{record.op}[/] ran on the CPU {record.count} times ({record.reason}) at {sites}")


def run() -> float:
    columns = ("part", "ops on the device", "on the CPU", "executables compiled", "loaded from disk", "time")
    timings = Table(*columns, title="What ran where")
    part(1, "A linear layer", linear, timings)
    accuracy = part(2, "Handwritten digits", train_digits, timings)
    part(3, "Sentences ranked", rank_sentences, timings)
    console.print()
    console.print(timings)
    return accuracy


def _failed(reason: str) -> int:
    show_fallbacks()
    print(f"demo: FAILED {' '.join(reason.split())}", flush=True)
    return 1


def main() -> int:
    start = time.perf_counter()
    torch_neuronx.clear_op_tracking()
    try:
        accuracy = run()
        require(_fallbacks() == 0, f"{_fallbacks()} calls ran on the CPU")
    except UnmetError as unmet:
        return _failed(str(unmet))
    except Exception as error:  # noqa: BLE001 - whatever went wrong, the verdict comes last
        console.print_exception(max_frames=8)
        return _failed(f"{type(error).__name__}: {error}")
    counters = debug.counters()
    console.print(f"{time.perf_counter() - start:.0f} s in all", end="\n\n")
    line = f"demo: OK accuracy={accuracy:.4f} fallbacks=0 compiled={counters['compiled']} loaded={counters['loaded']}"
    print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
