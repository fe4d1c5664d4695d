"""Activations and their gradients, forward and backward through autograd, on extreme values too."""

from __future__ import annotations

import emulate
import pytest
import torch
from emulate import Lowered, check, compare
from torch.nn import functional as F

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")
EXTREMES = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 6.0, 20.5, -20.5, 88.0, 1e4, -1e4]

ACTIVATIONS = {
    "celu": lambda x: F.celu(x, 0.7),
    "elu": lambda x: F.elu(x, 0.7),
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "hardshrink": lambda x: F.hardshrink(x, 0.4),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 2.0),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "logsigmoid": F.logsigmoid,
    "mish": F.mish,
    "relu": F.relu,
    "relu6": F.relu6,
    "selu": F.selu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "softplus": lambda x: F.softplus(x, 2.0, 5.0),
    "softshrink": lambda x: F.softshrink(x, 0.4),
    "softsign": F.softsign,
    "tanh": torch.tanh,
    "tanhshrink": F.tanhshrink,
    "threshold": lambda x: F.threshold(x, 0.3, -2.0),
    "logit": lambda x: torch.logit(x, 0.1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_forward(name, dtype):
    x = torch.tensor(EXTREMES)
    if name.startswith("gelu"):  # torch's own vectorised kernel answers NaN at infinity
        x = x[~x.isinf()]
    check(ACTIVATIONS[name], x.to(dtype))


def gradient(run, x, *rest):
    leaves = [t.clone().requires_grad_() for t in (x, *rest)]
    out = run(*leaves)
    return torch.autograd.grad(out, leaves, torch.linspace(-1, 2, out.numel(), dtype=out.dtype).reshape(out.shape))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_backward(name):
    x = torch.linspace(-4, 4, 33).double() + 0.01
    want = gradient(ACTIVATIONS[name], x)
    with Lowered(strict=True):
        got = gradient(ACTIVATIONS[name], x)
    compare(got, want)


def test_prelu_and_glu():
    x, w = torch.randn(2, 3, 4), torch.randn(3)
    for run, args in ((F.prelu, (x, w)), (lambda t: F.glu(t, 2), (x,))):
        want = gradient(run, *args)
        with Lowered(strict=True):
            got = gradient(run, *args)
        compare(got, want)


def test_parameters_are_operands():
    x = torch.randn(8)
    emulate._programs.clear()
    for slope in (0.1, 0.2, 0.3):
        check(aten.leaky_relu.default, x, slope)
        check(aten.elu.default, x, slope)
    assert len(emulate._programs) == 2


def test_in_place():
    for op, args in ((aten.relu_.default, ()), (aten.hardtanh_.default, (-0.5, 0.5)), (aten.silu_.default, ())):
        check(op, torch.randn(5), *args)
    check(aten.leaky_relu_.default, torch.randn(3, 4)[:, 1:3], 0.1)


def test_complex():
    z = torch.randn(4, dtype=torch.complex64)
    check(aten.silu.default, z)
    check(aten.sigmoid_backward.default, z, z)
    check(aten.tanh_backward.default, z, z)
