"""Fourier transforms."""

from __future__ import annotations

import pytest
import torch
from emulate import check, run

from torch_neuronx.lowering.errors import Unsupported

aten = torch.ops.aten
X = torch.randn(2, 3, 4, 5)
Z = torch.randn(2, 3, 4, 5, dtype=torch.complex64)


def close(op, *args):
    """Values only: a transform has the strides of the meta kernel, which are not the CPU's."""
    got, want = run(op, args, {}), op(*args)
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    return want


@pytest.mark.parametrize("norm", [0, 1, 2])
@pytest.mark.parametrize("dims", [[3], [0], [1, 3], [3, 0], [0, 1, 2], [0, 1, 2, 3]])
def test_transforms(dims, norm):
    for forward in (True, False):
        close(aten._fft_c2c.default, Z, dims, norm, forward)
    half = close(aten._fft_r2c.default, X, dims, norm, True)
    close(aten._fft_r2c.default, X, dims, norm, False)
    close(aten._fft_c2r.default, half.contiguous(), dims, norm, X.shape[dims[-1]])


def test_double_and_awkward_lengths():
    for n in (1, 2, 7, 97, 128, 1000):
        check(torch.fft.fft, torch.randn(2, n, dtype=torch.complex128), rtol=1e-9, atol=1e-9)
        check(torch.fft.irfft, torch.fft.rfft(torch.randn(n, dtype=torch.float64)), n, rtol=1e-9, atol=1e-9)


def test_no_dims_and_no_batch():
    check(aten._fft_c2c.default, Z, [], 0, True)
    assert run(aten._fft_r2c.default, (torch.empty(0, 4), [1], 0, True), {}).shape == (0, 3)


def test_short_time():
    x, window = torch.randn(2, 200), torch.hann_window(32)

    def there_and_back(x):
        z = torch.stft(x, 32, 8, window=window, return_complex=True)
        return z, torch.istft(z, 32, 8, window=window, length=200)

    for got, want in zip(_lowered(there_and_back, x), there_and_back(x), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def _lowered(f, x):
    from emulate import Lowered

    with Lowered() as mode:
        out = f(x)
    assert set(mode.fallbacks) <= {"aten::equal"}  # returns a bool: the core's own
    return out


def test_half_precision_is_refused():
    with pytest.raises(Unsupported):
        run(aten._fft_r2c.default, (X.half(), [3], 0, True), {})
