"""Every module of torch's module_db, with each of its inputs: forward, gradients and buffers as on the CPU."""

from __future__ import annotations

import copy
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch.testing._internal.common_modules import ModuleInfo, module_db
from torch.utils._pytree import tree_map

from tests.databases import both

# One of each kind: these run on every push, all of them under `make conformance`.
QUICK = (
    *("nn.Linear", "nn.Bilinear", "nn.Conv2d", "nn.ConvTranspose1d", "nn.BatchNorm2d", "nn.LayerNorm", "nn.GroupNorm"),
    *("nn.LSTMCell", "nn.Embedding", "nn.MaxPool2d", "nn.Softmax", "nn.CrossEntropyLoss", "nn.LazyConv1d", "nn.GELU"),
)
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def _cases() -> list[Any]:
    cases = []
    for info in module_db:
        for dtype in (d for d in DTYPES if d in info.supported_dtypes("cpu") or d is torch.bfloat16):
            for training in (True, False) if info.train_and_eval_differ else (True,):
                quick = info.name in QUICK and dtype is torch.float32
                case = f"{info.name}-{str(dtype).removeprefix('torch.')}{'' if training else '-eval'}"
                cases.append(pytest.param(info, dtype, training, id=case, marks=() if quick else pytest.mark.slow))
    return cases


@pytest.mark.parametrize(("info", "dtype", "training"), _cases())
def test_module(info: ModuleInfo, dtype: torch.dtype, training: bool, one_thread: None) -> None:
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=dtype.is_floating_point, training=training
    )
    outcomes = [x for given in inputs if given.forward_input is not None for x in _both(info, given, dtype, training)]
    for what in sorted({x.what.rpartition(" ")[2] for x in outcomes}):
        both.equal_or_no_further([x for x in outcomes if x.what.endswith(what)])


def _both(info: ModuleInfo, given: Any, dtype: torch.dtype, training: bool) -> list[both.Outcome]:
    made = given.constructor_input
    module = info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
    call = (given.forward_input.args, given.forward_input.kwargs)
    args, kwargs = both.on(call, "cpu")
    try:
        module(*args, **kwargs) if info.is_lazy else copy.deepcopy(module)(*args, **kwargs)
    except Exception as refused:  # noqa: BLE001 - bfloat16 is no claim of the database: what the CPU refuses is refused
        twin = copy.deepcopy(module).to("neuron")
        args, kwargs = both.on(call, "neuron")
        both.same_refusal(refused, lambda: twin(*args, **kwargs))
        return []
    compare = both.repeats(lambda: copy.deepcopy(module)(*args, **kwargs))
    twin = copy.deepcopy(module).to("neuron")
    want, got = _run(module, call, "cpu"), _run(twin, call, "neuron")
    if not compare:
        for what in want:
            shapes = [[(t.dtype, t.shape) for t in both.tensors(x[what])] for x in (got, want)]
            assert shapes[0] == shapes[1], f"{given.desc} {what}"
        return []
    wide = cache(partial(_run, copy.deepcopy(module).double(), tree_map(_doubled, call), "cpu"))
    return [both.Outcome(f"{given.desc} {w}", got[w], want[w], lambda w=w: wide()[w]) for w in want]


def _doubled(leaf: Any) -> Any:
    rounded = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    return leaf.detach().double().requires_grad_(leaf.requires_grad) if rounded else leaf


def _run(module: torch.nn.Module, call: Any, device: str) -> dict[str, Any]:
    """Output, gradients of parameters and inputs, and what the module keeps."""
    args, kwargs = both.on(call, device)
    torch.manual_seed(1)
    out = module(*args, **kwargs)
    ends = [t for t in both.tensors(out) if t.requires_grad]
    starts = [t for t in both.tensors((args, kwargs)) if t.requires_grad and t.is_leaf]
    starts += list(module.parameters())
    found = {"output": out, "buffer": dict(module.named_buffers())}
    if ends and starts:
        draw = torch.Generator().manual_seed(3)
        along = [torch.randn(t.shape, generator=draw, dtype=torch.float64).to(t.dtype).to(device) for t in ends]
        gradients = torch.autograd.grad(ends, starts, along, allow_unused=True)
        found["gradient"] = [g for g in gradients if g is not None]
    return found
