"""Functions of f32 by the special function unit of a GPU: a few instructions instead of a formula.

They are off by a little more than the formulas of `dlc.lowering.math`, as the documentation of each
instruction says (`simt.exp2`, `simt.divide`, `simt.sqrt`, `simt.rsqrt`):

- exp: 2**-22 and |x| * 2**-24 of the result, from the product with log2(e); below 2**-126 it is 0
- division: two units in the last place
- square root and its reciprocal: 2**-22 of the result
- the logistic function: as exp, and two units in the last place of the quotient
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dlc.dialects import scalar, simt
from dlc.dialects.expr import Expr
from dlc.dialects.scalar import element
from dlc.ir.core import Builder, Op, Value
from dlc.ir.types import F32
from dlc.lowering.math import Expansion

LOG2_E = math.log2(math.e)


def exponential(value: Expr) -> Expr:
    """The exponential of an f32, from 2 to its power."""
    power = value * LOG2_E
    return power.apply(simt.Exp2(power.value))


def quotient(top: Expr, bottom: Expr) -> Expr:
    return top.apply(simt.Divide(top.value, bottom.value))


def square_root(value: Expr) -> Expr:
    return value.apply(simt.Sqrt(value.value))


def reciprocal_root(value: Expr) -> Expr:
    return value.apply(simt.Rsqrt(value.value))


def logistic(value: Expr) -> Expr:
    return quotient(value.constant(1), exponential(-value) + 1)


APPROXIMATE: Mapping[type[Op], Expansion] = {
    scalar.Exp: lambda emit, op: exponential(Expr(emit, op.operands[0])).value,
    scalar.Sigmoid: lambda emit, op: logistic(Expr(emit, op.operands[0])).value,
    scalar.Divide: lambda emit, op: quotient(*[Expr(emit, x) for x in op.operands]).value,
    scalar.Sqrt: lambda emit, op: square_root(Expr(emit, op.operands[0])).value,
    scalar.Rsqrt: lambda emit, op: reciprocal_root(Expr(emit, op.operands[0])).value,
}
"""What is computed so, where it is f32."""


def with_approximations(table: Mapping[type[Op], Expansion]) -> dict[type[Op], Expansion]:
    """These expansions, but of functions of f32 by the special function unit."""
    return {**table, **{cls: _for_f32(cls, table.get(cls)) for cls in APPROXIMATE}}


def _for_f32(cls: type[Op], other: Expansion | None) -> Expansion:
    def expand(emit: Builder, op: Op) -> Value:
        if element(op.result.type) is F32:
            return APPROXIMATE[cls](emit, op)
        if other is not None:
            return other(emit, op)
        assert cls is scalar.Sqrt, "all others are formulas"
        return emit(scalar.Sqrt(op.operands[0]))

    return expand
