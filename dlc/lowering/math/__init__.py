"""Functions that the machine has no instruction for, as formulas of operations that it has.

`EXPANSIONS` has one entry for each such operation: called with a builder and the operation (which is not
placed), it places the formula and gives its value. The operands are scalars or registers alike. What is
placed is basic: code generation needs one instruction for it, or a few where the processor is old, but
never a function of a library. Nothing in it branches or depends on the floating-point state, and no
step may be contracted or reordered: the errors in `docs/math.md` hold for it as it stands.
"""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import scalar
from dlc.ir.core import Builder, Op, Value
from dlc.lowering.math import (
    error_function,
    exponential,
    floats,
    fused,
    hyperbolic,
    integer,
    inverse_trigonometric,
    logarithm,
    power,
    remainder,
    rounding,
    sign,
    trigonometric,
)
from dlc.lowering.math.term import Term

Expansion = Callable[[Builder, Op], Value]
Unary = Callable[[Term], Term]
Binary = Callable[[Term, Term], Term]

UNARY: dict[type[Op], Unary] = {
    scalar.Exp: exponential.exp,
    scalar.Expm1: exponential.expm1,
    scalar.Sigmoid: exponential.sigmoid,
    scalar.Log: logarithm.log,
    scalar.Log1p: logarithm.log1p,
    scalar.Rsqrt: power.rsqrt,
    scalar.Sin: trigonometric.sin,
    scalar.Cos: trigonometric.cos,
    scalar.Tan: trigonometric.tan,
    scalar.Asin: inverse_trigonometric.asin,
    scalar.Acos: inverse_trigonometric.acos,
    scalar.Atan: inverse_trigonometric.atan,
    scalar.Sinh: hyperbolic.sinh,
    scalar.Cosh: hyperbolic.cosh,
    scalar.Tanh: hyperbolic.tanh,
    scalar.Asinh: hyperbolic.asinh,
    scalar.Acosh: hyperbolic.acosh,
    scalar.Atanh: hyperbolic.atanh,
    scalar.Erf: error_function.erf,
    scalar.Sign: sign.sign,
}
"""Functions of one number; all but the sign are of floats."""

BINARY: dict[type[Op], tuple[Binary | None, Binary | None]] = {
    scalar.Divide: (Term.__truediv__, integer.divide),
    scalar.FloorDivide: (remainder.floor_divide, integer.floor_divide),
    scalar.Remainder: (remainder.floor_remainder, integer.remainder),
    scalar.TruncatedRemainder: (remainder.truncated_remainder, integer.truncated_remainder),
    scalar.Power: (power.power, integer.power),
    scalar.Atan2: (inverse_trigonometric.atan2, None),
    scalar.ShiftLeft: (None, integer.shift_left),
    scalar.ShiftRight: (None, integer.shift_right),
}
"""Functions of two floats, and of two integers."""


ROUNDING: dict[type[Op], Unary] = {
    scalar.Round: rounding.nearest,
    scalar.Trunc: rounding.trunc,
    scalar.Floor: rounding.floor,
    scalar.Ceil: rounding.ceil,
}
"""Functions that the oldest processors have no instruction for."""


def expansions(
    *, fma: bool, half: bool, brain: bool = False, rounding: bool = True
) -> dict[type[Op], Expansion]:
    """For a processor that has, or has not, instructions that multiply and add, that convert f16, that
    round to bf16, and that round to integers."""

    def unary(function: Unary) -> Expansion:
        return lambda emit, op: function(Term(emit, op.operands[0], fma)).value

    def binary(of_floats: Binary | None, of_integers: Binary | None) -> Expansion:
        def expand(emit: Builder, op: Op) -> Value:
            x, y = (Term(emit, operand, fma) for operand in op.operands)
            function = of_floats if x.dtype.is_float else of_integers
            assert function is not None, op
            return function(x, y).value

        return expand

    def cast(emit: Builder, op: Op) -> Value:
        assert isinstance(op, scalar.Cast)
        return floats.convert(Term(emit, op.source, fma), op.dtype, half=half, brain=brain).value

    def multiply_add(emit: Builder, op: Op) -> Value:
        x, y, z = (Term(emit, operand, fma) for operand in op.operands)
        return fused.fma(x, y, z).value

    table = {cls: unary(function) for cls, function in UNARY.items()}
    table |= {cls: binary(*functions) for cls, functions in BINARY.items()}
    table[scalar.Cast] = cast
    if not rounding:
        table |= {cls: unary(function) for cls, function in ROUNDING.items()}
    return table if fma else {**table, scalar.Fma: multiply_add}


EXPANSIONS = expansions(fma=True, half=True)
"""For processors from x86-64-v3 on."""
