"""Higher-order operators inside graphs."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as map_op

D = "neuron"


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(f):
    return torch.compile(f, backend="neuron", fullgraph=True)


@pytest.mark.parametrize("sign", [1, -1])
def test_cond(sign: int) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x @ x, (x,))

    x = sign * torch.rand(3, 3)
    torch.testing.assert_close(compiled(f)(x.to(D)).cpu(), f(x))


def test_cond_with_an_index_out_of_range_in_one_branch() -> None:
    def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x, i: x[i], lambda x, i: x[i * 0], (x, i))

    call = compiled(f)
    x, i = torch.rand(3, device=D), torch.tensor([7, 1], device=D)
    assert call(-x, i).shape == (2,)
    torch.neuron.synchronize()
    with pytest.raises(IndexError, match="out of"):
        call(x, i)
        torch.neuron.synchronize()


def test_cond_gradients() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x * x, (x,)).sum()

    for sign in (1, -1):
        x = (sign * torch.rand(3)).requires_grad_()
        y = x.detach().to(D).requires_grad_()
        compiled(f)(y).backward()
        f(x).backward()
        torch.testing.assert_close(y.grad.cpu(), x.grad)


def test_while_loop() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        start = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(lambda i, x: x.sum() < 100, lambda i, x: (i + 1, x * 2), (start, x))

    x = torch.rand(4)
    count, y = compiled(f)(x.to(D))
    n, want = 0, x
    while want.sum() < 100:
        n, want = n + 1, want * 2
    assert count.item() == n
    torch.testing.assert_close(y.cpu(), want)


@pytest.mark.parametrize("steps", [3, 12])
def test_scan(steps: int) -> None:
    def combine(carry: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        new = carry * 0.5 + x
        return new, new.relu()

    def f(init: torch.Tensor, xs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return scan(combine, init, xs, dim=0)

    init, xs = torch.randn(3), torch.randn(steps, 3)
    last, stacked = compiled(f)(init.to(D), xs.to(D))
    carry, rows = init, []
    for x in xs:
        carry, row = combine(carry, x)
        rows.append(row)
    torch.testing.assert_close(last.cpu(), carry)
    torch.testing.assert_close(stacked.cpu(), torch.stack(rows))


def test_associative_scan() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return associative_scan(lambda a, b: a * b, x, dim=0, combine_mode="generic")

    x = torch.rand(9, 3) + 0.5
    torch.testing.assert_close(compiled(f)(x.to(D)).cpu(), x.cumprod(0))


@pytest.mark.parametrize("rows", [3, 11])
def test_map(rows: int) -> None:
    def f(xs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return map_op(lambda x, y: (x @ y).tanh(), xs, y)

    xs, y = torch.randn(rows, 2, 3), torch.randn(3, 4)
    torch.testing.assert_close(compiled(f)(xs.to(D), y.to(D)).cpu(), (xs @ y).tanh())


def test_flex_attention() -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def causal(b, h, q, k):
        return q >= k

    def bias(score, b, h, q, k):
        return score + (q - k) * 0.1

    q, k, v = (torch.randn(1, 2, 16, 8) for _ in range(3))

    def f(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: object) -> torch.Tensor:
        return flex_attention(q, k, v, score_mod=bias, block_mask=mask)

    here = create_block_mask(causal, 1, 1, 16, 16, device="cpu")
    there = create_block_mask(causal, 1, 1, 16, 16, device=D)
    out = compiled(f)(q.to(D), k.to(D), v.to(D), there)
    torch.testing.assert_close(out.cpu(), f(q, k, v, here), rtol=1e-4, atol=1e-5)


def test_a_custom_op_of_torch_operators() -> None:
    @torch.library.custom_op("neuron_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    x = torch.randn(3)
    out = compiled(lambda x: twice(x) + 1)(x.to(D))
    torch.testing.assert_close(out.cpu(), x * 2 + 1)


def test_a_custom_op_whose_code_has_changed() -> None:
    """An executable on disk stands for what the operator did when it was made."""
    for factor in (3.0, 5.0):
        with torch.library._scoped_library("neuron_changed", "FRAGMENT") as library:
            library.define("times(Tensor x) -> Tensor")
            library.impl("times", lambda x, factor=factor: x * factor, "CompositeExplicitAutograd")
            library.impl("times", torch.empty_like, "Meta")
            torch._dynamo.reset()
            x = torch.randn(3)
            out = compiled(lambda x: torch.ops.neuron_changed.times(x) + 1)(x.to(D))
            torch.testing.assert_close(out.cpu(), x * factor + 1)
