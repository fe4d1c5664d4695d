"""torch's own decompositions end in rows: ops whose row is taken away still compute the same."""

from __future__ import annotations

import emulate
import pytest
import torch
from emulate import check

from torch_neuronx.lowering import decompose, forms, table

aten, prims = torch.ops.aten, torch.ops.prims
X = torch.linspace(-3, 3, 24).reshape(4, 6)


@pytest.fixture
def without(monkeypatch):
    """Removes rows for one test."""

    def remove(*names):
        monkeypatch.setattr(table, "rows", table.rows)
        for name in names:
            monkeypatch.delitem(table.rows, name, raising=False)
        forms.resolve.cache_clear()
        emulate._programs.clear()

    yield remove
    monkeypatch.undo()
    forms.resolve.cache_clear()
    emulate._programs.clear()


CASES = {
    "aten::gelu": lambda: check(aten.gelu.default, X, approximate="tanh"),
    "aten::silu_backward": lambda: check(aten.silu_backward.default, X, X),
    "aten::addcmul": lambda: check(aten.addcmul.default, X, X, X, value=2.0),
    "aten::gelu_backward": lambda: check(aten.gelu_backward.default, X, X),
    "aten::softplus": lambda: check(aten.softplus.default, X),
    "aten::hardswish": lambda: check(aten.hardswish.default, X),
    "aten::elu": lambda: check(aten.elu.default, X),
    "aten::clamp": lambda: check(aten.clamp.default, X, -0.5, 0.5),
    "aten::lerp.Scalar": lambda: check(aten.lerp.Scalar, X, X + 1, 0.3),
    "aten::nan_to_num": lambda: check(aten.nan_to_num.default, X),
    "aten::native_layer_norm": lambda: check(aten.native_layer_norm.default, X, [6], X[0], X[1], 1e-5),
    "aten::logit": lambda: check(aten.logit.default, X.sigmoid()),
    "aten::native_dropout_backward": lambda: check(aten.native_dropout_backward.default, X, X > 0, 2.0),
}


@pytest.mark.parametrize("name", CASES)
def test_without_its_row(without, name):
    without(name)
    CASES[name]()


def test_zero_dimensional_operand_keeps_its_dtype(without):
    """A Python number inside a decomposition stays a wrapped number."""
    without("aten::softplus", "aten::hardswish")
    check(aten.softplus.default, torch.tensor(0.3))
    check(aten.hardswish.default, torch.tensor(0.3, dtype=torch.bfloat16))


def test_primitives():
    emulate.run(
        prims.iota.default, (5,), {"start": 2, "step": 3, "dtype": torch.int64, "device": "cpu", "requires_grad": False}
    )
    for op in (prims.sum.default, prims.prod.default, prims.amax.default, prims.amin.default):
        assert torch.allclose(emulate.run(op, (X, [1]), {}), op(X, [1]), rtol=1e-5)
    assert torch.allclose(emulate.run(prims.var.default, (X, [0], 1.0), {}), X.var(0))
    assert torch.equal(emulate.run(prims.cat.default, ([X, X], 0), {}), torch.cat([X, X]))
    assert torch.equal(emulate.run(prims.rev.default, (X, [1]), {}), X.flip(1))
    assert torch.equal(emulate.run(prims.where.default, (X > 0, X, X), {}), X)


def test_casts():
    values = torch.tensor([0.0, 1.9, -1.9, 255.0, 300.0, -1.0, float("nan"), float("inf")])
    for dtype in (torch.bool, torch.int64, torch.int32, torch.bfloat16, torch.float64, torch.complex64):
        check(aten.copy.default, torch.zeros(8, dtype=dtype), values)
    check(aten.copy.default, torch.zeros(2, 3), torch.arange(3))
    check(aten.copy_.default, torch.zeros(4, 2).t(), torch.randn(2, 4).double())
    check(aten.copy.default, torch.zeros(3), torch.randn(3, dtype=torch.complex64))
    check(aten.clone.default, X.t())


def test_complex_parts():
    z = torch.randn(3, 4, dtype=torch.complex64)
    check(aten.complex.default, z.real.contiguous(), z.imag.contiguous())
    check(aten.polar.default, z.abs(), z.angle())
    check(aten._conj_physical.default, z)
    check(aten.view_as_real_copy.default, z)
    check(aten.view_as_complex_copy.default, torch.randn(3, 2))
    check(aten.angle.default, torch.tensor([-1.0, 0.0, 1.0, float("nan")]))
    check(aten.sgn.default, z)


def _writes_through_views(x):
    y = x.clone()
    y[1:3].mul_(2)
    row = y[0]
    y.t()[2].add_(1)  # row sees this
    first, second = y.split(3, 1)
    second.copy_(first)
    y.view(3, 8).diagonal().zero_()
    y.unsqueeze(0).expand(1, 4, 6)[0, 3] = row
    return y + row


def test_writes_reach_the_base_of_a_view(without, monkeypatch):
    without("aten::hardswish")
    monkeypatch.setitem(decompose._decompositions(), aten.hardswish.default, _writes_through_views)
    got = emulate.run(aten.hardswish.default, (X,), {})
    assert torch.equal(got, _writes_through_views(X))
