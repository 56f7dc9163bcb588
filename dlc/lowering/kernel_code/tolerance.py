"""Kernels that may compute f32 with a few bits less, because each result is rounded to 16 bits in the end.

An exponential, a quotient or a root that is off by 2**-20 of itself is as good as the exact one where it is
only multiplied, divided, compared for the largest, or added to numbers of the same sign until it is rounded
to f16 or bf16. Then the relative error of the result stays 2**-20 or so, of which the rounding leaves
nothing but a rare change of the last bit. A difference could make a large relative error of a small one: a
kernel with such a path keeps the exact functions.
"""

from __future__ import annotations

from dlc.dialects import kernel, scalar
from dlc.dialects.scalar import element
from dlc.ir.core import Block, Op, Value
from dlc.ir.types import BF16, F16, F32

FUNCTIONS = (scalar.Exp, scalar.Sigmoid, scalar.Divide, scalar.Sqrt, scalar.Rsqrt)
"""The functions that have an approximation."""
_POSITIVE = (scalar.Exp, scalar.Sigmoid, scalar.Abs, scalar.Sqrt, scalar.Rsqrt)
"""Functions that give no negative number."""
_KEEPS_SIGN = (scalar.Add, scalar.Multiply, scalar.Divide, scalar.Minimum, scalar.Maximum)
"""Functions of two numbers that give no negative number of such numbers."""
_KEEPS_ERROR = (
    scalar.Multiply,
    scalar.Divide,
    scalar.Negate,
    scalar.Abs,
    scalar.Maximum,
    scalar.Minimum,
    scalar.Sqrt,
    scalar.Rsqrt,
    kernel.Load,
)
"""Operations whose relative error is at most the sum of those of their operands."""


def tolerates_approximations(op: Op) -> bool:
    """Whether all functions of f32 in a kernel that have an approximation may be replaced by it."""
    ops = [inner for inner in op.walk() if inner is not op]
    functions = [
        inner for inner in ops if isinstance(inner, FUNCTIONS) and inner.result.type is F32
    ]
    if not functions:
        return False
    analysis = _Analysis(_positive(op))
    for inner in reversed(ops):
        analysis.visit(inner)
    return all(function.result in analysis.tolerant for function in functions)


class _Analysis:
    """The values whose relative error only reaches what is rounded to 16 bits; users come first."""

    def __init__(self, positive: set[Value]) -> None:
        self.positive = positive
        self.tolerant: set[Value] = set()

    def visit(self, op: Op) -> None:
        for result in op.results:
            if self._is_tolerant(result):
                self.tolerant.add(result)

    def _is_tolerant(self, value: Value) -> bool:
        return all(self._keeps(user, value) for user in value.uses)

    def _keeps(self, user: Op, value: Value) -> bool:
        """Whether a user of a value passes on at most its relative error, to users that do."""
        match user:
            case scalar.Cast(dtype=dtype):
                return dtype in (F16, BF16)
            case scalar.Add():
                same_sign = all(operand in self.positive for operand in user.operands)
                return same_sign and user.result in self.tolerant
            case scalar.Select():
                return value is not user.operands[0] and user.result in self.tolerant
            case kernel.Yield():
                return self._leaves(user, value)
            case _ if isinstance(user, _KEEPS_ERROR):
                return user.result in self.tolerant
            case _:
                return False

    def _leaves(self, user: kernel.Yield, value: Value) -> bool:
        """The same for a value that a stage or a reduction gives."""
        match user.parent.parent if user.parent is not None else None:
            case kernel.Reduce(combine="maximum" | "minimum") as around:
                return self._is_tolerant(around.result)
            case kernel.Reduce(combine="add") as around:
                return value in self.positive and self._is_tolerant(around.result)
            case kernel.Stage() as around:
                return self._is_tolerant(around.result)
            case _:
                return False


def _positive(op: Op) -> set[Value]:
    """The values of a kernel that are never negative, as far as their formulas show."""
    found: set[Value] = set()
    for region in op.regions:
        _find_positive(region, found)
    return found


def _find_positive(block: Block, found: set[Value]) -> None:
    for op in block:
        for region in op.regions:
            _find_positive(region, found)
        if len(op.results) == 1 and _is_positive(op, found):
            found.add(op.result)


def _is_positive(op: Op, found: set[Value]) -> bool:
    match op:
        case scalar.Constant(value=value):
            return not isinstance(value, bool) and value >= 0
        case scalar.Multiply(lhs=lhs, rhs=rhs) if lhs is rhs:
            return True
        case scalar.Cast(source=source):
            return element(source.type).is_float and source in found
        case scalar.Select(yes=yes, no=no):
            return yes in found and no in found
        case kernel.Load(array=array):
            return array in found
        case kernel.Stage() | kernel.Reduce(combine="add" | "maximum" | "minimum"):
            return all(value in found for value in op.regions[0].terminator.operands)
        case _ if isinstance(op, _POSITIVE):
            return True
        case _ if isinstance(op, _KEEPS_SIGN):
            return all(operand in found for operand in op.operands)
        case _:
            return False
