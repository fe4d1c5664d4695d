"""Normalisation layers against CPU torch; statistics in the CPU's dtypes, which are not the meta kernels'."""

from __future__ import annotations

import pytest
import torch
from emulate import Lowered, check, run

aten = torch.ops.aten


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("affine", [False, True])
def test_layer_norm_and_its_gradient(affine: bool) -> None:
    x, g = randn(2, 3, 8) + 50.0, randn(2, 3, 8, seed=1)
    w, b = (randn(8, seed=2), randn(8, seed=3)) if affine else (None, None)
    _, mean, rstd = check(aten.native_layer_norm.default, x, [8], w, b, 1e-5)
    mask = [True, affine, affine]
    check(aten.native_layer_norm_backward.default, g, x, [8], mean, rstd, w, b, mask, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("parameters", ["none", "same", "float32"])
def test_saved_statistics_have_the_cpus_dtype(dtype: torch.dtype, parameters: str) -> None:
    x, like = randn(4, 6, 5, dtype=dtype), torch.float32 if parameters == "float32" else dtype
    wide, deep = (None if parameters == "none" else randn(n, dtype=like) for n in (5, 6))
    tolerance = {"rtol": 2e-2, "atol": 2e-2}
    check(aten.native_layer_norm.default, x, [5], wide, wide, 1e-5, **tolerance)
    check(aten.native_group_norm.default, x, deep, deep, 4, 6, 5, 3, 1e-5, **tolerance)
    check(aten._native_batch_norm_legit.no_stats, x, deep, deep, True, 0.1, 1e-5, **tolerance)
    running = torch.zeros(6, dtype=like), torch.ones(6, dtype=like)
    for op in (aten.native_batch_norm.default, aten._native_batch_norm_legit_functional.default):
        for training in (True, False):
            check(op, x, deep, deep, *running, training, 0.1, 1e-5, **tolerance)
    check(aten.batch_norm_update_stats.default, x, *running, 0.1, **tolerance)
    check(aten._batch_norm_with_update.default, x, deep, deep, *running, 0.1, 1e-5, **tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_batch_norm_normalises_with_what_it_saves(dtype: torch.dtype) -> None:
    x = torch.randint(-20, 20, (8, 6, 32), generator=torch.Generator().manual_seed(0)).to(dtype)
    check(aten._native_batch_norm_legit.no_stats, x, None, None, True, 0.1, 1e-5, rtol=0, atol=0)


def test_layer_norm_over_two_dimensions_and_of_nothing() -> None:
    check(aten.native_layer_norm.default, randn(2, 3, 4), [3, 4], randn(3, 4), None, 1e-5)
    check(aten.native_layer_norm.default, torch.empty(0, 4), [4], None, None, 1e-5)


def test_eps_is_an_operand() -> None:
    x = randn(3, 4)
    for eps in (1e-5, 0.5, 3.0):
        check(aten.native_layer_norm.default, x, [4], None, None, eps)


@pytest.mark.parametrize("affine", [False, True])
def test_group_norm_and_its_gradient(affine: bool) -> None:
    x, g = randn(2, 6, 5), randn(2, 6, 5, seed=1)
    w, b = (randn(6, seed=2), randn(6, seed=3)) if affine else (None, None)
    _, mean, rstd = check(aten.native_group_norm.default, x, w, b, 2, 6, 5, 3, 1e-5)
    args = (g, x, mean, rstd, w, 2, 6, 5, 3, [True, affine, affine])
    check(aten.native_group_norm_backward.default, *args, rtol=1e-4, atol=1e-4)


def test_batch_norm_updates_running_statistics_in_place() -> None:
    x, w, b = randn(4, 3, 5), randn(3, seed=1), randn(3, seed=2)
    check(aten.native_batch_norm.default, x, w, b, torch.zeros(3), torch.ones(3), True, 0.1, 1e-5)
    check(aten._native_batch_norm_legit.default, x, w, b, torch.zeros(3), torch.ones(3), True, 0.3, 1e-3)
    check(aten._native_batch_norm_legit.no_stats, x, None, b, True, 0.1, 1e-5)
    check(aten._batch_norm_with_update.default, x, w, b, torch.zeros(3), torch.ones(3), 0.1, 1e-5)
    check(aten._native_batch_norm_legit_functional.default, x, w, b, torch.zeros(3), torch.ones(3), True, 0.1, 1e-5)


def test_batch_norm_of_one_element_per_channel_has_infinite_variance() -> None:
    args = (randn(1, 3), None, None, torch.zeros(3), torch.ones(3), True, 0.1, 1e-5)
    check(aten.native_batch_norm.default, *args, rtol=1e-4, atol=1e-4)


def test_batch_norm_in_evaluation_reads_and_keeps_running_statistics() -> None:
    x, mean, var = randn(4, 3, 2, 2), randn(3), randn(3).abs()
    before = mean.clone()
    check(aten.native_batch_norm.default, x, None, None, mean, var, False, 0.1, 1e-5)
    last = x.contiguous(memory_format=torch.channels_last)
    check(aten.native_batch_norm.default, last, None, None, mean, var, False, 0.1, 1e-5)
    assert torch.equal(mean, before)


@pytest.mark.parametrize("train", [False, True])
def test_batch_norm_gradient(train: bool) -> None:
    x, g, w = randn(4, 3, 5), randn(4, 3, 5, seed=1), randn(3, seed=2)
    mean, var = randn(3), randn(3).abs() + 0.1
    _, save_mean, save_invstd = aten.native_batch_norm.default(x, w, None, mean.clone(), var.clone(), True, 0.1, 1e-5)
    args = (g, x, w, mean, var, save_mean, save_invstd, train, 1e-5, [True, True, True])
    check(aten.native_batch_norm_backward.default, *args, rtol=1e-4, atol=1e-4)


def test_synchronised_batch_norm_equals_one_process() -> None:
    """Two halves joined by the gather-stats ops give the statistics and gradient of the whole batch."""
    x, g, w, b = randn(6, 3, 4), randn(6, 3, 4, seed=1), randn(3, seed=2), randn(3, seed=3)
    parts, grads = x.split([2, 4]), g.split([2, 4])
    stats = [run(aten.batch_norm_stats.default, (p, 1e-5), {}) for p in parts]
    means, invstds = (torch.stack([s[i] for s in stats]) for i in (0, 1))
    counts = torch.tensor([8.0, 16.0])
    running = torch.zeros(3), torch.ones(3)
    args = (x, means, invstds, *running, 0.1, 1e-5, counts)
    mean, invstd = run(aten.batch_norm_gather_stats_with_counts.default, args, {})
    whole, want_mean, want_invstd = aten.native_batch_norm.default(
        x, w, b, want_running_mean := torch.zeros(3), want_running_var := torch.ones(3), True, 0.1, 1e-5
    )
    torch.testing.assert_close((mean, invstd), (want_mean, want_invstd))
    torch.testing.assert_close(running, (want_running_mean, want_running_var))
    out = [run(aten.batch_norm_elemt.default, (p, w, b, mean, invstd, 1e-5), {}) for p in parts]
    torch.testing.assert_close(torch.cat(out), whole)
    sums = [
        run(aten.batch_norm_backward_reduce.default, (q, p, mean, invstd, w, True, True, True), {})
        for p, q in zip(parts, grads, strict=True)
    ]
    dy, dy_xmu, gw, gb = (sum(s[i] for s in sums) for i in range(4))
    elemt = aten.batch_norm_backward_elemt.default
    gx = [run(elemt, (q, p, mean, invstd, w, dy, dy_xmu, counts.int()), {}) for p, q in zip(parts, grads, strict=True)]
    args = (g, x, w, None, None, want_mean, want_invstd, True, 1e-5, [True] * 3)
    want = aten.native_batch_norm_backward.default(*args)
    torch.testing.assert_close((torch.cat(gx), gw, gb), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm_and_its_gradient(dtype: torch.dtype) -> None:
    x, w, g = (randn(3, 16, dtype=dtype, seed=i) for i in range(3))
    w = w[0].clone()
    out, rstd = run(aten._fused_rms_norm.default, (x, [16], w, None), {})
    wide = [t.float().requires_grad_() for t in (x, w)]
    eps = torch.finfo(dtype).eps
    want = torch.nn.functional.rms_norm(wide[0], [16], wide[1], eps)
    tol = {"rtol": 1e-2, "atol": 1e-2} if dtype is torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(out.float(), want.detach(), **tol)
    grads = run(aten._fused_rms_norm_backward.default, (g, x, [16], rstd, w, [True, True]), {})
    expected = torch.autograd.grad(want, wide, g.float())
    for a, b in zip(grads, expected, strict=True):
        torch.testing.assert_close(a.float(), b, rtol=10 * tol["rtol"], atol=10 * tol["atol"])


def test_weight_norm_and_renorm() -> None:
    v, g = randn(4, 3), randn(4, 1, seed=1).abs()
    w, norms = check(aten._weight_norm_interface.default, v, g, 0)
    check(aten._weight_norm_interface_backward.default, randn(4, 3, seed=2), v, g, norms, 0, rtol=1e-4, atol=1e-5)
    assert w.shape == v.shape
    for p in (1.0, 2.0, float("inf")):
        check(aten.renorm.default, randn(3, 4), p, 0, 1.0)


def test_modules_train_without_fallback() -> None:
    torch.manual_seed(0)
    x = randn(4, 6, 5).requires_grad_()
    for layer in (torch.nn.LayerNorm(5), torch.nn.GroupNorm(2, 6), torch.nn.BatchNorm1d(6), torch.nn.InstanceNorm1d(6)):
        want = torch.autograd.grad(layer(x).square().sum(), x)
        with Lowered(strict=True):
            got = torch.autograd.grad(layer(x).square().sum(), x)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
