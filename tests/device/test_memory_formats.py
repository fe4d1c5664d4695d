"""channels_last and channels_last_3d go through layers and their gradients as on the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._prims_common import compare_tensor_meta

from tests.databases.both import equal

D = "neuron"
F = torch.nn.functional
LAST, LAST_3D = torch.channels_last, torch.channels_last_3d


def _weight(x: torch.Tensor, *shape: int) -> torch.Tensor:
    return torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape).to(x.device, x.dtype)


LAYERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "conv": lambda x: F.conv2d(x, _weight(x, 3, 4, 3, 3)),
    "conv, weight in channels_last": lambda x: F.conv2d(x, _weight(x, 3, 4, 3, 3).to(memory_format=LAST)),
    "conv, only the weight": lambda x: F.conv2d(x.contiguous(), _weight(x, 3, 4, 3, 3).to(memory_format=LAST)),
    "depthwise conv": lambda x: F.conv2d(x, _weight(x, 4, 1, 3, 3), groups=4, padding=1),
    "conv_transpose": lambda x: F.conv_transpose2d(x, _weight(x, 4, 3, 3, 3)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, _weight(x, 4), _weight(x, 4), training=True),
    "batch_norm, evaluating": lambda x: F.batch_norm(x, _weight(x, 4), _weight(x, 4) + 2),
    "instance_norm": lambda x: F.instance_norm(x),
    "layer_norm": lambda x: F.layer_norm(x, (6, 6)),
    "max_pool": lambda x: F.max_pool2d(x, 2),
    "avg_pool": lambda x: F.avg_pool2d(x, 2),
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool2d(x, 3),
    "adaptive_avg_pool to one": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive_max_pool": lambda x: F.adaptive_max_pool2d(x, 3),
    "max_unpool": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "antialiased": lambda x: F.interpolate(x, size=3, mode="bilinear", antialias=True),
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "hardswish": F.hardswish,
    "prelu": lambda x: F.prelu(x, _weight(x, 4)),
    "softmax": lambda x: x.softmax(1),
    "add": lambda x: x + x,
    "a row": lambda x: x + _weight(x, 4, 1, 1),
    "mixed": lambda x: x + x.contiguous(),
    "mixed, the other way": lambda x: x.contiguous() + x,
    "where": lambda x: torch.where(x > 0, x, x.contiguous()),
    "cat": lambda x: torch.cat([x, x], 1),
    "cat, mixed": lambda x: torch.cat([x, x.contiguous()], 1),
    "pad": lambda x: F.pad(x, (1, 1, 1, 1)),
    "pad, reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "pad, replicate": lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
    "pad, circular": lambda x: F.pad(x, (1, 1, 1, 1), mode="circular"),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "grid_sample": lambda x: F.grid_sample(
        x, torch.zeros(2, 3, 3, 2, device=x.device, dtype=x.dtype), align_corners=False
    ),
    "roll": lambda x: x.roll(1, 2),
    "roll twice": lambda x: x.roll((1, 2), (2, 3)),
    "roll by nothing": lambda x: x.roll(0, 2),
    "roll flat": lambda x: x.roll(1),
    "flip": lambda x: x.flip(2),
    "clone": lambda x: x.clone(),
    "clone to contiguous": lambda x: x.clone(memory_format=torch.contiguous_format),
    "contiguous": lambda x: x.contiguous(),
    "another dtype": lambda x: x.double(),
    "to channels_last": lambda x: x.contiguous().to(memory_format=LAST),
    "a slice": lambda x: x[:, :2] * 1,
    "permute": lambda x: x.permute(0, 2, 3, 1) * 1,
    "mean": lambda x: x.mean((2, 3), keepdim=True),
    "one sample": lambda x: F.conv2d(x[:1], _weight(x, 3, 4, 3, 3)),
    "one channel": lambda x: x[:, :1].sin() * 2,
}
LAYERS_3D: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "conv": lambda x: F.conv3d(x, _weight(x, 3, 4, 2, 2, 2)),
    "conv_transpose": lambda x: F.conv_transpose3d(x, _weight(x, 4, 3, 2, 2, 2)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "max_pool": lambda x: F.max_pool3d(x, 2),
    "avg_pool": lambda x: F.avg_pool3d(x, 2),
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool3d(x, 2),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "trilinear": lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"),
    "relu and add": lambda x: F.relu(x) + x,
    "pad, reflect": lambda x: F.pad(x, (1,) * 6, mode="reflect"),
    "pad, replicate": lambda x: F.pad(x, (1,) * 6, mode="replicate"),
    "cat": lambda x: torch.cat([x, x], 1),
}


def _compare(layer: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
    """Value, gradient, and the strides of both that tell."""
    results = []
    for device in ("cpu", D):
        leaf = x.to(device).detach().requires_grad_()
        assert leaf.stride() == x.stride()
        out = layer(leaf)
        (gradient,) = torch.autograd.grad((out * out.detach()).sum(), leaf)
        results.append((out, gradient))
    want, got = results
    equal(got, want, "the result and the gradient")
    for g, w in zip(got, want, strict=True):
        compare_tensor_meta(g.detach().to("meta"), w.detach().to("meta"), check_strides=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_channels_last(name: str, dtype: torch.dtype) -> None:
    _compare(LAYERS[name], torch.randn(2, 4, 6, 6, dtype=dtype).to(memory_format=LAST))


@pytest.mark.parametrize("name", LAYERS_3D)
def test_channels_last_3d(name: str) -> None:
    _compare(LAYERS_3D[name], torch.randn(2, 4, 4, 4, 4).to(memory_format=LAST_3D))


def test_a_network_keeps_it() -> None:
    def run(device: str) -> Any:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(8, 8, 3, groups=2),
        )
        model = model.to(memory_format=LAST).to(device)
        x = torch.randn(2, 3, 8, 8).to(memory_format=LAST).to(device)
        out = model(x)
        out.square().sum().backward()
        optimizer = torch.optim.Adam(model.parameters())
        optimizer.step()
        parameters = list(model.parameters())
        return [out, *(p.grad for p in parameters), *(optimizer.state[p]["exp_avg"] for p in parameters)]

    got, want = run(D), run("cpu")
    equal(got, want, "the network")
    assert got[0].is_contiguous(memory_format=LAST) and not got[0].is_contiguous()
    assert [t.stride() for t in got] == [t.stride() for t in want]


RESIZED: dict[str, Callable[[str, torch.Tensor], Any]] = {
    "add": lambda d, out: torch.add(torch.ones(3, 2, device=d), 1, out=out),
    "mm": lambda d, out: torch.mm(torch.ones(3, 2, device=d), torch.ones(2, 2, device=d), out=out),
    "sum": lambda d, out: torch.sum(torch.ones(3, 2, device=d), 0, out=out),
    "cat": lambda d, out: torch.cat([torch.ones(3, device=d)] * 2, out=out),
    "index_select": lambda d, out: torch.index_select(torch.ones(3, device=d), 0, torch.tensor([0], device=d), out=out),
    "cumsum": lambda d, out: torch.cumsum(torch.ones(3, device=d), 0, out=out),
    "linalg.inv": lambda d, out: torch.linalg.inv(torch.eye(3, device=d), out=out),
}


@pytest.mark.parametrize("name", RESIZED)
def test_an_out_that_grows_warns_in_the_same_words(name: str) -> None:
    said, results = [], []
    for device in ("cpu", D):
        out = torch.zeros(2, 4, device=device)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            RESIZED[name](device, out)
        said.append([str(w.message).split(" (Triggered")[0] for w in caught])
        results.append(out)
    assert len(said[0]) == 1 and said[1] == said[0]
    equal(results[1], results[0], name)
    assert results[1].stride() == results[0].stride()


OVERLAPPING: dict[str, Callable[[str], Any]] = {
    "in place into a row that is expanded": lambda d: torch.zeros(1, 3, device=d).expand(2, 3).add_(1),
    "out= that is expanded": lambda d: torch.exp(
        torch.ones(2, 3, device=d), out=torch.zeros(1, 3, device=d).expand(2, 3)
    ),
    "in place from a part of itself": lambda d: (x := torch.arange(4.0, device=d))[1:].mul_(x[:-1]),
    "out= that is a part of an input": lambda d: torch.add((x := torch.arange(4.0, device=d))[1:], 1, out=x[:-1]),
    "copy_ from a part of itself": lambda d: (x := torch.arange(4.0, device=d))[1:].copy_(x[:-1]),
    "cat into an input": lambda d: torch.cat([(x := torch.ones(4, device=d))[:2], x[2:]], out=x),
    "index_select into its input": lambda d: torch.index_select(
        x := torch.ones(2, device=d), 0, torch.tensor([0, 1], device=d), out=x
    ),
    "gather into its index": lambda d: torch.gather(i := torch.tensor([0, 1], device=d), 0, i, out=i),
}


@pytest.mark.parametrize("name", OVERLAPPING)
def test_overlapping_memory_is_refused_in_the_same_words(name: str) -> None:
    with pytest.raises(RuntimeError) as want:
        OVERLAPPING[name]("cpu")
    with pytest.raises(RuntimeError) as got:
        OVERLAPPING[name](D)
    assert str(got.value).split(". Please")[0].split(" (argument")[0] == str(want.value).split(". Please")[0]


def test_the_whole_of_an_input_may_be_written() -> None:
    def run(d: str) -> list[torch.Tensor]:
        x, y = torch.arange(4.0, device=d), torch.arange(6.0, device=d)
        torch.add(x, 1, out=x)
        y[::2].add_(y[1::2])
        return [x, y]

    equal(run(D), run("cpu"), "the written tensors")
