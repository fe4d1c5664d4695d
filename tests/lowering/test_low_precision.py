"""bfloat16 and float16, bit for bit: kernels that the CPU rounds after every step, and those that it rounds once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from emulate import check
from torch import Tensor

aten = torch.ops.aten
HALVES = [torch.bfloat16, torch.float16]
COUNT = 512  # whole vectors: the CPU computes what is left over with other steps
Arguments = Callable[[Tensor, Tensor], tuple[Any, ...]]

# x is normal with deviation 2, y too; overload -> its arguments
ROWS: dict[str, tuple[Any, Arguments]] = {
    "xlogy": (aten.xlogy.Tensor, lambda x, y: (x, y.abs())),
    "xlogy-number": (aten.xlogy.Scalar_Self, lambda x, y: (0.3, y.abs())),
    "xlog1py": (aten.special_xlog1py.default, lambda x, y: (x, y.abs())),
    "entr": (aten.special_entr.default, lambda x, y: (x.abs(),)),
    "logit": (aten.logit.default, lambda x, y: (x.sigmoid(),)),
    "logit-eps": (aten.logit.default, lambda x, y: (x.sigmoid(), 0.1)),
    "logit-gradient": (aten.logit_backward.default, lambda x, y: (y, x.sigmoid(), 0.1)),
    "sigmoid-gradient": (aten.sigmoid_backward.default, lambda x, y: (y, x.sigmoid())),
    "silu-gradient": (aten.silu_backward.default, lambda x, y: (y, x)),
    "add-alpha": (aten.add.Tensor, lambda x, y: (x, y)),
    "floor_divide": (aten.floor_divide.default, lambda x, y: (8 * x, y)),
    "div-floor": (aten.div.Tensor_mode, lambda x, y: (8 * x, y)),
    **{
        f"pow{e}": (aten.pow.Tensor_Scalar, lambda x, y, e=e: (x.abs(), e))
        for e in (-3, -2, -1, -0.5, 0.3, 0.5, 1.5, 2, 3)
    },
}
OPTIONS: dict[str, dict[str, Any]] = {"add-alpha": {"alpha": 0.3}, "div-floor": {"rounding_mode": "floor"}}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_equals_the_cpu(name: str, dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(0)
    x, y = (2 * torch.randn(COUNT, generator=g).to(dtype) for _ in range(2))
    op, arguments = ROWS[name]
    check(op, *arguments(x, y), **OPTIONS.get(name, {}), rtol=0, atol=0)


NANS = torch.tensor([0x7F81, -0x10, 0x7FC1, 0x3F80, -1, 0x7F82], dtype=torch.int16)
MOVES: dict[str, Callable[[Tensor], Tensor]] = {
    "a slice": lambda x: x[::2].clone(),
    "a choice": lambda x: torch.where(torch.tensor([True, False] * 3, device=x.device), x, 0.0),
    "an index": lambda x: x[torch.tensor([0, 4, 1], device=x.device)],
    "a mask": lambda x: x[torch.tensor([True] * 5 + [False], device=x.device)],
    "cat": lambda x: torch.cat([x, x]),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 2)),
    "tril": lambda x: x.view(2, 3).tril(),
    "windows": lambda x: x.unfold(0, 2, 1).contiguous(),
    "index_copy": lambda x: x.index_copy(0, torch.tensor([1], device=x.device), x[:1]),
}


@pytest.mark.parametrize("name", MOVES)
def test_moving_bfloat16_keeps_its_bits(name):
    got, want = (MOVES[name](NANS.to(d).view(torch.bfloat16)).view(torch.int16).cpu() for d in ("neuron", "cpu"))
    assert torch.equal(got, want)


def test_writing_to_a_bfloat16_view_leaves_the_rest_of_its_storage():
    words = NANS.to("neuron")
    view = words.view(torch.bfloat16)
    view[1] = 2.0
    view[2:4].mul_(0.0)
    view.masked_fill_(torch.tensor([True] + [False] * 5, device="neuron"), 1.0)
    assert words.cpu()[[4, 5]].tolist() == NANS[[4, 5]].tolist()
