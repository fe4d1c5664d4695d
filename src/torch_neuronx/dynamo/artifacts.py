"""Files a compiled graph leaves behind for people: the FX graph and its StableHLO."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from torch import fx

_FOLDERS = {"fx": ("fx_graphs", "py"), "stablehlo": ("stablehlo", "mlir")}


def folder() -> Path:
    return Path(os.environ.get("TORCH_NEURONX_DEBUG_DIR") or "/tmp/neuron_backend")


def preserved() -> bool:
    return os.environ.get("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "0") not in ("", "0")


def _write(kind: str, name: str, text: str) -> Path:
    directory, suffix = _FOLDERS[kind]
    rank = os.environ.get("RANK", "0")
    path = folder() / directory / f"proc_{rank}" / f"{name}_{time.time_ns()}.{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def save_graph(module: fx.GraphModule, name: str) -> Path:
    """Writes the FX graph as Python and returns the file."""
    return _write("fx", name, module.print_readable(print_output=False))


def save_program(text: Callable[[], str], name: str) -> Path:
    """Writes the StableHLO module as text and returns the file."""
    return _write("stablehlo", name, text())
