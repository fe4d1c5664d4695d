"""Strides of results, and what out= arguments become, are the CPU's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

D = "neuron"


def _plain(d: str) -> torch.Tensor:
    return torch.arange(6.0, device=d).reshape(2, 3)


def _turned(d: str) -> torch.Tensor:
    return torch.arange(6.0, device=d).reshape(3, 2).t()


def _resized(d: str, shape: tuple[int, ...] = (1,), dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=d)


LAYOUTS: dict[str, Callable[[str], torch.Tensor]] = {
    "the first operand decides": lambda d: torch.xlogy(_plain(d), _turned(d)),
    "the first operand decides, turned": lambda d: torch.xlogy(_turned(d), _plain(d)),
    "a number does not": lambda d: _turned(d) + 1,
    "a row does not": lambda d: _turned(d) * torch.ones(3, device=d),
    "an expanded one does not": lambda d: torch.ones(1, 3, device=d).expand(2, 3) + _turned(d),
    "three operands": lambda d: torch.addcmul(torch.ones(3, device=d), _turned(d), _plain(d)),
    "an extent of 1": lambda d: torch.ones(1, 3, device=d).t().exp(),
    "an extent of 1, turned back": lambda d: torch.ones(3, 1, device=d).t() + torch.ones(3, 1, device=d).t(),
    "an extent of 1 of another dtype": lambda d: torch.ones(1, 3, dtype=torch.uint8, device=d).t().neg(),
    "no elements": lambda d: torch.ones(2, 0, device=d) + torch.ones(2, 0, device=d),
    "no elements beside a row": lambda d: torch.ones(1, 3, 0, 2, device=d) < torch.ones(2, device=d),
    "no elements and a number": lambda d: torch.ones(3, 0, device=d).clamp(None, -1),
    "no elements of an outer product": lambda d: torch.outer(torch.ones(0, device=d), torch.ones(0, device=d)),
    "positions": lambda d: torch.nonzero(_plain(d) > 2),
    "positions of nothing": lambda d: torch.nonzero(_plain(d) > 9),
    "positions in a row": lambda d: torch.nonzero(torch.ones(3, device=d)),
    "channels last": lambda d: torch.ones(2, 3, 4, 5, device=d).to(memory_format=torch.channels_last).add(1),
    "channels last and a row": lambda d: (
        torch.ones(2, 3, 4, 5, device=d).to(memory_format=torch.channels_last) + torch.ones(3, 1, 1, device=d)
    ),
    "a slice with holes": lambda d: torch.ones(4, 6, device=d)[:, ::2].t().exp(),
    "copysign of windows": lambda d: torch.copysign(torch.ones(4, device=d).as_strided((2, 3), (1, 1)), 1.0),
    "out= grows as the operand lies": lambda d: torch.log1p(_turned(d), out=_resized(d)),
    "out= of three operands grows": lambda d: torch.addcdiv(_turned(d), _turned(d), _turned(d), out=_resized(d)),
    "out= keeps its own strides": lambda d: torch.exp(_plain(d), out=torch.zeros(3, 2, device=d).t()),
    "nonzero into out=": lambda d: torch.nonzero(_plain(d), out=_resized(d, (1, 1), torch.int64)),
    "masked_select into out=": lambda d: torch.masked_select(_plain(d), _plain(d) > 2, out=_resized(d, (2, 2))),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name: str) -> None:
    got, want = LAYOUTS[name](D), LAYOUTS[name]("cpu")
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got.cpu(), want, equal_nan=True)


def test_growing_an_output_warns() -> None:
    out = torch.zeros(2, device=D)
    with pytest.warns(UserWarning, match="An output with one or more elements was resized since it had shape"):
        torch.exp(torch.ones(3, device=D), out=out)
    assert out.tolist() == torch.ones(3).exp().tolist()


def test_an_empty_output_grows_without_warning(recwarn: pytest.WarningsRecorder) -> None:
    out = torch.zeros(0, device=D)
    torch.exp(torch.ones(3, device=D), out=out)
    assert out.shape == (3,) and not recwarn.list


def test_one_tensor_twice_in_a_list() -> None:
    def run(d: str) -> list[float]:
        x, y = torch.tensor([16.0, 81.0], device=d), torch.arange(6.0, device=d)
        torch._foreach_sqrt_([x, x])
        torch._foreach_add_([y[:4], y[2:]], [torch.ones(4, device=d)] * 2)
        return x.tolist() + y.tolist()

    assert run(D) == run("cpu")
