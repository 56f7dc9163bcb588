"""Sizes that are computed through floats, such as `i64(ceil(f32(samples) / 5 + 1))`, as sizes.

A float has the same integers around it as the quotient that it stands for, as long as what rounding may
add up to is less than what lies between that quotient and the next integer: each call is checked for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects import array
from dlc.importers.onnx.node_context import Constant, NodeContext
from dlc.ir.attributes import decode
from dlc.ir.core import Value
from dlc.ir.dims import Size, ceil_divide, floor_divide
from dlc.ir.intervals import interval
from dlc.ir.types import F32, F64, DType

PRECISION = {F32: 24, F64: 53}
"""The digits of a float, in bits."""


@dataclass(frozen=True, slots=True)
class _Quotient:
    """`size / divisor`, as floats compute it in some steps.

    Of no step the size over the same divisor is beyond `reach`. The rounding of a step is at most its
    result times `2**-PRECISION`, that of all at most `steps * reach / divisor * 2**-PRECISION`; a quotient
    that is not an integer is `1 / divisor` from the next one, and one that is an integer is not rounded.
    """

    size: Size
    divisor: int
    reach: Size
    steps: int

    def plus(self, number: int) -> _Quotient:
        """A number more."""
        added = number * self.divisor
        return _Quotient(self.size + added, self.divisor, self.reach + abs(added), self.steps + 1)

    def times(self, number: int) -> _Quotient | None:
        """`number` times the quotient; None for a quotient, or a number that is not positive."""
        if self.divisor != 1 or number <= 0:
            return None
        return _Quotient(self.size * number, 1, self.reach * number, self.steps + 1)

    def over(self, number: int) -> _Quotient | None:
        """A part of a size; None for a part of a part, or a number that is not positive."""
        if self.divisor != 1 or number <= 0:
            return None
        return _Quotient(self.size, number, self.reach, self.steps + 1)


def rounded_size(context: NodeContext, value: Value) -> Constant | None:
    """What a float of one element is as an integer, if it was rounded from a quotient of sizes."""
    type = array.tensor_type(value)
    rounding = _made_of(value)
    if type.size != 1 or not isinstance(rounding.op, array.Ceil | array.Floor):
        return None
    quotient = _quotient(context, rounding.op.source)
    if quotient is None:
        return None
    most = (1 << PRECISION[type.dtype]) // max(quotient.steps, 1) - 1
    told = (
        f"rounds {quotient.size} over {quotient.divisor} in {type.dtype.name}, which is not exact"
    )
    context.require(most - quotient.reach, told)
    divide = ceil_divide if isinstance(rounding.op, array.Ceil) else floor_divide
    whole = divide(quotient.size, quotient.divisor)
    return Constant.of_sizes([whole], [1] * type.rank)


def _quotient(context: NodeContext, value: Value) -> _Quotient | None:
    """A value in floats as a quotient of sizes; None where it is another."""
    op = _made_of(value).op
    if isinstance(op, array.Cast) and isinstance(_made_of(op.source).op, array.Extent):
        return _size(context, op.source, array.tensor_type(value).dtype)
    if not isinstance(op, array.Add | array.Subtract | array.Multiply | array.Divide):
        return None
    one, number = _quotient(context, op.lhs), _number(op.rhs)
    if one is None and isinstance(op, array.Add | array.Multiply):
        one, number = _quotient(context, op.rhs), _number(op.lhs)
    if one is None or number is None:
        return None
    match op:
        case array.Add():
            return one.plus(number)
        case array.Subtract():
            return one.plus(-number)
        case array.Multiply():
            return one.times(number)
        case _:
            return one.over(number)


def _size(context: NodeContext, value: Value, dtype: DType) -> _Quotient | None:
    extent = _made_of(value).op
    assert isinstance(extent, array.Extent)
    least = interval(extent.size, context.regions.bounds)[0]
    if dtype not in PRECISION or least is None:
        return None
    # From `least` on, no size is farther from 0 than this.
    return _Quotient(extent.size, 1, extent.size + 2 * max(-least, 0), 0)


def _number(value: Value) -> int | None:
    """A constant of one element, if it is an integer."""
    op = _made_of(value).op
    if isinstance(op, array.Fill):
        number = float(op.value)
    elif isinstance(op, array.Constant) and op.value.array.size == 1:
        number = float(decode(op.value.array, op.value.type.dtype).item())
    else:
        return None
    return int(number) if number.is_integer() else None


def _made_of(value: Value) -> Value:
    """What a value of one element is before it is reshaped, or cast to the dtype that it has."""
    while isinstance(value.op, array.Reshape) or (
        isinstance(value.op, array.Cast) and value.op.source.type is value.type
    ):
        value = value.op.source
    return value
