"""The checker finds every kind of difference, and generated programs reach a fault in an op."""

from __future__ import annotations

import pytest
import torch

from tests.property.check import Difference, check
from tests.property.generate import generate
from tests.property.program import Program, Step
from tests.property.shrink import failure, shrink

_START = Step("t0 = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=D)", "tensor")
_ON_CPU = "if D == 'cpu' else"

DIFFERENT = {
    "values": f"t1 = t0 + (1 {_ON_CPU} 2)",
    "values ": f"t1 = t0 * (0.0 {_ON_CPU} -0.0)",
    "values  ": f"t0[:, 1].data.fill_(7 {_ON_CPU} 8)",
    "dtype": f"t1 = t0.to(torch.float64 {_ON_CPU} torch.float32)",
    "shape": f"t1 = t0.flatten(0 {_ON_CPU} 1)",
    "strides": f"t1 = t0.t() {_ON_CPU} t0.t().contiguous()",
    "offset": f"t1 = t0[0:1] {_ON_CPU} t0[1:2]",
    "version": f"t0.add_(0) {_ON_CPU} None",
    "sharing": f"t1 = t0.view(6) {_ON_CPU} t0.clone().view(6)",
    "sharing ": f"t1 = t0 {_ON_CPU} t0.detach()",
    "error": f"t0.view(5) {_ON_CPU} None",
    "error ": f"None {_ON_CPU} t0.view(5)",
    "error  ": f"t0.view(5) {_ON_CPU} t0.select(5, 0)",
    "tensors": "if D == 'cpu': t1 = t0",
    "device": f"t1 = t0 * 1 {_ON_CPU} t0.cpu()",
    "requires_grad": "t0.requires_grad_(D == 'cpu')",
}


@pytest.mark.parametrize("kind", DIFFERENT)
def test_it_finds(kind: str) -> None:
    with pytest.raises(Difference) as found:
        check(Program((_START, Step(DIFFERENT[kind], "op"))))
    assert (found.value.kind, found.value.line) == (kind.strip(), DIFFERENT[kind])


def test_a_refused_line_that_changes_something_is_found() -> None:
    line = f"t0.data.fill_(1 {_ON_CPU} 2); t0.view(5)"
    with pytest.raises(Difference, match="values"):
        check(Program((_START, Step(line, "op"))))


def test_rounding_is_let_pass_where_it_was_said_and_only_there() -> None:
    line = f"t1 = t0 * (1.0 {_ON_CPU} 1.000001)"
    check(Program((_START, Step(line, "op", "near"), Step("t2 = t1 * 1", "mul"))))
    assert failure(Program((_START, Step(line, "op")))) is not None


def test_a_failure_is_shortened_to_the_lines_it_needs() -> None:
    steps = [_START, Step("t1 = t0.exp()", "exp", "near"), Step("t2 = t0.t()", "t"), Step("t3 = t2 - 1", "-")]
    wrong = Step(f"t4 = t2 + (1 {_ON_CPU} 2)", "+")
    program = Program((*steps, wrong, Step("t5 = t4 * 2", "*")))
    found = failure(program)
    assert found is not None
    assert shrink(program, found)[0].steps == (steps[0], steps[2], wrong)


@pytest.mark.parametrize("fault", ["value", "strides"])
def test_programs_reach_a_fault_in_an_op(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    add = torch.add

    def wrong(*args, **kwargs):
        result = add(*args, **kwargs)
        if result.device.type != "neuron" or result.dim() < 2 or "out" in kwargs:
            return result
        return add(result, 1) if fault == "value" else result.mT.contiguous().mT

    monkeypatch.setattr(torch, "add", wrong)
    found: set[str] = set()

    def one(program: Program) -> None:
        if "add" in program.ops and (difference := failure(program)) is not None and difference.op == "add":
            found.add(difference.kind)

    generate(one, 200, seed=0)
    assert found >= ({"values"} if fault == "value" else {"strides"})
