"""Losses and their gradients against CPU torch."""

from __future__ import annotations

import pytest
import torch
from emulate import check, run
from torch.nn import functional

aten = torch.ops.aten
REDUCTIONS = [0, 1, 2]


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_regression_losses(reduction: int) -> None:
    x, y = randn(3, 4), randn(3, 4, seed=1)
    g = randn(3, 4, seed=2) if reduction == 0 else torch.tensor(2.0)
    check(aten.mse_loss.default, x, y, reduction)
    check(aten.mse_loss_backward.default, g, x, y, reduction)
    for beta in (1.0, 0.3):
        check(aten.smooth_l1_loss.default, x, y, reduction, beta)
        check(aten.smooth_l1_loss_backward.default, g, x, y, reduction, beta)
        check(aten.huber_loss.default, x, y, reduction, beta)
        check(aten.huber_loss_backward.default, g, x, y, reduction, beta)
    signs = y.sign()
    check(aten.soft_margin_loss.default, x, signs, reduction)
    check(aten.soft_margin_loss_backward.default, g, x, signs, reduction)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_elements_are_rounded_at_the_cpus_steps(reduction: int, dtype: torch.dtype) -> None:
    x, y = randn(320).to(dtype), randn(320, seed=1).to(dtype)
    g = randn(320, seed=2).to(dtype) if reduction == 0 else torch.tensor(0.7, dtype=dtype)
    exact = {"rtol": 0, "atol": 0}
    check(aten.mse_loss.default, x, y, reduction, **exact)
    check(aten.mse_loss_backward.default, g, x, y, reduction, **exact)
    check(aten.smooth_l1_loss.default, x, y, reduction, 0.3, **exact)
    one_ulp = {"rtol": torch.finfo(dtype).eps, "atol": 0}  # float32 inside, where the order of factors shows
    check(aten.smooth_l1_loss_backward.default, g, x, y, reduction, 0.3, **one_ulp)
    check(aten.huber_loss.default, x, y, reduction, 0.3, **exact)
    check(aten.huber_loss_backward.default, g, x, y, reduction, 0.3, **exact)
    p, t, w = (torch.sigmoid(randn(320, seed=s)).to(dtype) for s in (3, 4, 5))
    for weight in (None, w):
        check(aten.binary_cross_entropy.default, p, t, weight, reduction, **exact)
        check(aten.binary_cross_entropy_backward.default, g, p, t, weight, reduction, **exact)
        check(aten.binary_cross_entropy_with_logits.default, x, t, weight, w, reduction, **exact)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_soft_margin_overflows_where_the_cpu_does(reduction: int) -> None:
    x = torch.tensor([-12.0, -11.0, -5.0, 0.5, 20.0], dtype=torch.float16)
    y, g = torch.ones(5, dtype=torch.float16), torch.ones(5 if reduction == 0 else (), dtype=torch.float16)
    check(aten.soft_margin_loss.default, x, y, reduction)
    check(aten.soft_margin_loss_backward.default, g, x, y, reduction, rtol=0, atol=0)


def test_mean_of_nothing_is_nan() -> None:
    check(aten.mse_loss.default, torch.empty(0), torch.empty(0), 1)
    check(aten.mse_loss.default, torch.empty(0), torch.empty(0), 2)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy(reduction: int) -> None:
    x, y, w = torch.tensor([0.0, 0.2, 1.0, 0.9]), torch.tensor([0.0, 1.0, 0.0, 0.5]), torch.tensor([1.0, 2.0, 0.5, 3.0])
    g = torch.ones(4) if reduction == 0 else torch.tensor(1.0)
    for weight in (None, w):
        check(aten.binary_cross_entropy.default, x, y, weight, reduction)
        check(aten.binary_cross_entropy_backward.default, g, x, y, weight, reduction)
    z = torch.tensor([-200.0, 0.3, 200.0, 1.0])
    check(aten.binary_cross_entropy_with_logits.default, z, y, w, torch.tensor([2.0]), reduction)


def test_probabilities_are_checked() -> None:
    for x, y, which in (([1.5], [0.0], "input"), ([0.5], [2.0], "target")):
        with pytest.raises(RuntimeError, match=f"all elements of {which} should be between 0 and 1"):
            run(aten.binary_cross_entropy.default, (torch.tensor(x), torch.tensor(y)), {})


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_negative_log_likelihood(reduction: int, weighted: bool) -> None:
    x, t = functional.log_softmax(randn(4, 3), 1), torch.tensor([0, 2, -100, 1])
    w = torch.tensor([1.0, 0.5, 2.0]) if weighted else None
    g = randn(4) if reduction == 0 else torch.tensor(2.0)
    _, total = check(aten.nll_loss_forward.default, x, t, w, reduction, -100)
    check(aten.nll_loss_backward.default, g, x, t, w, reduction, -100, total)
    image, where = functional.log_softmax(randn(2, 3, 2, 2), 1), torch.tensor([[[0, 1], [2, 1]], [[1, 1], [0, 2]]])
    g = randn(2, 2, 2) if reduction == 0 else torch.tensor(2.0)
    _, total = check(aten.nll_loss2d_forward.default, image, where, w, reduction, 1)
    check(aten.nll_loss2d_backward.default, g, image, where, w, reduction, 1, total)


def test_negative_log_likelihood_corner_cases() -> None:
    check(aten.nll_loss_forward.default, torch.randn(3), torch.tensor(1), None, 1, -100)
    check(aten.nll_loss_forward.default, torch.randn(2, 3), torch.tensor([-100, -100]), None, 1, -100)
    check(aten.nll_loss_forward.default, torch.empty(0, 3), torch.empty(0, dtype=torch.int64), None, 1, -100)
    for bad in (3, -1):
        with pytest.raises(IndexError, match="out of bounds"):
            run(aten.nll_loss_forward.default, (torch.randn(1, 3), torch.tensor([bad]), None, 1, -100), {})


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("p", [1, 2])
def test_multi_margin(reduction: int, p: int) -> None:
    x, t, w = randn(3, 4), torch.tensor([0, 3, 1]), torch.tensor([1.0, 2.0, 0.5, 1.0])
    g = randn(3) if reduction == 0 else torch.tensor(2.0)
    for weight in (None, w):
        check(aten.multi_margin_loss.default, x, t, p, 0.7, weight, reduction)
        check(aten.multi_margin_loss_backward.default, g, x, t, p, 0.7, weight, reduction)
    check(aten.multi_margin_loss.default, x[0], t[0], p, 1, None, reduction)
    with pytest.raises(RuntimeError, match="target out of range"):
        run(aten.multi_margin_loss.default, (x, torch.tensor([0, 4, 1])), {})


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_multilabel_margin(reduction: int) -> None:
    x, t = randn(2, 4), torch.tensor([[3, 0, -1, 1], [-1, 2, 0, 1]])
    g = randn(2) if reduction == 0 else torch.tensor(2.0)
    _, is_target = check(aten.multilabel_margin_loss_forward.default, x, t, reduction)
    check(aten.multilabel_margin_loss_backward.default, g, x, t, reduction, is_target)
    check(aten.multilabel_margin_loss_forward.default, x[0], t[0], reduction)


@pytest.mark.parametrize("concatenated", [False, True])
def test_ctc(concatenated: bool) -> None:
    log_probs = functional.log_softmax(randn(7, 3, 5), 2)
    targets = torch.tensor([[1, 1, 2], [3, 4, 0], [2, 0, 0]])
    inputs, lengths = [7, 5, 2], [3, 2, 1]
    if concatenated:
        targets = torch.cat([targets[i, :n] for i, n in enumerate(lengths)])
    nll, alpha = run(aten._ctc_loss.default, (log_probs, targets, inputs, lengths), {})
    want, want_alpha = aten._ctc_loss.default(log_probs, targets, inputs, lengths)
    torch.testing.assert_close(nll, want)
    assert alpha.shape == want_alpha.shape
    g = torch.tensor([1.0, 2.0, 0.5])
    got = run(aten._ctc_loss_backward.default, (g, log_probs, targets, inputs, lengths, nll, alpha, 0), {})
    expected = aten._ctc_loss_backward.default(g, log_probs, targets, inputs, lengths, want, want_alpha, 0)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_impossible_alignments_are_infinite_or_zeroed() -> None:
    log_probs, targets = functional.log_softmax(randn(2, 1, 4), 2), torch.tensor([[1, 1, 2]])
    nll, alpha = run(aten._ctc_loss.default, (log_probs, targets, [2], [3]), {})
    assert nll.item() == float("inf")
    args = (torch.ones(1), log_probs, targets, [2], [3], nll, alpha, 0, True)
    assert torch.equal(run(aten._ctc_loss_backward.default, args, {}), torch.zeros(2, 1, 4))
