"""OpInfos with a sparse layout against the CPU: a few on every push, every one of them with `-m slow`."""

from __future__ import annotations

import pytest
import torch

from tests.sparse.opinfos import Unit, run, units
from torch_neuronx import no_fallback

QUICK = {
    ("abs", torch.sparse_coo, True),
    ("nan_to_num", torch.sparse_coo, False),
    ("mul", torch.sparse_csr, True),
    ("sum", torch.sparse_coo, True),
    ("sum", torch.sparse_csr, False),
    ("zeros_like", torch.sparse_bsr, False),
    ("masked.amax", torch.sparse_coo, False),
    ("to_sparse", torch.sparse_csr, False),
}
ALL = list(units())


def quick(unit: Unit) -> bool:
    return unit.dtype is torch.float32 and (unit.op.name, unit.layout, unit.backward) in QUICK


@pytest.mark.parametrize("unit", [u for u in ALL if quick(u)], ids=str)
def test_a_few(unit):
    with no_fallback():
        assert run(unit, most=2).agreed


@pytest.mark.slow
@pytest.mark.parametrize("unit", ALL, ids=str)
def test_all(unit):
    run(unit)
