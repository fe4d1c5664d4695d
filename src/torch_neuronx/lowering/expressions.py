"""Sizes as JSON: a number, a symbol's name, or [operator, operand, ...]. Evaluating one needs no sympy and no eval."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import sympy

Expression = Any  # int, str or a list

_DEEPEST: Final = 64
_LARGEST: Final = 1 << 63
_LARGEST_EXPONENT: Final = 8


class NotExpressible(Exception):
    """A size or condition that has no such form."""


def _sum(*terms: Any) -> Any:
    return sum(terms)


def _product(*factors: Any) -> Any:
    result: Any = 1
    for f in factors:
        result *= f
    return result


# How many operands each takes; None: one or more.
_OPERATORS: Final[dict[str, tuple[int | None, Callable[..., Any]]]] = {
    "+": (None, _sum),
    "*": (None, _product),
    "/": (2, Fraction),
    "//": (2, operator.floordiv),
    "%": (2, operator.mod),
    "**": (2, operator.pow),
    "max": (None, max),
    "min": (None, min),
    "==": (2, operator.eq),
    "!=": (2, operator.ne),
    "<": (2, operator.lt),
    "<=": (2, operator.le),
    ">": (2, operator.gt),
    ">=": (2, operator.ge),
    "and": (None, lambda *x: all(x)),
    "or": (None, lambda *x: any(x)),
    "not": (1, operator.not_),
}


def evaluate(expression: Expression, symbols: Mapping[str, int]) -> Any:
    """An int, or a bool for a condition. Raises ValueError where there is no such size."""
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        return symbols[expression]
    name, *operands = expression
    try:
        value = _OPERATORS[name][1](*(evaluate(x, symbols) for x in operands))
    except ZeroDivisionError as error:
        raise ValueError(f"{to_text(expression)} divides by zero") from error
    if abs(value) > _LARGEST:  # before it grows without bounds
        raise ValueError(f"{to_text(expression)} is no size")
    return int(value) if isinstance(value, Fraction) and value.denominator == 1 else value


def check(expression: Any, symbols: Collection[str], depth: int = 0) -> None:
    """Raises ValueError for what evaluate() cannot take or what would cost it more than a moment."""
    if isinstance(expression, bool) or depth > _DEEPEST:
        raise ValueError(f"{str(expression)[:80]} is not a size")
    if isinstance(expression, int):
        return
    if isinstance(expression, str):
        if expression not in symbols:
            raise ValueError(f"{expression!r} is not a symbol of this bundle")
        return
    if not isinstance(expression, list) or not expression or expression[0] not in _OPERATORS:
        raise ValueError(f"{str(expression)[:80]} is not a size")
    name, *operands = expression
    wanted = _OPERATORS[name][0]
    if not operands or (wanted is not None and len(operands) != wanted):
        raise ValueError(f"{name!r} does not take {len(operands)} operands")
    if name == "**" and not (type(operands[1]) is int and 0 <= operands[1] <= _LARGEST_EXPONENT):
        raise ValueError(f"a size to the power of {operands[1]!r}")
    for x in operands:
        check(x, symbols, depth + 1)


def to_text(expression: Expression) -> str:
    """For people."""
    if not isinstance(expression, list):
        return str(expression)
    name, *operands = expression
    texts = [to_text(x) for x in operands]
    if name in ("max", "min"):
        return f"{name}({', '.join(texts)})"
    return f"not {texts[0]}" if name == "not" else f"({f' {name} '.join(texts)})"


def from_size(size: Any) -> Expression:
    """Of an int, a SymInt or a sympy expression. Raises NotExpressible."""
    if isinstance(size, int):
        return int(size)
    return _from_sympy(size.node.expr if hasattr(size, "node") else size)


def from_condition(condition: Any) -> Expression:
    """Of a SymBool. Raises NotExpressible."""
    return _from_sympy(condition.node.expr) if hasattr(condition, "node") else ["==", int(bool(condition)), 1]


def _from_sympy(x: sympy.Basic) -> Expression:
    import sympy
    from torch.utils._sympy import functions as f

    if isinstance(x, sympy.Integer):
        return int(x)
    if isinstance(x, sympy.Rational):
        return ["/", int(x.p), int(x.q)]
    if isinstance(x, sympy.Symbol):
        return str(x)
    names: dict[type, str] = {
        sympy.Add: "+",
        sympy.Mul: "*",
        f.FloorDiv: "//",
        f.CleanDiv: "//",
        f.Mod: "%",
        f.PythonMod: "%",
        f.Max: "max",
        f.Min: "min",
        sympy.Max: "max",
        sympy.Min: "min",
        sympy.Eq: "==",
        sympy.Ne: "!=",
        sympy.StrictLessThan: "<",
        sympy.LessThan: "<=",
        sympy.StrictGreaterThan: ">",
        sympy.GreaterThan: ">=",
        sympy.And: "and",
        sympy.Or: "or",
        sympy.Not: "not",
    }
    if type(x) in names:
        return [names[type(x)], *(_from_sympy(a) for a in x.args)]
    if isinstance(x, f.ModularIndexing):
        base, divisor, modulus = (_from_sympy(a) for a in x.args)
        return ["%", ["//", base, divisor], modulus]
    if isinstance(x, (sympy.Pow, f.PowByNatural)) and x.args[1].is_Integer:
        exponent = int(x.args[1])
        if 0 <= exponent <= _LARGEST_EXPONENT:
            return ["**", _from_sympy(x.args[0]), exponent]
    raise NotExpressible(f"the size {x}")


_PYTHON: Final[dict[type, str]] = {
    ast.Add: "+",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.And: "and",
    ast.Or: "or",
}


def from_python(text: str, size: Callable[[str, int | None], Expression]) -> Expression:
    """Of a condition as torch.export writes them. Raises NotExpressible.

    `size("x", 0)` gives what `L['x'].size()[0]` is, `size("n", None)` what `L['n']` is.
    """
    return _from_ast(ast.parse(text, mode="eval").body, size)


def _from_ast(x: ast.expr, size: Callable[[str, int | None], Expression]) -> Expression:
    match x:
        case ast.Constant(value=int() as value):
            return int(value)
        case ast.BinOp(left, ast.Sub(), right):
            return ["+", _from_ast(left, size), ["*", -1, _from_ast(right, size)]]
        case ast.BinOp(left, op, right) if type(op) in _PYTHON:
            return [_PYTHON[type(op)], _from_ast(left, size), _from_ast(right, size)]
        case ast.UnaryOp(ast.USub(), operand):
            return ["*", -1, _from_ast(operand, size)]
        case ast.UnaryOp(ast.Not(), operand):
            return ["not", _from_ast(operand, size)]
        case ast.BoolOp(op, values):
            return [_PYTHON[type(op)], *(_from_ast(v, size) for v in values)]
        case ast.Compare(left, [op, *more], [right, *_]) if type(op) in _PYTHON and not more:
            return [_PYTHON[type(op)], _from_ast(left, size), _from_ast(right, size)]
        case ast.Call(ast.Name(("min" | "max") as name), args):
            return [name, *(_from_ast(a, size) for a in args)]
        case ast.Subscript(ast.Call(ast.Attribute(source, "size"), []), ast.Constant(value=int() as dim)):
            return size(_leaf(source), dim)
        case ast.Subscript():
            return size(_leaf(x), None)
    raise NotExpressible(f"the condition {ast.unparse(x)}")


def _leaf(source: ast.expr) -> str:
    """The input's name: L['batch']['ids'] is batch['ids']."""
    path = ast.unparse(source)
    if not path.startswith("L['"):
        raise NotExpressible(f"a condition on {path}")
    name, _, rest = path.removeprefix("L['").partition("']")
    return name + rest
