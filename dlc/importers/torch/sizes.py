"""Symbolic sizes of PyTorch, which are expressions of sympy, as sizes of the IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from dlc.errors import Unsupported
from dlc.importers.torch.facts import Calculated
from dlc.ir.bounded import larger, smaller
from dlc.ir.dims import Bounds, Size, ceil_divide, floor_divide, symbol


class Expression(Protocol):
    """What is used of an expression of sympy."""

    @property
    def args(self) -> Sequence[Expression]: ...

    @property
    def is_integer(self) -> bool | None: ...

    def __int__(self) -> int: ...


def size_of(expression: Expression, names: Mapping[str, str], bounds: Bounds) -> Size:
    """The size that an expression of integers is; `names` has those of its symbols, `bounds` theirs.

    Raises Unsupported (D0711) for a function that sizes do not have.
    """
    kind = type(expression).__name__
    match kind:
        case "Symbol":
            return symbol(names.get(str(expression), str(expression)))
        case "Integer" | "Zero" | "One" | "NegativeOne":
            return int(expression)
        case "Float" if float(str(expression)).is_integer():
            return int(float(str(expression)))
        case "Mul":
            return _product(expression.args, names, bounds)
        case "Pow":
            return _power(expression, names, bounds)
        case _:
            function = FUNCTIONS.get(kind)
    if function is None:
        raise Unsupported(f"a size is computed as {expression}, which dlc lacks", code="D0711")
    found, *rest = [size_of(part, names, bounds) for part in expression.args]
    for other in rest:
        found = function(found, other, bounds)
    return found


def number_of(
    expression: Expression, names: Mapping[str, str], bounds: Bounds
) -> Calculated | Size | float:
    """The number that an expression is, which need be no integer.

    Raises Unsupported (D0711) for a function that is not known.
    """
    kind = type(expression).__name__
    if kind in ("Float", "Rational", "Half"):
        above, _, below = str(expression).partition("/")
        return float(above) / float(below or 1)
    if kind == "Pow" and str(expression.args[1]) == "-1":
        return Calculated("divide", (1.0, number_of(expression.args[0], names, bounds)))
    function = OF_NUMBERS.get(kind)
    if function is None:
        return size_of(expression, names, bounds)
    parts = [number_of(part, names, bounds) for part in expression.args]
    return parts[0] if function == "same" else Calculated(function, tuple(parts))


OF_NUMBERS = {
    "Add": "add",
    "FloatTrueDiv": "divide",
    "IntTrueDiv": "divide",
    "Mul": "multiply",
    "OpaqueUnaryFn_sqrt": "sqrt",
    "ToFloat": "same",
}
"""Functions of numbers by the class that sympy or PyTorch gives them."""


def _product(parts: Sequence[Expression], names: Mapping[str, str], bounds: Bounds) -> Size:
    """A product, in which a fraction stands for a division that comes out even."""
    numerator: Size = 1
    denominator: Size = 1
    for part in parts:
        kind = type(part).__name__
        if kind in ("Rational", "Half"):
            above, below = map(int, str(part).split("/"))
            numerator, denominator = numerator * above, denominator * below
        elif kind == "Pow" and int(part.args[1]) < 0:
            base = size_of(part.args[0], names, bounds)
            for _ in range(-int(part.args[1])):
                denominator = denominator * base
        else:
            numerator = numerator * size_of(part, names, bounds)
    return numerator if denominator == 1 else floor_divide(numerator, denominator)


def _power(expression: Expression, names: Mapping[str, str], bounds: Bounds) -> Size:
    base, exponent = size_of(expression.args[0], names, bounds), int(expression.args[1])
    if exponent < 0:
        raise Unsupported(f"a size is computed as {expression}, which dlc lacks", code="D0711")
    found: Size = 1
    for _ in range(exponent):
        found = found * base
    return found


def _remainder(one: Size, other: Size, _: Bounds) -> Size:
    return one - other * floor_divide(one, other)


def _quotient(one: Size, other: Size, _: Bounds) -> Size:
    return floor_divide(one, other)


FUNCTIONS: dict[str, Callable[[Size, Size, Bounds], Size]] = {
    "Add": lambda one, other, bounds: one + other,
    "CeilDiv": lambda one, other, bounds: ceil_divide(one, other),
    "CeilToInt": lambda one, other, bounds: one,
    "CleanDiv": _quotient,
    "FloorDiv": _quotient,
    "Identity": lambda one, other, bounds: one,
    "Max": larger,
    "Min": smaller,
    "Mod": _remainder,
    "PythonMod": _remainder,
    "ToFloat": lambda one, other, bounds: one,
    "TruncToInt": lambda one, other, bounds: one,
}
"""Functions of sizes by the class that sympy or PyTorch gives them; those of one size take one."""
