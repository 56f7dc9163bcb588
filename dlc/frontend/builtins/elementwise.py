"""Functions of each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from dlc.dialects import array, flow
from dlc.dialects.array import show
from dlc.frontend.builtins.registry import add_builtin, builtin
from dlc.frontend.elaboration.tensors import broadcast_to, dtype_of, unify
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import Callee, Datum, is_number
from dlc.ir import dims
from dlc.ir.core import Op, Value
from dlc.ir.dims import Dim
from dlc.ir.types import BOOL, DType

GROUP: Final = "each element"

# Functions of floats: the operation of the same name with an example.
FLOATS: Final[dict[str, tuple[type[array.Unary], str, str]]] = {
    "sqrt": (array.Sqrt, "sqrt([0, 4])", "[0.0, 2.0]"),
    "rsqrt": (array.Rsqrt, "rsqrt([1, 4])", "[1.0, 0.5]"),
    "exp": (array.Exp, "exp([0, 1])", "[1.0, 2.7182817]"),
    "expm1": (array.Expm1, "expm1([0, 1])", "[0.0, 1.7182818]"),
    "log": (array.Log, "log([1, 2])", "[0.0, 0.6931472]"),
    "log1p": (array.Log1p, "log1p([0, 1])", "[0.0, 0.6931472]"),
    "sin": (array.Sin, "sin([0, 1])", "[0.0, 0.84147096]"),
    "cos": (array.Cos, "cos([0, 1])", "[1.0, 0.5403023]"),
    "tan": (array.Tan, "tan([0, 1])", "[0.0, 1.5574077]"),
    "asin": (array.Asin, "asin([0, 1])", "[0.0, 1.5707964]"),
    "acos": (array.Acos, "acos([0, 1])", "[1.5707964, 0.0]"),
    "atan": (array.Atan, "atan([0, 1])", "[0.0, 0.7853982]"),
    "sinh": (array.Sinh, "sinh([0, 1])", "[0.0, 1.1752012]"),
    "cosh": (array.Cosh, "cosh([0, 1])", "[1.0, 1.5430807]"),
    "tanh": (array.Tanh, "tanh([0, 1])", "[0.0, 0.7615942]"),
    "asinh": (array.Asinh, "asinh([0, 1])", "[0.0, 0.8813736]"),
    "acosh": (array.Acosh, "acosh([1, 2])", "[0.0, 1.3169579]"),
    "atanh": (array.Atanh, "atanh([0, 0.5])", "[0.0, 0.54930615]"),
    "erf": (array.Erf, "erf([0, 1])", "[0.0, 0.8427008]"),
    "sigmoid": (array.Sigmoid, "sigmoid([0, 1])", "[0.5, 0.7310586]"),
}
# Functions of any numbers.
NUMBERS: Final[dict[str, tuple[type[array.Unary], str, str]]] = {
    "abs": (array.Abs, "abs([-2, 3])", "[2, 3]"),
    "sign": (array.Sign, "sign([-2.5, 0, 3])", "[-1.0, 0.0, 1.0]"),
    "floor": (array.Floor, "floor([1.5, -1.5])", "[1.0, -2.0]"),
    "ceil": (array.Ceil, "ceil([1.5, -1.5])", "[2.0, -1.0]"),
    "round": (array.Round, "round([0.5, 1.5, 2.6])", "[0.0, 2.0, 3.0]"),
    "trunc": (array.Trunc, "trunc([1.5, -1.5])", "[1.0, -1.0]"),
}
# Functions of two tensors, which are broadcast together.
PAIRS: Final[dict[str, tuple[type[array.Binary], str, str]]] = {
    "maximum": (array.Maximum, "maximum([1, 5], 3)", "[3, 5]"),
    "minimum": (array.Minimum, "minimum([1, 5], 3)", "[1, 3]"),
    "atan2": (array.Atan2, "atan2([1.0, 0.0], [0.0, 1.0])", "[1.5707964, 0.0]"),
    "truncated_remainder": (
        array.TruncatedRemainder,
        "truncated_remainder([-7, 7], 3)",
        "[-1, 1]",
    ),
    "bit_and": (array.And, "bit_and([6, 5], 3)", "[2, 1]"),
    "bit_or": (array.Or, "bit_or([6, 5], 3)", "[7, 7]"),
    "bit_xor": (array.Xor, "bit_xor([6, 5], 3)", "[5, 6]"),
    "shift_left": (array.ShiftLeft, "shift_left([1, 3], 2)", "[4, 12]"),
    "shift_right": (array.ShiftRight, "shift_right([4, -8], 1)", "[2, -4]"),
}
_OF_PAIR: Final[dict[type[array.Binary], tuple[str, str]]] = {
    array.Atan2: ("y: any, x: any", "The angle of the point (x, y), in (-pi, pi]; y comes first.")
}
"""Parameters that are not x and y, and what they do by these names."""


# Of numbers known when compiling: how two sizes are compared, and two plain numbers.
FOLDED: Final[dict[type[array.Binary], Callable[..., Datum]]] = {
    array.Maximum: dims.maximum,
    array.Minimum: dims.minimum,
}
PLAIN: Final[dict[type[array.Binary], Callable[..., Datum]]] = {
    array.Maximum: max,
    array.Minimum: min,
}


def documentation(op: type[Op]) -> str:
    """The summary of the operation, in one line."""
    return (op.__doc__ or "").partition("\n")[0]


def _unary(op: type[array.Unary]) -> Callable[..., Datum]:
    def run(at: Trace, x: Value | float) -> Datum:
        return at(op(x)) if isinstance(x, Value) else _of_number(op, x)

    return run


def _of_number(op: type[array.Unary], x: float) -> float:
    """The function of a number known when compiling, in f64; whole numbers stay whole if they can."""
    with np.errstate(all="ignore"):
        found = op.scalar.function(np.asarray(float(x), np.float64)).item()
    assert isinstance(found, float)
    kept = isinstance(x, int) and not op.scalar.kinds.isdisjoint({"int"})
    return int(found) if kept else found


def _pair(op: type[array.Binary]) -> Callable[..., Datum]:
    fold = FOLDED.get(op)

    def run(at: Trace, x: Datum, y: Datum) -> Datum:
        if fold is not None and is_number(x) and is_number(y):
            numbers = (x, y)
            if not any(isinstance(n, Dim) for n in numbers):
                return PLAIN[op](*numbers)
            if not any(isinstance(n, float) for n in numbers):
                return fold(*numbers)
        return at(op(*unify(at, (x, y))))

    return run


for _name, (_op, _example, _result) in FLOATS.items():
    _doc = documentation(_op)
    add_builtin(f"{_name}(x: real)", GROUP, _doc, _example, _result, _unary(_op))
for _name, (_op, _example, _result) in NUMBERS.items():
    _doc = documentation(_op)
    add_builtin(f"{_name}(x: count)", GROUP, _doc, _example, _result, _unary(_op))
for _name, (_op, _example, _result) in PAIRS.items():
    _parameters, _doc = _OF_PAIR.get(_op, ("x: any, y: any", documentation(_op)))
    add_builtin(f"{_name}({_parameters})", GROUP, _doc, _example, _result, _pair(_op))


@builtin("bit_not(x: tensor)", GROUP, documentation(array.Not), "bit_not([0, 5])", "[-1, -6]")
def bit_not(at: Trace, x: Value) -> Datum:
    return at(array.Not(x))


@builtin(
    "bitcast(x: tensor, dtype: dtype)",
    GROUP,
    "The bits of each element, read as those of another dtype of the same width.",
    "bitcast([1.0, -2.0], i32)",
    "[1065353216, -1073741824]",
)
def bitcast(at: Trace, x: Value, dtype: DType) -> Datum:
    return at(array.Bitcast(x, dtype))


@builtin("identity(x: any)", GROUP, "x itself.", "identity([1, 2])", "[1, 2]")
def identity(at: Trace, x: Datum) -> Datum:
    return x


@builtin(
    "is_function(x: any)",
    GROUP,
    "Whether x is a function rather than a number or a tensor: known when compiling.",
    "is_function(sin)",
    "true",
)
def is_function(at: Trace, x: Datum) -> Datum:
    return isinstance(x, Callee)


@builtin(
    "where(condition: tensor, yes: any, no: any)",
    GROUP,
    "For each element `yes` where the condition holds, else `no`.",
    "where([true, false], [1, 2], 0)",
    "[1, 0]",
)
def where(at: Trace, condition: Value, yes: Datum, no: Datum) -> Datum:
    if dtype_of(condition) is not BOOL:
        raise at.fail(
            "D0302",
            f"a condition is made of bools, found {show(condition)}",
            help="compare first: where(x != 0, ...)",
        )
    chosen, other = unify(at, (yes, no), "choose between")
    # The three are broadcast together: two of them may each have an axis that the others lack.
    like = at(array.Cast(condition, dtype_of(chosen)))
    shaped, chosen, other = unify(at, (like, chosen, other), "choose between")
    if shaped is like:
        return at(array.Select(condition, chosen, other))
    whole = array.tensor_type(shaped).shape
    return at(array.Select(broadcast_to(at, condition, whole), chosen, other))


@builtin(
    "clip(x: tensor, low: any = none, high: any = none)",
    GROUP,
    "x, but at least `low` and at most `high`.",
    "clip([-1.0, 0.5, 2.0], 0, 1)",
    "[0.0, 0.5, 1.0]",
)
def clip(at: Trace, x: Value, low: Datum, high: Datum) -> Datum:
    # In this order x itself receives the derivative at both bounds.
    if low is not None:
        x = at(array.Maximum(*unify(at, (x, low))))
    if high is not None:
        x = at(array.Minimum(*unify(at, (x, high))))
    return x


@builtin("square(x: tensor)", GROUP, "`x * x`.", "square([2, -3])", "[4, 9]")
def square(at: Trace, x: Value) -> Datum:
    return at(array.Multiply(x, x))


@builtin(
    "lerp(a: any, b: any, t: any)",
    GROUP,
    "`a + (b - a) * t`: a where t is 0, b where it is 1.",
    "lerp(2.0, 4.0, 0.25)",
    "2.5",
)
def lerp(at: Trace, a: Datum, b: Datum, t: Datum) -> Datum:
    start, end = unify(at, (a, b))
    step = at(array.Multiply(*unify(at, (at(array.Subtract(end, start)), t))))
    return at(array.Add(*unify(at, (start, step))))


@builtin(
    "is_nan(x: float)", GROUP, "Whether each element is NaN.", "is_nan([1, nan])", "[false, true]"
)
def is_nan(at: Trace, x: Value) -> Datum:
    return at(array.Compare(x, x, "ne"))


@builtin(
    "is_finite(x: float)",
    GROUP,
    "Whether each element is neither infinite nor NaN.",
    "is_finite([1, inf, nan])",
    "[true, false, false]",
)
def is_finite(at: Trace, x: Value) -> Datum:
    infinite = array.constant_like(at, float("inf"), x)
    return at(array.Compare(at(array.Abs(x)), infinite, "lt"))


@builtin(
    "stop_gradient(x: tensor)",
    GROUP,
    "x itself, which derivatives take for a constant.",
    "stop_gradient([1, 2])",
    "[1, 2]",
)
def stop_gradient(at: Trace, x: Value) -> Datum:
    return at(flow.StopGradient(x))
