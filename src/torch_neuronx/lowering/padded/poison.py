"""For tests: what lies behind an input's elements is NaN, or 123 where there is none, instead of zeros."""

from __future__ import annotations

import os
from typing import Final

POISON: Final = "TORCH_NEURONX_POISON_PADDING"


def poisoned() -> bool:
    return os.environ.get(POISON, "0") not in ("", "0")
