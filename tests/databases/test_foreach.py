"""Every foreach op of torch's databases: forward and in place, lists laid out alike and not, as on the CPU."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from torch.testing._internal import common_methods_invocations as databases

from tests.databases import both

INFOS = (
    *databases.foreach_unary_op_db,
    *databases.foreach_binary_op_db,
    *databases.foreach_pointwise_op_db,
    *databases.foreach_reduce_op_db,
    *databases.foreach_other_op_db,
)
QUICK = ("_foreach_add", "_foreach_sqrt", "_foreach_addcmul", "_foreach_norm", "_foreach_lerp", "_foreach_copy")
DTYPES = (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64)
MOST = 12  # samples: each list is compiled as one program


def _cases() -> list[Any]:
    cases = []
    for info, dtype, alike in itertools.product(INFOS, DTYPES, (True, False)):
        quick = info.name in QUICK and dtype in (torch.float32, torch.int64) and alike
        case = f"{info.name}-{str(dtype).removeprefix('torch.')}-{'alike' if alike else 'strided'}"
        cases.append(pytest.param(info, dtype, alike, id=case, marks=() if quick else pytest.mark.slow))
    return cases


@pytest.mark.parametrize(("info", "dtype", "alike"), _cases())
def test_foreach(info: Any, dtype: torch.dtype, alike: bool) -> None:
    random.seed(0)
    count = 3 if info.name != "_foreach_pow" else 4
    samples = info.sample_inputs(
        "cpu",
        dtype,
        noncontiguous=not alike,
        same_size=alike,
        num_input_tensors=[count],
        allow_higher_dtype_scalars=True,
    )
    for sample in itertools.islice(samples, MOST):
        given = (sample.input, sample.args, sample.kwargs)
        if info.name != "_foreach_zero":
            _same(info.method_variant, given, in_place=False)
        if info.inplace_variant is not None:
            _same(info.inplace_variant, given, in_place=True)


def _same(op: Any, given: Any, in_place: bool) -> None:
    def run(device: str) -> Any:
        inputs, args, kwargs = both.on(given, device)
        out = op(inputs, *args, **kwargs)
        return inputs if in_place else out

    try:
        want = run("cpu")
    except Exception as refused:  # noqa: BLE001 - not every op takes every dtype
        both.same_refusal(refused, lambda: run("neuron"))
        return
    both.equal(run("neuron"), want, op.__name__)
