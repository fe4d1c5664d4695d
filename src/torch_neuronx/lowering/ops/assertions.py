"""Assertions on device values: checked while the program runs, raised at the next sync at the latest."""

from __future__ import annotations

import torch

from torch_neuronx.lowering import hlo
from torch_neuronx.lowering.module import require
from torch_neuronx.lowering.table import lower
from torch_neuronx.lowering.value import Value


def _holds(x: Value) -> Value:
    if x.numel != 1:
        raise RuntimeError(f"_assert_async: expected a tensor of one element, but got shape {list(x.shape)}")
    return hlo.ne(hlo.reshape(x, ()), 0) if x.dtype is not torch.bool else hlo.reshape(x, ())


@lower("aten::_assert_async")
def assert_async(self: Value) -> tuple[()]:
    require(_holds(self), "RuntimeError", "Expected Tensor with single nonzero value, but got zero")
    return ()


@lower("aten::_assert_async.msg")
def assert_async_message(self: Value, assert_msg: str) -> tuple[()]:
    require(_holds(self), "RuntimeError", assert_msg)
    return ()


@lower("aten::_functional_assert_async.msg")
def functional_assert_async(self: Value, assert_msg: str, dep_token: Value) -> Value:
    require(_holds(self), "RuntimeError", assert_msg)
    return dep_token


@lower("aten::_make_dep_token")
def make_dep_token(*, dtype: torch.dtype | None, **where: object) -> Value:
    """What orders assertions in a graph; nothing reads its value."""
    return hlo.constant(0, dtype or torch.get_default_dtype())


@lower("aten::_linalg_check_errors", bind=False)
def linalg_check_errors(info: Value, api_name: str, *, is_matrix: bool) -> tuple[()]:
    """In graphs; outside them torch reads `info` and says which matrix and pivot it was."""
    ok = hlo.all_(hlo.eq(info, 0), list(range(info.ndim)), False)
    require(ok, "LinAlgError", f"{api_name}: the input is singular, or the algorithm failed to converge")
    return ()
