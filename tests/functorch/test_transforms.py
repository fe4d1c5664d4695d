"""torch.func: derivatives of functions, their compositions, and functions of modules."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

from tests.functorch.compare import D, same

F = torch.nn.functional


def _scalar(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x.flip(0)).pow(3).sum()


def _vector(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ x.t()).sum(1) * x[:, 0].exp()


def _x() -> torch.Tensor:
    return torch.randn(4, 3, dtype=torch.float64)


TRANSFORMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "grad": lambda x: grad(_scalar)(x),
    "grad of grad": lambda x: grad(lambda y: grad(_scalar)(y).sum())(x),
    "grad_and_value": lambda x: grad_and_value(_scalar)(x),
    "grad with aux": lambda x: grad(lambda y: (_scalar(y), y * 2), has_aux=True)(x),
    "grad of two arguments": lambda x: grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x.sin()),
    "vjp": lambda x: vjp(_vector, x)[1](torch.ones(4, dtype=x.dtype, device=x.device)),
    "jvp": lambda x: jvp(_vector, (x,), (x.cos(),)),
    "jvp of jvp": lambda x: jvp(lambda y: jvp(_vector, (y,), (y.cos(),))[1], (x,), (x,)),
    "jvp with aux": lambda x: jvp(lambda y: (_vector(y), y.exp()), (x,), (x,), has_aux=True),
    "jacrev": lambda x: jacrev(_vector)(x),
    "jacrev in chunks": lambda x: jacrev(_vector, chunk_size=2)(x),
    "jacfwd": lambda x: jacfwd(_vector)(x),
    "jacfwd of jacrev": lambda x: jacfwd(jacrev(_scalar))(x),
    "jacrev of jacfwd": lambda x: jacrev(jacfwd(_scalar))(x),
    "hessian": lambda x: hessian(_scalar)(x),
    "hessian-vector product, forward over reverse": lambda x: jvp(grad(_scalar), (x,), (x.cos(),))[1],
    "hessian-vector product, reverse over forward": lambda x: grad(lambda y: jvp(_scalar, (y,), (x.cos(),))[1])(x),
    "hessian-vector product, reverse over reverse": lambda x: vjp(grad(_scalar), x)[1](x.cos()),
    "torch.autograd.functional": lambda x: (
        torch.autograd.functional.hvp(_scalar, x, x.cos())[1],
        torch.autograd.functional.jacobian(_vector, x, vectorize=True, strategy="forward-mode"),
    ),
    "linearize": lambda x: (lambda out, push: (out, push(x.cos()), push(x)))(*linearize(_vector, x)),
    "functionalize": lambda x: functionalize(lambda y: y.clone().view(-1).mul_(2).add_(y.view(-1)))(x),
    "grad through writes": lambda x: grad(lambda y: _written(y).sum())(x),
    "jvp through writes": lambda x: jvp(_written, (x,), (x.cos(),)),
    "vmap of grad": lambda x: vmap(grad(lambda row: row.prod().sin()))(x),
    "vmap of jvp": lambda x: vmap(lambda row: jvp(torch.sin, (row,), (row,))[1])(x),
    "vmap of hessian": lambda x: vmap(hessian(lambda row: row.prod().sin()))(x),
    "grad of vmap": lambda x: grad(lambda y: vmap(torch.dot)(y, y.sin()).sum())(x),
    "jvp of vmap": lambda x: jvp(vmap(lambda row: row.softmax(0)), (x,), (x,)),
    "jacrev of a solution": lambda x: jacrev(lambda y: torch.linalg.solve(y.t() @ y, y[0]))(x),
    "complex": lambda x: grad(lambda y: torch.view_as_complex(y[:, :2].contiguous()).abs().sum())(x),
}


def _written(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[1:3].mul_(x[:2])
    y[:, 0] = x[:, 1].exp()
    return y.add_(1)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform(name: str) -> None:
    same(TRANSFORMS[name], _x())


def _network() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, padding=1),
        torch.nn.GroupNorm(2, 4),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.LayerNorm(16),
        torch.nn.Linear(16, 5),
    )


def test_gradients_of_each_sample() -> None:
    model = _network()
    parameters = {k: v.detach() for k, v in model.named_parameters()}

    def run(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        def loss(p: dict[str, torch.Tensor], sample: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(functional_call(model, p, (sample[None],)), target[None])

        return vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)

    x, y = torch.randn(3, 2, 6, 6), torch.tensor([0, 4, 2])
    got = same(run, parameters, x, y)
    device = copy.deepcopy(model).to(D)
    F.cross_entropy(device(x.to(D)[1:2]), y.to(D)[1:2]).backward()
    torch.testing.assert_close(got["0.weight"][1], device[0].weight.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("randomness", ["error", "different"])
def test_an_ensemble(randomness: str) -> None:
    models = [torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)) for _ in range(3)]
    base = copy.deepcopy(models[0]).to("meta")
    parameters, buffers = stack_module_state(models)

    def run(parameters: Any, buffers: Any, x: torch.Tensor) -> torch.Tensor:
        def call(p: Any, b: Any, sample: torch.Tensor) -> torch.Tensor:
            return functional_call(base, (p, b), (sample,))

        return vmap(call, in_dims=(0, 0, None), randomness=randomness)(parameters, buffers, x)

    x = torch.randn(5, 4)
    got = same(run, {k: v.detach() for k, v in parameters.items()}, buffers, x)
    torch.testing.assert_close(got[2].cpu(), models[2](x), rtol=1e-4, atol=1e-5)


def test_a_training_step_of_functions() -> None:
    model = torch.nn.Linear(3, 2)

    def run(weight: torch.Tensor, bias: torch.Tensor, x: torch.Tensor) -> dict[str, torch.Tensor]:
        parameters = {"weight": weight, "bias": bias}
        for _ in range(3):
            gradients = grad(lambda p: functional_call(model, p, x).square().mean())(parameters)
            parameters = {k: v - 0.1 * gradients[k] for k, v in parameters.items()}
        return parameters

    same(run, torch.randn(2, 3), torch.randn(2), torch.randn(6, 3))


def test_a_state_that_changes_is_functional() -> None:
    model = torch.nn.BatchNorm1d(3, affine=False)

    def run(mean: torch.Tensor, var: torch.Tensor, x: torch.Tensor) -> Any:
        buffers = {"running_mean": mean, "running_var": var, "num_batches_tracked": torch.tensor(0, device=x.device)}
        out = functional_call(model, buffers, (x,))
        return out, buffers

    got = same(run, torch.zeros(3), torch.ones(3), torch.randn(8, 3))
    assert int(got[1]["num_batches_tracked"]) == 1


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return 3 * ctx.saved_tensors[0] ** 2 * gradient

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor) -> torch.Tensor:
        return 3 * ctx.saved_tensors[0] ** 2 * tangent

    generate_vmap_rule = True


def test_a_function_of_ones_own() -> None:
    def run(x: torch.Tensor) -> Any:
        return (
            vmap(grad(lambda row: _Cube.apply(row).sum()))(x),
            jvp(_Cube.apply, (x,), (x,))[1],
            jacrev(_Cube.apply)(x[0]),
        )

    same(run, _x())
