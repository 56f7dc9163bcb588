"""Operators (`+`, `@`, `==`, `and` ...) on compile-time numbers and on tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import isfinite, isinf
from typing import Final

from dlc.dialects import array
from dlc.dialects.array import show
from dlc.dialects.array.shape import reshape
from dlc.errors import ModelError
from dlc.frontend.elaboration.evaluator import Evaluator, evaluates
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.tensors import (
    as_tensor,
    broadcast_shape,
    broadcast_to,
    dtype_of,
    refuse_mixture,
    tensor_type,
    unify,
)
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import (
    UNKNOWN,
    Callee,
    Datum,
    Hole,
    Items,
    Number,
    describe,
    is_number,
    part_of,
)
from dlc.ir.core import Value
from dlc.ir.dims import Dim, Size, product
from dlc.ir.intervals import interval
from dlc.ir.types import BOOL, F32, DType
from dlc.text.model import ast
from dlc.text.source import Span

__all__ = ["arithmetic", "compare", "matmul", "negate"]

KINDS: Final[dict[str, type[array.Binary]]] = {
    "+": array.Add,
    "-": array.Subtract,
    "*": array.Multiply,
    "/": array.Divide,
    "//": array.FloorDivide,
    "%": array.Remainder,
    "**": array.Power,
}
VERBS: Final = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "//": "divide", "%": "divide",
    "**": "raise", "@": "multiply", "and": "combine", "or": "combine",
}  # fmt: skip
PREDICATES: Final = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
COMPARE: Final[dict[str, Callable[[Number, Number], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NUMERIC: Final[dict[str, Callable[[Number, Number], Number]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": lambda a, b: a // b,
    "%": operator.mod,
}
SMALL_POWERS: Final = range(2, 5)
"""Exponents whose power is written out as products."""


@evaluates(ast.Binary)
def _binary(ev: Evaluator, node: ast.Binary, scope: Scope) -> Datum:
    """A flat chain: `a - b + c` is evaluated from left to right without recursion."""
    left = ev.eval(node.first, scope)
    span = node.first.span
    for term in node.rest:
        if term.op in ("and", "or"):
            left = _logical(ev, left, span, term, scope)
        else:
            right = ev.eval(term.operand, scope)
            ev.at.stand(term.span)
            try:
                left = _term(ev, term.op, left, right, scope)
            except ModelError as error:
                operands = [(span, left), (term.operand.span, right)]
                raise ev.labelled(error, operands, f"`{term.op}`") from None
        span = Span(node.span.start, term.operand.span.end)
    return left


def _term(ev: Evaluator, op: str, left: Datum, right: Datum, scope: Scope) -> Datum:
    if op == "@":
        return matmul(ev.at, left, right)
    return arithmetic(ev.at, op, left, right)


@evaluates(ast.Unary)
def _unary(ev: Evaluator, node: ast.Unary, scope: Scope) -> Datum:
    value = ev.eval(node.operand, scope)
    ev.at.stand(node.span)
    try:
        return negate(ev.at, value) if node.op == "-" else _not(ev.at, value)
    except ModelError as error:
        raise ev.labelled(error, [(node.operand.span, value)], f"`{node.op}`") from None


@evaluates(ast.Compare)
def _compare(ev: Evaluator, node: ast.Compare, scope: Scope) -> Datum:
    left, right = ev.eval(node.left, scope), ev.eval(node.right, scope)
    ev.at.stand(node.op_span)
    try:
        return compare(ev.at, node.op, left, right)
    except ModelError as error:
        operands = [(node.left.span, left), (node.right.span, right)]
        raise ev.labelled(error, operands, f"`{node.op}`") from None


# Arithmetic -------------------------------------------------------------------------------------


def arithmetic(at: Trace, op: str, left: Datum, right: Datum) -> Datum:
    """`left op right` for `+ - * / // % **`; a tensor if one of them is, or is to become one."""
    if isinstance(left, Value) or isinstance(right, Value):
        return _tensor_arithmetic(at, op, left, right)
    if is_number(left) and is_number(right):
        return _numbers(at, op, left, right)  # pyright: ignore[reportArgumentType]
    if isinstance(left, Items) or isinstance(right, Items):
        return _tensor_arithmetic(at, op, left, right)
    raise _no_operator(at, op, left, right)


def _no_operator(at: Trace, op: str, left: Datum, right: Datum) -> Exception:
    if UNKNOWN in (left, right):
        return Poisoned()
    if isinstance(left, Hole) or isinstance(right, Hole):
        return at.fail(
            "D0213",
            "a size written `_` is used before anything was put in",
            help="write the size in place of `_`",
        )
    wrong = right if is_number(left) or isinstance(left, Value | Items) else left
    help = "call it first" if isinstance(wrong, Callee) else part_of(wrong)
    return at.fail("D0326", f"`{op}` has no meaning for {describe(wrong)}", help=help)


def _numbers(at: Trace, op: str, left: Number | Dim, right: Number | Dim) -> Datum:
    """Arithmetic when compiling; sizes stay sizes as long as the result is a whole number."""
    symbolic = isinstance(left, Dim) or isinstance(right, Dim)
    if symbolic and (op in ("/", "**") or isinstance(left, float) or isinstance(right, float)):
        return _tensor_arithmetic(at, op, as_tensor(at, left, F32), as_tensor(at, right, F32))
    try:
        if isinstance(left, float) or isinstance(right, float) or op in ("/", "**"):
            assert not isinstance(left, Dim) and not isinstance(right, Dim)
            result = _calculate(op, left, right)
            if isinf(result) and isfinite(left) and isfinite(right):
                raise OverflowError
            return result
        return _bounded(_calculate_sizes(op, left, right))
    except ZeroDivisionError:
        raise at.fail("D0329", f"{left} {op} {right} divides by 0") from None
    except (OverflowError, ValueError):
        raise at.fail("D0329", f"{left} {op} {right} is not a number that can be written") from None


MAX_BITS: Final = 64
"""Whole numbers of a text are no longer than this."""
MAX_TERMS: Final = 64
"""The most products in the sum that is a symbolic size."""


def _bounded(size: Size) -> Size:
    """The size, if it is one that can be worked with; raises OverflowError."""
    if isinstance(size, Dim):
        if len(size.terms) > MAX_TERMS:
            raise OverflowError
    elif size.bit_length() > MAX_BITS:
        raise OverflowError
    return size


def _calculate_sizes(op: str, left: Size, right: Size) -> Size:
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "//":
            return left // right
        case _:
            return left % right


def _calculate(op: str, left: Number, right: Number) -> Number:
    match op:
        case "/":
            return left / right
        case "**":
            if isinstance(left, int) and left.bit_length() * abs(right) > 8 * MAX_BITS:
                left = float(left)
            power: object = left**right
            if not isinstance(power, int | float):
                raise ValueError
            if isinstance(power, int):
                _bounded(power)
            return power
        case _:
            return NUMERIC[op](left, right)


def _tensor_arithmetic(at: Trace, op: str, left: Datum, right: Datum) -> Value:
    if op == "**" and isinstance(left, Value) and isinstance(right, int) and right in SMALL_POWERS:
        return _product_of(at, left, right)
    lhs, rhs = unify(at, (left, right), VERBS[op])
    if op == "/" and not dtype_of(lhs).is_float:
        raise _integer_division(at, lhs, rhs)
    return at(KINDS[op](lhs, rhs))


def _product_of(at: Trace, base: Value, exponent: int) -> Value:
    """`x ** 3` as `x * x * x`: exact where the products are, and its derivative is plain."""
    power = base
    for _ in range(exponent - 1):
        power = at(array.Multiply(power, base))
    return power


def _integer_division(at: Trace, lhs: Value, rhs: Value) -> Exception:
    dtype = dtype_of(lhs)
    if dtype is BOOL:
        return at.fail("D0302", "a bool cannot be divided", help="convert it first: f32(...)")
    return at.fail(
        "D0325",
        f"cannot divide {show(lhs)} by {show(rhs)}: `/` is division of floats",
        help="write // to round down, or convert first: f32(...)",
    )


def negate(at: Trace, value: Datum) -> Datum:
    """`-value`."""
    match value:
        case Value():
            return at(array.Negate(value))
        case bool():
            raise at.fail("D0302", "a bool has no sign", help="write `not`")
        case int() | float() | Dim():
            return -value
        case Items():
            return at(array.Negate(as_tensor(at, value)))
        case _:
            raise _no_operator(at, "-", value, value)


# Logic ------------------------------------------------------------------------------------------


def _not(at: Trace, value: Datum) -> Datum:
    if isinstance(value, bool):
        return not value
    return at(array.Not(_truth(at, value, "not")))


def _logical(ev: Evaluator, left: Datum, span: Span, term: ast.Term, scope: Scope) -> Datum:
    """`and`, `or`: what is known when compiling decides without the other side."""
    at = ev.at
    if isinstance(left, bool):
        if left == (term.op == "or"):
            return left
        right = ev.eval(term.operand, scope)
        at.stand(term.span)
        return right if isinstance(right, bool) else _truth(at, right, term.op)
    right = ev.eval(term.operand, scope)
    at.stand(term.span)
    try:
        if isinstance(right, bool) and isinstance(left, Value):
            right = as_tensor(at, right, BOOL)
        kind = array.And if term.op == "and" else array.Or
        lhs, rhs = unify(at, (_truth(at, left, term.op), _truth(at, right, term.op)), "combine")
        return at(kind(lhs, rhs))
    except ModelError as error:
        raise ev.labelled(error, [(span, left), (term.operand.span, right)]) from None


def _truth(at: Trace, value: Datum, op: str) -> Value:
    """A bool or a tensor of bools."""
    tensor = as_tensor(at, value)
    if dtype_of(tensor) is not BOOL:
        raise at.fail(
            "D0302", f"`{op}` takes bools, found {describe(value)}", help="compare first: x != 0"
        )
    return tensor


# Comparisons ------------------------------------------------------------------------------------


def compare(at: Trace, op: str, left: Datum, right: Datum) -> Datum:
    """`left op right`: a bool when compiling, or a tensor of bools."""
    if UNKNOWN in (left, right):
        raise Poisoned
    if op in ("==", "!=") and (left is None or right is None):
        return (left is right) == (op == "==")
    if isinstance(left, Value | Items) or isinstance(right, Value | Items):
        lhs, rhs = unify(at, (left, right), "compare")
        if dtype_of(lhs) is BOOL and op not in ("==", "!="):
            raise at.fail("D0302", f"bools have no order: `{op}`", help="convert them: i32(...)")
        return at(array.Compare(lhs, rhs, PREDICATES[op]))
    if is_number(left) and is_number(right):
        return _compare_numbers(at, op, left, right)  # pyright: ignore[reportArgumentType]
    alike = (bool, str, DType)
    if op in ("==", "!=") and any(isinstance(left, k) and isinstance(right, k) for k in alike):
        return (left == right) == (op == "==")
    if isinstance(left, Hole) or isinstance(right, Hole):
        raise _no_operator(at, op, left, right)
    raise at.fail("D0326", f"cannot compare {describe(left)} with {describe(right)}")


def _compare_numbers(at: Trace, op: str, left: Number | Dim, right: Number | Dim) -> Datum:
    if not isinstance(left, Dim) and not isinstance(right, Dim):
        return COMPARE[op](left, right)
    if isinstance(left, float) or isinstance(right, float):
        lhs, rhs = as_tensor(at, left, F32), as_tensor(at, right, F32)
        return at(array.Compare(lhs, rhs, PREDICATES[op]))
    low, high = interval(left - right, at.bounds)
    decided = _decided(op, low, high)
    if decided is not None:
        return decided
    lhs, rhs = unify(at, (as_tensor(at, left), as_tensor(at, right)), "compare")
    return at(array.Compare(lhs, rhs, PREDICATES[op]))


def _decided(op: str, low: int | None, high: int | None) -> bool | None:
    """The truth of `difference op 0` if it is the same for all values from low to high, else None."""
    if op in ("==", "!="):
        outside = (low is not None and low > 0) or (high is not None and high < 0)
        if outside or low == high == 0:
            return outside == (op == "!=")
        return None
    ends = [low, high] if op in ("<", "<=") else [high, low]
    best, worst = ends
    always = worst is not None and COMPARE[op](worst, 0)
    never = best is not None and not COMPARE[op](best, 0)
    return True if always else False if never else None


# Products of matrices -----------------------------------------------------------------------------


def matmul(at: Trace, left: Datum, right: Datum) -> Value:
    """`left @ right`: the last axis of one with the second last of the other, or with its only one."""
    lhs, rhs = _operands(at, left, right)
    one, two = tensor_type(lhs).shape, tensor_type(rhs).shape
    inner, other = one[-1], two[max(-2, -len(two))]
    if inner != other:
        raise at.fail(
            "D0301",
            f"cannot multiply {show(lhs)} by {show(rhs)}: "
            f"the inner sizes {inner} and {other} differ",
        )
    if len(two) == 1:
        column = at(array.Reshape(rhs, (*two, 1)))
        return reshape(at, matmul(at, lhs, column), one[:-1])
    if len(one) == 1:
        row = at(array.Reshape(lhs, (1, *one)))
        return reshape(at, matmul(at, row, rhs), (*two[:-2], two[-1]))
    if len(two) == 2:
        rows = reshape(at, lhs, (product(one[:-1]), inner))
        return reshape(at, at(array.MatMul(rows, rhs)), (*one[:-1], two[-1]))
    lead = broadcast_shape(at, one[:-2], two[:-2], "multiply")
    lhs = broadcast_to(at, lhs, (*lead, *one[-2:]))
    rhs = broadcast_to(at, rhs, (*lead, *two[-2:]))
    return at(array.MatMul(lhs, rhs))


def _operands(at: Trace, left: Datum, right: Datum) -> tuple[Value, Value]:
    """Both as tensors of one dtype that have axes."""
    first = next((v for v in (left, right) if isinstance(v, Value)), None)
    dtype = None if first is None else dtype_of(first)
    lhs, rhs = as_tensor(at, left, dtype), as_tensor(at, right, dtype)
    if dtype_of(lhs) is not dtype_of(rhs):
        raise refuse_mixture(at, [lhs, rhs])
    for value in (lhs, rhs):
        if not tensor_type(value).shape:
            raise at.fail(
                "D0301",
                f"`@` multiplies matrices, found {show(value)}",
                help="the product with a number is written *",
            )
    if dtype_of(lhs) is BOOL:
        raise at.fail("D0302", "bools have no product", help="convert them first: f32(...)")
    return lhs, rhs
