"""Every optimizer of torch's optim_db, with each of its configurations, in each form it offers: steps as on the CPU."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.testing._internal.common_optimizers import OptimizerInfo, optim_db

from tests.databases import both

QUICK = ("SGD", "Adam", "AdamW", "RMSprop")
STEPS = 5
FORMS = ("forloop", "foreach", "fused", "capturable")


def _forms(info: OptimizerInfo) -> list[str]:
    offered = {"foreach": "foreach" in info.supported_impls, "fused": "fused" in info.supported_impls}
    return [f for f in FORMS if {"forloop": True, "capturable": info.has_capturable_arg, **offered}[f]]


def _cases() -> list[Any]:
    cases = []
    for info in optim_db:
        name = info.optim_cls.__name__
        for form in _forms(info):
            # The database offers more configurations on CUDA, such as a learning rate that is a tensor.
            for i, given in enumerate(info.optim_inputs_func("cuda")):
                quick = name in QUICK and i == 1 and form != "capturable"
                case = f"{name}-{form}-{i}"
                cases.append(pytest.param(info, form, given, id=case, marks=() if quick else pytest.mark.slow))
    return cases


@pytest.mark.parametrize(("info", "form", "given"), _cases())
def test_optimizer(info: OptimizerInfo, form: str, given: Any) -> None:
    try:
        want = _steps(info, form, given.kwargs, "cpu")
    except Exception as refused:  # noqa: BLE001 - not every configuration goes with every form
        both.same_refusal(refused, lambda: _steps(info, form, given.kwargs, "neuron"))
        return
    got = _steps(info, form, given.kwargs, "neuron")
    for what in want:
        both.equal(got[what], want[what], f"{given.desc} {what}")


def _options(info: OptimizerInfo, form: str, given: dict[str, Any], device: str) -> dict[str, Any]:
    """On the CPU nothing is capturable: there the plain loop is what a capturable form must equal."""
    options = {k: copy.deepcopy(v) for k, v in given.items() if k not in ("capturable", "differentiable")}
    capturable = form == "capturable" or bool(given.get("capturable"))
    if "foreach" in info.supported_impls:
        options["foreach"] = form == "foreach" and not (capturable and device == "cpu")
    if form == "fused":
        options["fused"] = True
    if device == "neuron" and capturable:
        options["capturable"] = True
    return {k: v.to(device) if isinstance(v, torch.Tensor) and v.dim() else v for k, v in options.items()}


def _parameters(info: OptimizerInfo, device: str) -> list[torch.nn.Parameter]:
    draw = torch.Generator().manual_seed(5)
    shapes = [(4, 3), (3, 3)] if info.optim_cls.__name__ == "Muon" else [(4, 3), (5,), ()]
    return [torch.nn.Parameter(torch.randn(s, generator=draw).to(device)) for s in shapes]


def _steps(info: OptimizerInfo, form: str, given: dict[str, Any], device: str) -> dict[str, Any]:
    parameters = _parameters(info, device)
    optimizer = info.optim_cls(parameters, **_options(info, form, given, device))
    draw = torch.Generator().manual_seed(7)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(((p - i) ** 2).sum() for i, p in enumerate(parameters))
        loss.backward()
        return loss.detach()

    for _ in range(STEPS):
        if info.step_requires_closure:
            optimizer.step(closure)
            continue
        for p in parameters:
            gradient = torch.randn(p.shape, generator=draw)
            p.grad = _sparse(gradient).to(device) if info.only_supports_sparse_grads else gradient.to(device)
        optimizer.step()
    state = [
        value
        for p in parameters
        for name, value in sorted(optimizer.state[p].items())
        if isinstance(value, torch.Tensor) and name != "step"
    ]
    return {"parameter": [p.detach() for p in parameters], "state": state}


def _sparse(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.to_sparse() if gradient.dim() else gradient.reshape(1).to_sparse().reshape(())
