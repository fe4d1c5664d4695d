"""Runs op_db samples through the lowering (no device needed): python opdb.py REGEX [--dtypes ..] [--backward]."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any

import torch
from emulate import Lowered, _clone
from torch.testing._internal.common_methods_invocations import op_db


def leaves(x: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(x) if isinstance(t, torch.Tensor)]


def run_sample(op: Any, sample: Any, backward: bool, mode: Lowered) -> None:
    def call() -> Any:
        inputs, args, kwargs = torch.utils._pytree.tree_map(
            lambda t: _clone(t.detach()).requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t,
            (sample.input, sample.args, sample.kwargs),
        )
        out = op.op(inputs, *args, **kwargs)
        if not backward:
            return out
        outs = [t for t in leaves(out) if t.requires_grad]
        ins = [t for t in leaves((inputs, args, kwargs)) if t.requires_grad]
        if not outs or not ins:
            return out
        gen = torch.Generator().manual_seed(3)
        cot = [torch.randn(o.shape, generator=gen, dtype=torch.float64).to(o.dtype) for o in outs]
        return torch.autograd.grad(outs, ins, cot, allow_unused=True)

    want = call()
    with mode:
        got = call()
    same_layout = [(x, y) for x, y in zip(leaves(got), leaves(want), strict=True)]
    for x, y in same_layout:
        dtype = y.dtype
        tol = {torch.float16: 1e-2, torch.bfloat16: 2e-2, torch.float64: 1e-6, torch.complex128: 1e-6}.get(dtype, 1e-3)
        assert x.dtype == dtype and x.shape == y.shape, (x.dtype, dtype, x.shape, y.shape)
        if mode.random:
            continue
        torch.testing.assert_close(
            x.resolve_conj().resolve_neg(), y.resolve_conj().resolve_neg(), rtol=tol, atol=tol, equal_nan=True
        )


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("regex")
    p.add_argument("--dtypes", default="float32,int64")
    p.add_argument("--backward", action="store_true")
    p.add_argument("--max-samples", type=int, default=0)
    p.add_argument("--trace", action="store_true")
    a = p.parse_args()
    bad = 0
    for op in op_db:
        if not re.fullmatch(a.regex, op.name):
            continue
        for name in a.dtypes.split(","):
            dtype = getattr(torch, name)
            if dtype not in op.dtypes or (
                a.backward and (not op.supports_autograd or dtype not in op.supported_backward_dtypes("cpu"))
            ):
                continue
            mode, errors, count = Lowered(), {}, 0
            torch.manual_seed(0)
            for sample in op.sample_inputs("cpu", dtype, requires_grad=a.backward):
                count += 1
                if a.max_samples and count > a.max_samples:
                    break
                try:
                    run_sample(op, sample, a.backward, mode)
                except Exception as e:
                    if a.trace:
                        raise
                    errors.setdefault(f"{type(e).__name__}: {str(e)[:300]}", 0)
                    errors[f"{type(e).__name__}: {str(e)[:300]}"] += 1
            label = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
            status = "FAIL" if errors else "fallback" if mode.fallbacks else "native"
            bad += status == "FAIL"
            print(f"{status:9} {label} {name} samples={count} {dict(mode.fallbacks) or ''} {mode.reasons or ''}")
            for text, n in errors.items():
                print(f"      {n}x {text}")
    return bad


if __name__ == "__main__":
    sys.exit(main())
