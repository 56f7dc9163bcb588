"""Algebraic simplification that may round differently: constants merge, small powers become products.

Each rule is an identity of real numbers whose two sides differ by rounding only. No rule assumes that NaN
and infinity are absent, but a lookup (`dlc.passes.graph.onehot_to_gather`) does not see those in rows that
it does not read.
"""

from __future__ import annotations

from typing import Any

from dlc.dialects import array
from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.core import Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL, Pattern, Rewriter
from dlc.passes.graph.canonicalize import graph_blocks, known_result, number, twice
from dlc.passes.graph.onehot_to_gather import onehot_to_gather
from dlc.passes.graph.scatter_add import add_scattered, scale_scattered, subtract_scattered


@define_pass("algebra")
def algebra(module: Op, context: Context) -> None:
    """Merge constants and replace powers by products, within rounding."""
    context.rewriter.run(graph_blocks(module), RULES)


def merge_constants(op: array.Multiply | array.Add, rewriter: Rewriter) -> bool:
    """`(x * a) * b` is `x * (a * b)`, and `(x + a) + b` is `x + (a + b)`."""
    inner, kind = op.lhs.op, type(op)
    if not isinstance(inner, kind) or number(op.rhs) is None or number(inner.rhs) is None:
        return False
    combined = kind(inner.rhs, op.rhs)
    merged = known_result(combined)
    combined.erase()
    if merged is None:
        return False
    emit = rewriter.before(op)
    rewriter.replace(op, emit(kind(inner.lhs, emit(merged))), relation=EQUAL)
    return True


def factor_out_constant(op: array.Multiply, rewriter: Rewriter) -> bool:
    """`(x * a) * y` is `(x * y) * a`, so that factors meet."""
    for side, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        inner = side.op
        if (
            isinstance(inner, array.Multiply)
            and number(inner.rhs) is not None
            and number(other) is None
            and len(side.uses) == 1
        ):
            emit = rewriter.before(op)
            product = emit(array.Multiply(inner.lhs, other))
            rewriter.replace(op, emit(array.Multiply(product, inner.rhs)), relation=EQUAL)
            return True
    return False


def small_power(op: array.Power, rewriter: Rewriter) -> bool:
    """`x ** 2` is `x * x`, `x ** 3` is `x * x * x`, `x ** -1` is `1 / x`, `x ** 0.5` is the root."""
    emit = rewriter.before(op)
    x = op.lhs
    new: Value
    match number(op.rhs):
        case 2:
            new = emit(array.Multiply(x, x))
        case 3:
            new = emit(array.Multiply(emit(array.Multiply(x, x)), x))
        case -1 if tensor_type(x).dtype.is_float:
            new = emit(array.Divide(array.constant_like(emit, 1, x), x))
        case _:
            return False
    rewriter.replace(op, new, relation=EQUAL)
    return True


def divide_by_constant(op: array.Divide, rewriter: Rewriter) -> bool:
    """`x / a` is `x * (1 / a)` for floats where 1/a is finite and not denormal.

    A single number is divided: nothing is gained. So is one that is rounded to an integer next, as where
    numbers are quantised: its last bit decides on which side of a half it is.
    """
    divisor = number(op.rhs)
    if not isinstance(divisor, float) or not 1e-30 < abs(divisor) < 1e30:
        return False
    type = tensor_type(op.lhs)
    if type.dtype.bits < 32 or type.size == 1 or any(map(_rounds, op.result.uses)):
        return False
    emit = rewriter.before(op)
    inverse = array.fill(emit, 1 / divisor, tensor_type(op.result))
    rewriter.replace(op, emit(array.Multiply(op.lhs, inverse)), relation=EQUAL)
    return True


def _rounds(op: Op) -> bool:
    """Whether an operation makes integers of floats."""
    if isinstance(op, array.Cast):
        return op.dtype.is_integer
    return isinstance(op, array.Round | array.Floor | array.Ceil | array.Trunc)


RULES: dict[type[Op], list[Pattern[Any]]] = {
    array.Multiply: [merge_constants, factor_out_constant, scale_scattered],
    array.Add: [twice, merge_constants, add_scattered],
    array.Subtract: [subtract_scattered],
    array.Power: [small_power],
    array.Divide: [divide_by_constant],
    array.MatMul: [onehot_to_gather],
}
"""The rules of this pass, by the operation that they look at."""
