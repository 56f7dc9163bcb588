"""Functions that the machine has no instruction for, as formulas of those that it has.

`EXPANSIONS` has one entry for each such operation: called with a builder and the operation (which is not
placed), it places the formula and gives its value. Scalars and registers alike.
"""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import scalar
from dlc.ir.builder import Builder
from dlc.ir.core import Op, Value
from dlc.lowering.math import exponential, hyperbolic, logarithm, trigonometric
from dlc.lowering.math.term import Term

Expansion = Callable[[Builder, Op], Value]


def _unary(function: Callable[[Term], Term]) -> Expansion:
    def expand(emit: Builder, op: Op) -> Value:
        return function(Term(emit, op.operands[0], True)).value

    return expand


def _rsqrt(x: Term) -> Term:
    return 1 / Term(x.emit, x.emit(scalar.Sqrt(x.value)), x.fused)


EXPANSIONS: dict[type[Op], Expansion] = {
    scalar.Exp: _unary(exponential.exp),
    scalar.Expm1: _unary(exponential.expm1),
    scalar.Sigmoid: _unary(exponential.sigmoid),
    scalar.Log: _unary(logarithm.log),
    scalar.Log1p: _unary(logarithm.log1p),
    scalar.Sin: _unary(trigonometric.sin),
    scalar.Cos: _unary(trigonometric.cos),
    scalar.Tan: _unary(trigonometric.tan),
    scalar.Sinh: _unary(hyperbolic.sinh),
    scalar.Cosh: _unary(hyperbolic.cosh),
    scalar.Tanh: _unary(hyperbolic.tanh),
    scalar.Asinh: _unary(hyperbolic.asinh),
    scalar.Acosh: _unary(hyperbolic.acosh),
    scalar.Atanh: _unary(hyperbolic.atanh),
    scalar.Rsqrt: _unary(_rsqrt),
}
"""The formula of each operation that has one."""
