"""Libraries that bring their own models: offline, quiet, one CPU thread to compare with, and nothing falls back."""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import pytest

import torch_neuronx


@pytest.fixture(autouse=True)
def nothing_falls_back(one_thread: None) -> Iterator[None]:
    torch_neuronx.clear_op_tracking()
    yield
    assert torch_neuronx.get_fallback_ops() == {}
