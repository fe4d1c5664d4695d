"""Strides of results where torch's meta kernels say something else than CPU torch gives."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import torch_neuronx

COLUMNS = torch.rand(10, 5).t().contiguous().t()
IMAGE = torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)

FRESH: dict[str, Callable[[str], torch.Tensor]] = {
    "copysign of columns": lambda d: torch.copysign(COLUMNS.to(d), torch.ones(5, device=d)),
    "floor division of columns": lambda d: torch.div(COLUMNS.to(d), torch.ones(5, device=d), rounding_mode="floor"),
    "binary cross entropy of columns": lambda d: F.binary_cross_entropy(
        COLUMNS.to(d), torch.ones(10, 5, device=d), reduction="none"
    ),
    "convolution of channels_last": lambda d: F.conv2d(IMAGE.to(d), torch.ones(2, 3, 2, 2, device=d)),
    "convolution with a channels_last weight": lambda d: F.conv2d(
        torch.ones(2, 3, 4, 5, device=d), torch.ones(2, 3, 2, 2, device=d).contiguous(memory_format=torch.channels_last)
    ),
    "transposed convolution of channels_last": lambda d: F.conv_transpose2d(
        IMAGE.to(d), torch.ones(3, 2, 2, 2, device=d)
    ),
    "batch norm of channels_last": lambda d: F.batch_norm(IMAGE.to(d), None, None, training=True),
    "batch norm of a turned tensor": lambda d: F.batch_norm(
        torch.rand(3, 4, 5).permute(2, 1, 0).to(d), None, None, training=True
    ),
    "replicated edges of channels_last": lambda d: F.pad(IMAGE.to(d), (1, 1, 1, 1), mode="replicate"),
    "real transform of a turned tensor": lambda d: torch.fft.rfft2(torch.rand(4, 5, 6).to(d), dim=(0, 1)),
    "inverse real transform of columns": lambda d: torch.fft.irfft(COLUMNS.to(d)),
    "right singular vectors": lambda d: torch.linalg.svd(COLUMNS.to(d), full_matrices=False)[2],
    "eigenvectors": lambda d: torch.linalg.eig(torch.rand(4, 4).to(d))[1],
    "least squares": lambda d: torch.linalg.lstsq(torch.rand(4, 3).to(d), torch.rand(4, 2).to(d))[0],
    "shuffled pixels of channels_last": lambda d: F.pixel_shuffle(
        torch.rand(1, 4, 2, 3).contiguous(memory_format=torch.channels_last).to(d), 2
    ),
    "xlogy of columns": lambda d: torch.xlogy(COLUMNS.to(d), torch.ones(5, device=d)),
    "flip of an extent of 1": lambda d: torch.ones(1, 3, device=d).t().flip(0),
    "difference the other way round": lambda d: torch.rsub(
        torch.ones(5, 10, 5, device=d).permute(2, 1, 0), torch.ones(5, 1, 5, device=d).transpose(0, 2)
    ),
    "angle of complex columns": lambda d: torch.angle(torch.complex(COLUMNS, COLUMNS).to(d)),
    "sum to no elements": lambda d: torch.ones(3, 0, 2, device=d).sum(0, keepdim=True),
    "variance to no elements": lambda d: torch.ones(2, 3, 0, device=d).var((0, 1), keepdim=True),
    "clamp of integers between fractions": lambda d: torch.clamp(
        torch.ones(1, 2, 3, 2, dtype=torch.int64, device=d).diagonal(-1, 3, 1), 0.5, 1.5
    ),
    "flip of no elements": lambda d: torch.ones(2, 1, 3, device=d)[..., 3::3].flip(0),
    "sort of no elements with holes": lambda d: torch.ones(2, 1, 3, device=d)[..., 3::3].sort(0)[0],
    "roll of no elements": lambda d: torch.ones(2, 1, 3, device=d)[..., 3::3].roll(1, 0),
    "roll of no elements along no dimension": lambda d: torch.ones(0, 1, device=d).roll(-1, -5),
    "flat roll of no elements": lambda d: torch.ones(2, 1, 3, device=d)[..., 3::3].roll(1),
    "sort of no elements": lambda d: torch.ones(0, device=d).unsqueeze(0).sort(dim=0, stable=True)[1],
    "diag_embed of columns": lambda d: torch.ones(4, 6, device=d).unfold(0, 1, 1).diag_embed(),
    "masked_fill of columns": lambda d: COLUMNS.to(d).masked_fill(COLUMNS.to(d) > 0.5, 0.0),
    "masked_fill of a row": lambda d: torch.ones(5, device=d).masked_fill(COLUMNS.to(d) > 0.5, 0.0),
    "index_fill of a slice with holes": lambda d: (
        torch.ones(3, 4, device=d)[:, ::2].t().index_fill(0, torch.tensor([0], device=d), 2.0)
    ),
    "index_copy of windows": lambda d: (
        torch.ones(12, device=d)
        .as_strided((2, 1, 1), (2, 1, 3))
        .index_copy(0, torch.tensor([0], device=d), torch.ones(1, 1, 1, device=d))
    ),
    "tril of windows": lambda d: torch.ones(12, device=d).as_strided((2, 1, 1), (2, 1, 3)).tril(),
    "geqrf": lambda d: torch.geqrf(torch.rand(4, 3).to(d))[0],
}


@pytest.mark.parametrize("name", FRESH)
def test_fresh_results_are_laid_out_as_on_the_cpu(name: str) -> None:
    got, want = FRESH[name]("neuron"), FRESH[name]("cpu")
    assert got.stride() == want.stride()
    assert got.is_contiguous(memory_format=torch.channels_last) == want.is_contiguous(memory_format=torch.channels_last)


RESIZED: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "unary": lambda x, out: torch.sqrt(x, out=out),
    "binary": lambda x, out: torch.add(x, x, out=out),
    "broadcasting": lambda x, out: torch.copysign(x, torch.ones(5, device=x.device), out=out),
    "reduction": lambda x, out: torch.sum(x, 0, out=out),
    "product": lambda x, out: torch.mm(x, x.t(), out=out),
    "size of complex numbers": lambda x, out: torch.abs(torch.complex(x, x), out=out),
    "angle of complex numbers": lambda x, out: torch.angle(torch.complex(x, x), out=out),
    "old cholesky": lambda x, out: torch.cholesky(x.t() @ x + torch.eye(5, device=x.device), out=out),
    "cholesky": lambda x, out: torch.linalg.cholesky(x.t() @ x + torch.eye(5, device=x.device), out=out),
}


@pytest.mark.parametrize("name", RESIZED)
def test_a_resized_out_argument_is_laid_out_as_on_the_cpu(name: str) -> None:
    outs = [torch.empty(0), torch.empty(0, device="neuron")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for out in outs:
            RESIZED[name](COLUMNS.to(out.device), out)
    assert outs[1].stride() == outs[0].stride()
    torch.testing.assert_close(outs[1].cpu(), outs[0], rtol=1e-4, atol=1e-5)


EMPTY = torch.empty
SEVERAL: dict[str, Callable[[str, list[torch.Tensor]], object]] = {
    "geqrf": lambda d, out: torch.geqrf(torch.rand(4, 3, device=d), out=out),
    "histogram": lambda d, out: torch.histogram(torch.rand(10, device=d), 5, out=out),
    "least squares": lambda d, out: torch.linalg.lstsq(
        torch.eye(3, device=d),
        torch.rand(3, 2, device=d),
        out=(*out, EMPTY(0, dtype=torch.int64, device=d), EMPTY(0, device=d)),
    ),
    "batch norm": lambda d, out: torch.native_batch_norm(
        torch.rand(2, 3, 4, device=d), None, None, None, None, True, 0.1, 1e-5, out=(*out, EMPTY(0, device=d))
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_out_arguments_are_resized(name: str) -> None:
    outs = {d: [torch.empty(0, device=d), torch.empty(0, device=d)] for d in ("cpu", "neuron")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for d, out in outs.items():
            SEVERAL[name](d, out)
    for got, want in zip(outs["neuron"], outs["cpu"], strict=True):
        assert (got.shape, got.stride()) == (want.shape, want.stride())


def test_an_out_argument_sized_by_data_stays_on_the_device() -> None:
    with torch_neuronx.no_fallback(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = torch.masked_select(torch.tensor(3.0, device="neuron"), torch.tensor(True, device="neuron"))
        out = torch.empty(0, device="neuron")
        torch.masked_select(torch.tensor(3.0, device="neuron"), torch.tensor(True, device="neuron"), out=out)
        where = torch.nonzero(
            torch.tensor([0, 1, 1], device="neuron"), out=torch.empty(0, dtype=torch.int64, device="neuron")
        )
    assert one.cpu().tolist() == out.cpu().tolist() == [3.0]
    assert where.cpu().tolist() == [[1], [2]]
