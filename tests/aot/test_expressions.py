"""Sizes as JSON: what torch.export writes comes back as the same function of the sizes."""

from __future__ import annotations

import pytest
import sympy
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, ModularIndexing

from torch_neuronx.lowering.expressions import NotExpressible, check, evaluate, from_python, from_size, to_text

N, M = sympy.symbols("n m", integer=True, positive=True)
SIZES = {"n": 12, "m": 5}


@pytest.mark.parametrize(
    "size",
    [
        sympy.Integer(7),
        N,
        2 * N + M - 3,
        N**2 * M,
        FloorDiv(N + 1, M),
        Mod(N, M),
        Max(N, 2 * M),
        Min(N, 2 * M),
        ModularIndexing(N, 2, M),
        N * sympy.Rational(1, 4) + M,
    ],
)
def test_sizes(size: sympy.Expr) -> None:
    form = from_size(size)
    check(form, SIZES)
    assert evaluate(form, SIZES) == int(size.subs({N: 12, M: 5}))


@pytest.mark.parametrize("size", [sympy.sqrt(N), sympy.sin(N), N**N])
def test_sizes_without_a_form(size: sympy.Expr) -> None:
    with pytest.raises(NotExpressible):
        from_size(size)


def size(name: str, dim: int | None) -> object:
    return {("x", 0): "n", ("batch['a'][1]", 2): "m", ("k", None): "m"}[name, dim]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("L['x'].size()[0] % 4 == 0", True),
        ("L['batch']['a'][1].size()[2] - 5 != -L['k'] + L['k']", False),
        ("not (L['k'] < 3 or L['k'] > 9)", True),
        ("2 <= L['x'].size()[0] and max(L['k'], 3) * 2 // 3 >= min(3, L['k'])", True),
        ("L['k'] ** 2 <= 25", True),
    ],
)
def test_conditions(text: str, wanted: bool) -> None:
    form = from_python(text, size)
    check(form, SIZES)
    assert evaluate(form, SIZES) is wanted


@pytest.mark.parametrize(
    "text", ["__import__('os').system('x')", "L['x'].numel() > 1", "x > 1", "1.5 < 2", "1 < 2 < 3"]
)
def test_conditions_without_a_form(text: str) -> None:
    with pytest.raises(NotExpressible):
        from_python(text, size)


@pytest.mark.parametrize(
    "form",
    [True, 1.5, None, [], ["+"], ["exec", "n"], "other", ["//", 1], ["not", 1, 2], ["**", "n", "n"], ["**", "n", 99]],
)
def test_what_is_no_size(form: object) -> None:
    with pytest.raises(ValueError, match=r"is not a|does not take|to the power"):
        check(form, SIZES)


@pytest.mark.parametrize("form", [["//", "n", 0], ["%", "n", 0], ["/", 1, 0], ["**", ["**", ["**", "n", 8], 8], 8]])
def test_no_such_size(form: object) -> None:
    check(form, SIZES)
    with pytest.raises(ValueError, match=r"divides by zero|is no size"):
        evaluate(form, SIZES)


def test_text() -> None:
    assert to_text(["==", ["%", "n", 4], 0]) == "((n % 4) == 0)"
    assert to_text(["not", ["max", "n", 4]]) == "not max(n, 4)"
