"""A pytest plugin for sanitized runs: the sanitized core it is, and no test that starts or forks processes.

A started one would load torch under the sanitizer again, for half a minute. A forked one dies under ThreadSanitizer,
which does not follow a fork of a process with threads.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# An editable installation finds its package before PYTHONPATH is looked at.
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "_editable_skbc_torchneuron"]

STARTS_PROCESSES = frozenset({"python", "entry_point"})
FORKS = frozenset({"test_a_data_loader_pins"})


def pytest_configure(config: pytest.Config) -> None:
    from torch_neuronx import _C

    wanted = Path(os.environ["SANITIZED_PACKAGE"])
    if Path(_C.__file__).parent != wanted:
        raise pytest.UsageError(f"the core tested would be {_C.__file__}, not the sanitized one in {wanted}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def stays(item: pytest.Item) -> bool:
        return item.name not in FORKS and not STARTS_PROCESSES & set(getattr(item, "fixturenames", ()))

    left_out = [item for item in items if not stays(item)]
    items[:] = [item for item in items if stays(item)]
    config.hook.pytest_deselected(items=left_out)
