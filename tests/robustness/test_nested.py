"""Nested tensors of both layouts against the CPU: the jagged one, and the strided one as far as torch composes it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

D = "neuron"
F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def _parts(d: str, lengths: tuple[int, ...] = (2, 1, 3)) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, 4, generator=generator).to(d) for n in lengths]


def jagged(d: str, requires_grad: bool = False) -> torch.Tensor:
    return torch.nested.nested_tensor(_parts(d), layout=torch.jagged, device=d, requires_grad=requires_grad)


def strided(d: str, requires_grad: bool = False) -> torch.Tensor:
    return torch.nested.nested_tensor(_parts(d), device=d, requires_grad=requires_grad)


def _plain(t: Any) -> list[torch.Tensor]:
    """The parts of a nested tensor, or the tensor alone."""
    return list(t.unbind()) if t.is_nested else [t]


def _same(call: Callable[[str], Any]) -> None:
    want, got = call("cpu"), call(D)
    wanted, found = ([p for t in tree_leaves(r) for p in _plain(t)] for r in (want, got))
    assert len(wanted) == len(found) > 0
    for g, w in zip(found, wanted, strict=True):
        assert g.device.type == D and (g.shape, g.dtype, g.stride()) == (w.shape, w.dtype, w.stride())
        torch.testing.assert_close(g.detach().cpu(), w.detach(), rtol=1e-4, atol=1e-5)


def _ones(d: str, *shape: int) -> torch.Tensor:
    return torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape).to(d)


BOTH: dict[str, Callable[[torch.Tensor, str], Any]] = {
    "made": lambda x, d: x,
    "sin, relu, gelu, silu, tanh": lambda x, d: [x.sin(), x.relu(), F.gelu(x), F.silu(x), x.tanh()],
    "abs, neg, sqrt, isnan": lambda x, d: [x.abs(), -x, x.abs().sqrt(), x.isnan()],
    "arithmetic": lambda x, d: [x + x, x * 2, x / 2, x - x * x],
    "comparison": lambda x, d: [x == 0, x > 0, x >= 0],
    "masked_fill": lambda x, d: x.masked_fill(x > 0, 0),
    "in place": lambda x, d: x.clone().mul_(2).add_(x).neg_(),
    "linear": lambda x, d: F.linear(x, _ones(d, 5, 4), _ones(d, 5)),
    "linear without bias": lambda x, d: F.linear(x, _ones(d, 5, 4)),
    "layer_norm": lambda x, d: F.layer_norm(x, (4,), _ones(d, 4), _ones(d, 4)),
    "softmax": lambda x, d: x.softmax(-1),
    "sum over the last": lambda x, d: x.sum(-1, keepdim=True),
    "dropout of nothing": lambda x, d: F.dropout(x, 0.0),
    "to_padded_tensor": lambda x, d: x.to_padded_tensor(-7.0),
    "to_padded_tensor of a size": lambda x, d: x.to_padded_tensor(-7.0, (3, 5, 4)),
    "unbind and select": lambda x, d: [*x.unbind(), x[1]],
    "chunk": lambda x, d: list(x.chunk(2, -1)),
    "clone, detach, zeros_like": lambda x, d: [x.clone(), x.detach(), torch.zeros_like(x), torch.ones_like(x)],
    "another dtype": lambda x, d: x.to(torch.float64),
    "cat": lambda x, d: torch.cat([x, x], -1) if x.layout == torch.jagged else torch.cat([x, x], 0),
}


@pytest.mark.parametrize("layout", [jagged, strided])
@pytest.mark.parametrize("name", BOTH)
def test_op(name: str, layout: Callable[..., torch.Tensor]) -> None:
    _same(lambda d: BOTH[name](layout(d), d))


JAGGED: dict[str, Callable[[str], Any]] = {
    "as_nested_tensor": lambda d: torch.nested.as_nested_tensor(_parts(d), layout=torch.jagged),
    "from values and offsets": lambda d: torch.nested.nested_tensor_from_jagged(
        _ones(d, 5, 4), offsets=torch.tensor([0, 2, 5], device=d)
    ),
    "with an empty part": lambda d: torch.nested.nested_tensor(
        _parts(d, (2, 0, 3)), layout=torch.jagged, device=d
    ).exp(),
    "where": lambda d: torch.where((x := jagged(d)) > 0, x, x * 2),
    "masked_select": lambda d: torch.nested.masked_select(_ones(d, 3, 5), _ones(d, 3, 5) > 0),
    "matmul": lambda d: jagged(d) @ _ones(d, 4, 5),
    "beside a dense tensor": lambda d: jagged(d) + _ones(d, 1, 1, 4),
    "rms_norm": lambda d: F.rms_norm(jagged(d), (4,)),
    "softmax over the ragged dimension": lambda d: jagged(d).softmax(1),
    "reductions": lambda d: [
        jagged(d).sum(),
        jagged(d).sum(1),
        jagged(d).mean(1),
        jagged(d).amax(1),
        jagged(d).amin(1),
    ],
    "argmax": lambda d: jagged(d).argmax(-1, keepdim=True),
    "views": lambda d: jagged(d).unflatten(-1, (2, 2)).transpose(1, 2).transpose(1, 2).flatten(-2),
    "split": lambda d: list(jagged(d).split(2, -1)),
    "embedding": lambda d: F.embedding(
        torch.nested.nested_tensor([torch.tensor([0, 1]), torch.tensor([2])], layout=torch.jagged, device=d),
        _ones(d, 3, 4),
    ),
    "moved to the device": lambda d: jagged("cpu").to(d),
}


@pytest.mark.parametrize("name", JAGGED)
def test_jagged(name: str) -> None:
    _same(JAGGED[name])


GRADIENTS: dict[str, Callable[[torch.Tensor, str], torch.Tensor]] = {
    "linear": lambda x, d: F.linear(x, _ones(d, 5, 4)),
    "layer_norm": lambda x, d: F.layer_norm(x, (4,), _ones(d, 4), _ones(d, 4)),
    "to_padded_tensor": lambda x, d: x.to_padded_tensor(0.0).square(),
    "softmax": lambda x, d: x.softmax(-1),
    "gelu": lambda x, d: F.gelu(x),
    "relu": lambda x, d: x.relu(),
    "unbind": lambda x, d: torch.stack([part.square().sum() for part in x.unbind()]),
    "select": lambda x, d: x[2].square(),
}


@pytest.mark.parametrize("layout", [jagged, strided])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient(name: str, layout: Callable[..., torch.Tensor]) -> None:
    def run(d: str) -> torch.Tensor:
        x = layout(d, requires_grad=True)
        out = GRADIENTS[name](x, d)
        (out.to_padded_tensor(0.0) if out.is_nested else out).sin().sum().backward()
        return x.grad

    _same(run)


def test_gradients_of_weights() -> None:
    def run(d: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2)).to(d)
        model(jagged(d)).values().square().sum().backward()
        return [p.grad for p in model.parameters()]

    _same(run)


def test_attention_and_its_gradient() -> None:
    def run(d: str) -> list[torch.Tensor]:
        x = jagged(d, requires_grad=True)
        heads = x.unflatten(-1, (2, 2)).transpose(1, 2)
        out = F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(-2)
        out.values().square().sum().backward()
        return [out.values(), x.grad.values()]

    _same(run)


@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_that_nests_what_is_masked(norm_first: bool) -> None:
    """nn.TransformerEncoder in inference makes a strided nested tensor of a padded batch by itself."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=norm_first)
    encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first).eval()
    x, mask = torch.randn(2, 3, 8), torch.tensor([[False, False, True], [False, False, False]])
    with torch.no_grad():
        want = encoder(x, src_key_padding_mask=mask)
        got = copy.deepcopy(encoder).to(D)(x.to(D), src_key_padding_mask=mask.to(D))
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)


STRIDED: dict[str, Callable[[str], Any]] = {
    "bmm": lambda d: torch.bmm(strided(d), strided(d).transpose(1, 2)),
    "matmul": lambda d: torch.matmul(strided(d), strided(d).transpose(1, 2)),
    "from a mask": lambda d: torch._nested_tensor_from_mask(
        _ones(d, 2, 3, 4), torch.tensor([[True, True, False], [True, True, True]], device=d)
    ),
    "values": lambda d: strided(d).values(),
    "attention": lambda d: torch._scaled_dot_product_attention_math(*[strided(d).unsqueeze(1)] * 3)[0],
    "unsqueeze and transpose": lambda d: strided(d).unsqueeze(2).transpose(1, 2),
    "moved to the device": lambda d: strided("cpu").to(d),
    "fill_ and zero_": lambda d: [strided(d).fill_(2), strided(d).zero_()],
    "copy_": lambda d: strided(d).zero_().copy_(strided(d)),
    "embedding": lambda d: F.embedding(
        torch.nested.nested_tensor([torch.tensor([0, 1]), torch.tensor([2])], device=d), _ones(d, 3, 4)
    ),
}


@pytest.mark.parametrize("name", STRIDED)
def test_strided(name: str) -> None:
    _same(STRIDED[name])


@pytest.mark.parametrize("layout", [jagged, strided])
def test_back_on_the_cpu(layout: Callable[..., torch.Tensor]) -> None:
    for part, want in zip(layout(D).cpu().unbind(), _parts("cpu"), strict=True):
        assert torch.equal(part, want)
    assert "NestedTensor" in repr(layout(D)) or "nested_tensor" in repr(layout(D))


REFUSED: dict[str, Callable[[torch.Tensor], Any]] = {
    "exp": lambda x: x.exp(),
    "cumsum": lambda x: x.cumsum(-1),
    "topk": lambda x: x.topk(1),
    "log_softmax": lambda x: x.log_softmax(-1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_strided_layout_has_not_is_refused_in_words(name: str) -> None:
    with pytest.raises((NotImplementedError, RuntimeError)):
        REFUSED[name](strided("cpu"))
    with pytest.raises(NotImplementedError, match=r"aten::.*strided nested tensor on neuron.*layout=torch.jagged"):
        REFUSED[name](strided(D))
