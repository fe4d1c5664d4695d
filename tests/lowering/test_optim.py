"""Fused optimizers and gradient scaling against torch's CPU kernels."""

from __future__ import annotations

import pytest
import torch
from emulate import check

aten = torch.ops.aten
SHAPES = ((3, 4), (5,), ())
STEPS = [torch.tensor(float(i + 1)) for i in range(3)]


def normal(dtype):
    return [torch.randn(s).to(dtype) for s in SHAPES]


def positive(dtype):
    return [torch.rand(s).to(dtype) for s in SHAPES]


def scaler(grad_scale, found_inf):
    tensor = lambda x: None if x is None else torch.tensor([x])  # noqa: E731
    return {"grad_scale": tensor(grad_scale), "found_inf": tensor(found_inf)}


def tolerance(dtype):
    return {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ["_fused_adam_", "_fused_adamw_"])
@pytest.mark.parametrize(
    ("amsgrad", "maximize", "decay", "scaling"),
    [(False, False, 0.0, (None, None)), (True, False, 0.1, (2.0, 0.0)), (True, True, 0.1, (None, 1.0))],
)
def test_adam(name, amsgrad, maximize, decay, scaling, dtype):
    largest = positive(dtype) if amsgrad else []
    args = (normal(dtype), normal(dtype), normal(dtype), positive(dtype), largest, STEPS)
    options = {"beta1": 0.9, "beta2": 0.99, "weight_decay": decay, "eps": 1e-8, "amsgrad": amsgrad}
    options |= {"maximize": maximize, **scaler(*scaling), **tolerance(dtype)}
    check(getattr(aten, name).default, *args, lr=0.01, **options)
    if scaling == (None, None):
        check(getattr(aten, name).tensor_lr, *args, lr=torch.tensor(0.01), **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("momentum", "first", "nesterov", "maximize", "decay", "scaling"),
    [
        (0.0, False, False, False, 0.0, (None, None)),
        (0.9, True, False, False, 0.1, (None, None)),
        (0.9, False, True, True, 0.1, (2.0, 0.0)),
        (0.9, False, False, True, 0.1, (2.0, 1.0)),
    ],
)
def test_sgd(momentum, first, nesterov, maximize, decay, scaling, dtype):
    buffers = normal(dtype) if momentum else []
    check(aten._fused_sgd_.default, normal(dtype), normal(dtype), buffers, weight_decay=decay, momentum=momentum,
          lr=0.1, dampening=0.0 if nesterov else 0.2, nesterov=nesterov, maximize=maximize, is_first_step=first,
          **scaler(*scaling), **tolerance(dtype))  # fmt: skip


@pytest.mark.parametrize(("maximize", "decay"), [(False, 0.0), (True, 0.1)])
def test_adagrad(maximize, decay):
    f32 = torch.float32
    options = {"lr": 0.1, "lr_decay": 0.01, "weight_decay": decay, "eps": 1e-8, "maximize": maximize}
    check(aten._fused_adagrad_.default, normal(f32), normal(f32), positive(f32), STEPS, **options)


def test_zero_decay_does_not_read_the_parameter():
    params = [torch.tensor([float("inf"), 1.0])]
    check(aten._fused_sgd_.default, params, [torch.ones(2)], [], weight_decay=0.0, momentum=0.0, lr=0.1, dampening=0.0,
          nesterov=False, maximize=False, is_first_step=True)  # fmt: skip


@pytest.mark.parametrize("bad", [None, float("inf"), float("nan")])
def test_unscale(bad):
    grads = [torch.randn(3), torch.randn(2, 2).bfloat16()]
    if bad is not None:
        grads[1][0, 1] = bad
    op = aten._amp_foreach_non_finite_check_and_unscale_.default
    check(op, grads, torch.zeros(1), torch.full((1,), 0.5))


@pytest.mark.parametrize("found", [0.0, 1.0])
@pytest.mark.parametrize("tracker", [0, 1])
@pytest.mark.parametrize("scale", [1024.0, 3e38])
def test_update_scale(found, tracker, scale):
    count = torch.tensor([tracker], dtype=torch.int32)
    check(aten._amp_update_scale_.default, torch.full((1,), scale), count, torch.tensor([found]), 2.0, 0.5, 2)
