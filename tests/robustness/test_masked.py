"""torch.masked: masked tensors and the masked functions, against the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.masked import MaskedTensor, masked_tensor

from tests.databases.both import equal

D = "neuron"
pytestmark = pytest.mark.filterwarnings("ignore")  # every masked tensor says that it is a prototype


def _masked(d: str, requires_grad: bool = False) -> MaskedTensor:
    mask = torch.tensor([[True, False, True], [False, True, True]])
    return masked_tensor(torch.arange(6.0).view(2, 3).to(d), mask.to(d), requires_grad=requires_grad)


def _shown(m: Any) -> list[torch.Tensor]:
    """What is defined of it: the mask, and the data under it."""
    if not isinstance(m, MaskedTensor):
        return [m]
    data, mask = m.get_data(), m.get_mask()
    return [torch.where(mask, data, torch.zeros_like(data)), mask]


def _same(call: Callable[[str], Any]) -> None:
    got, want = (t for d in (D, "cpu") for t in [_shown(call(d))])
    equal(got, want, "a masked result")


UNARY = ("abs", "ceil", "cos", "exp", "isnan", "log", "neg", "round", "sigmoid", "sqrt", "square", "tanh")
BINARY = ("add", "sub", "mul", "div", "maximum", "eq", "gt", "le", "atan2", "fmod", "logaddexp")
REDUCED = ("sum", "mean", "prod", "amax", "amin", "argmax", "argmin")


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    _same(lambda d: getattr(torch, name)(_masked(d)))


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    _same(lambda d: getattr(torch, name)(_masked(d), _masked(d)))


@pytest.mark.parametrize("name", REDUCED)
def test_reductions(name: str) -> None:
    _same(lambda d: getattr(_masked(d), name)())
    _same(lambda d: getattr(_masked(d), name)(1))


OTHERS: dict[str, Callable[[str], Any]] = {
    "to_tensor": lambda d: _masked(d).to_tensor(7.0),
    "an index": lambda d: _masked(d)[0],
    "reshape": lambda d: _masked(d).reshape(3, 2),
    "t": lambda d: _masked(d).t(),
    "clone": lambda d: _masked(d).clone(),
    "moved": lambda d: _masked("cpu").to(d),
    "softmax": lambda d: _masked(d).softmax(1),
    "where": lambda d: torch.where(_masked(d).get_data() > 2, _masked(d), _masked(d)),
    "sparse": lambda d: _masked(d).to_sparse().to_dense(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str) -> None:
    _same(OTHERS[name])


def test_it_prints_as_on_the_cpu() -> None:
    assert repr(_masked(D)) == repr(_masked("cpu"))


def test_its_gradient() -> None:
    def run(d: str) -> Any:
        x = _masked(d, requires_grad=True)
        (x * x).sum().backward()
        return x.grad

    _same(run)


def test_other_masks_are_refused_in_the_same_words() -> None:
    def run(d: str) -> Any:
        return _masked(d) + masked_tensor(torch.ones(2, 3, device=d), torch.ones(2, 3, device=d) > 0)

    with pytest.raises(ValueError) as want:
        run("cpu")
    with pytest.raises(ValueError) as got:
        run(D)
    assert str(got.value) == str(want.value)


def _x(d: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Values, and a mask that leaves the second row nothing."""
    return (torch.arange(6.0).view(2, 3) - 2).to(d), torch.tensor([[True, False, True], [False, False, False]]).to(d)


FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    **{
        name: lambda x, m, name=name: getattr(torch.masked, name)(x, 1, mask=m)
        for name in (
            *("sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "median", "logsumexp"),
            *("softmax", "log_softmax", "softmin", "cumsum", "cumprod"),
        )
    },
    "norm": lambda x, m: torch.masked.norm(x, 2.0, 1, mask=m),
    "normalize": lambda x, m: torch.masked.normalize(x, 2.0, 1, mask=m),
    "std": lambda x, m: torch.masked.std(x, dim=1, unbiased=True, mask=m),
    "var": lambda x, m: torch.masked.var(x, dim=1, unbiased=False, mask=m),
    "logaddexp": lambda x, m: torch.masked.logaddexp(x, x, input_mask=m, other_mask=m),
    "sum without dim, in float64": lambda x, m: torch.masked.sum(x, mask=m, dtype=torch.float64),
    "amax, keepdim": lambda x, m: torch.masked.amax(x, 1, keepdim=True, mask=m),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str) -> None:
    _same(lambda d: FUNCTIONS[name](*_x(d)))


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "logsumexp", "softmax", "normalize", "var"])
def test_gradient_of_a_function(name: str) -> None:
    def run(d: str) -> torch.Tensor:
        x, mask = _x(d)
        out = FUNCTIONS[name](x.requires_grad_(), torch.tensor([[True], [True]], device=d) & mask[:1])
        return torch.autograd.grad(out.square().sum(), x)[0]

    _same(run)
