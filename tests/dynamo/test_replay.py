"""A graph's call goes straight into the core, which runs a call that looks like the last one without making a key."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_neuronx import _C
from torch_neuronx.dynamo import backend, metrics

D = "neuron"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    metrics.clear()
    torch.manual_seed(0)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What AOTAutograd was given."""
    calls: list[Any] = []
    compile_ = backend._compile

    def remember(*args: Any, **kwargs: Any) -> Any:
        calls.append(compile_(*args, **kwargs))
        return calls[-1]

    monkeypatch.setattr(backend, "_compile", remember)
    return calls


def compiled(f: Callable, **more: Any) -> Callable:
    return torch.compile(f, backend="neuron", fullgraph=True, **more)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_no_python_of_ours_is_called(made: list[Any], mode: str) -> None:
    call = compiled(lambda x: x * 2 + 1, mode=mode)
    for k in range(3):
        assert call(torch.full((3,), float(k), device=D)).tolist() == [2 * k + 1] * 3
    assert [type(c) for c in made] == [_C.GraphCall]
    assert made[0]._boxed_call


def graph(made: list[Any], f: Callable, *args: torch.Tensor) -> Callable[..., list[torch.Tensor]]:
    """The graph of a function that returns a list, without Dynamo, which would make another for other layouts."""
    with torch.no_grad():
        torch.compile(f, backend="neuron", dynamic=False)(*args)
    return lambda *given: made[-1](list(given))


def test_other_layouts_dtypes_and_offsets_are_seen(made: list[Any]) -> None:
    base = torch.arange(24.0)
    run = graph(made, lambda x: [x * 2, x.sum(0)], base.to(D)[:6].view(2, 3))
    there = base.to(D)
    views = [
        lambda b: b[:6].view(2, 3),
        lambda b: b[6:12].view(2, 3),
        lambda b: b[6:12].view(3, 2).t(),
        lambda b: b.view(4, 6)[1:3, ::2],
        lambda b: b[:6].view(2, 3),
        lambda b: b[:6].clone().view(2, 3),
        lambda b: b[12:18].view(2, 3).t().contiguous().t(),
    ]
    for view in (*views, *reversed(views)):
        for out, wanted in zip(run(view(there)), (view(base) * 2, view(base).sum(0)), strict=True):
            torch.testing.assert_close(out.cpu(), wanted, rtol=0, atol=0)


def test_storages_that_become_one_and_one_that_becomes_two(made: list[Any]) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        x.add_(1)
        return [x * y]

    run = graph(made, f, torch.ones(3, device=D), torch.ones(3, device=D))  # reads both, then writes the first
    for same in (False, True, False, False, True, True):
        x = torch.ones(3, device=D)
        y = x if same else torch.ones(3, device=D)
        (out,) = run(x, y)
        assert (out.tolist(), x.tolist()) == ([2.0] * 3, [2.0] * 3)
    (record,) = metrics.get_dynamo_metrics()
    assert record["executables"] == 2


def test_memory_that_nobody_wrote(made: list[Any]) -> None:
    run = graph(made, lambda x: [x * 0 + 1], torch.ones(3, device=D))
    for x in (torch.ones(3, device=D), torch.empty(3, device=D), torch.ones(3, device=D), torch.empty(3, device=D)):
        assert run(x)[0].shape == (3,)


def test_arguments_and_their_views_come_back() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.mul_(2)
        return x, y.view(2, 3).t(), y + 1, None, 3

    call = compiled(f)
    for k in range(3):
        x, y = torch.ones(4, device=D), torch.arange(6.0, device=D) + k
        a, b, c, none, three = call(x, y)
        assert a is x
        assert b._typed_storage()._cdata == y._typed_storage()._cdata
        assert (b.stride(), c.tolist(), none, three) == ((1, 3), (torch.arange(6.0) + k + 1).tolist(), None, 3)
        assert x.tolist() == [2.0] * 4


def test_the_list_is_emptied_and_the_arguments_let_go(made: list[Any]) -> None:
    graph(made, lambda x: [x + 1], torch.ones(3, device=D))
    for _ in range(3):
        x = torch.ones(3, device=D)
        gone, given = weakref.ref(x), [x]
        del x
        made[-1](given)
        assert given == []
        assert gone() is None


def test_random_numbers_are_drawn_at_each_call() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5)

    x = torch.ones(64, device=D)
    torch.neuron.manual_seed(5)
    call = compiled(f)
    there = [call(x).tolist() for _ in range(3)]
    torch.neuron.manual_seed(5)
    assert there == [f(x).tolist() for _ in range(3)]
    assert there[0] != there[1]


def test_executables_that_were_let_go_are_obtained_again() -> None:
    call, x = compiled(lambda x: x - 3), torch.ones(3, device=D)
    for _ in range(2):
        assert call(x).tolist() == [-2.0] * 3
        assert call(x).tolist() == [-2.0] * 3
        _C.clear_executables()
    (record,) = metrics.get_dynamo_metrics()
    assert record["executables"] == 2


def test_constants_follow_the_arguments() -> None:
    weights = torch.arange(3.0, device=D)
    call = compiled(lambda x: x + torch.tensor([1.0, 2.0, 3.0], device=x.device) * weights)
    for k in range(3):
        assert call(torch.full((3,), float(k), device=D)).tolist() == [k, k + 2, k + 6]


def test_a_wrong_number_or_kind_of_arguments_is_an_error(made: list[Any]) -> None:
    run = graph(made, lambda x: [x + 1], torch.ones(3, device=D))
    with pytest.raises(RuntimeError, match="takes 1 arguments and was given 2"):
        run(torch.ones(3, device=D), torch.ones(3, device=D))
    with pytest.raises(TypeError, match="takes tensors, integers, floats and None, and got a str"):
        run("x")
    with pytest.raises(TypeError, match="one list of arguments"):
        made[-1](torch.ones(3, device=D))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        run(torch.ones(3))
    assert run(torch.ones(3, device=D))[0].tolist() == [2.0] * 3


def test_a_failing_check_is_raised_at_each_call() -> None:
    call = compiled(lambda x, i: x[i])
    x = torch.arange(3.0, device=D)
    for i, fails in ((1, False), (7, True), (2, False), (9, True)):
        index = torch.tensor([i], device=D)
        if fails:
            with pytest.raises(IndexError):
                call(x, index).cpu()
        else:
            assert call(x, index).tolist() == [float(i)]


def test_a_call_that_is_let_go_frees_its_graph(made: list[Any]) -> None:
    graph(made, lambda x: [x + 1], torch.ones(3, device=D))
    owner, call = weakref.ref(made[-1].owner), weakref.ref(made[-1])
    made[-1].itself = made[-1]  # a cycle
    made.clear()
    torch._dynamo.reset()
    gc.collect()
    assert call() is None
    assert owner() is None
