"""Softmax and related functions: exponentials relative to the largest element, to avoid overflow."""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import check_axis
from dlc.dialects.decomposed import Decomposed
from dlc.dialects.nn.rows import check_floats, in_dtype, spread, total, widened
from dlc.ir.core import Builder, Op, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.types import TensorType

__all__ = ["LogSoftmax", "LogSumExp", "Softmax"]


def check_row(op: Op, source: Value, axis: int) -> TensorType:
    """The type of a tensor of floats that has the axis."""
    type = check_floats(op, source)
    check_axis(op, axis, type)
    return type


def below_largest(emit: Builder, x: Value, axis: int) -> Value:
    """Each element minus the largest one along the axis."""
    largest = emit(array.ReduceMax(x, (axis,)))
    return emit(array.Subtract(x, spread(emit, largest, x, (axis,))))


@op("nn.softmax")
class Softmax(Decomposed):
    """`exp(x) / sum of exp(x)` along the axis; NaN where all elements are -inf."""

    source: Value = operand()
    axis: int = attribute()

    def infer(self) -> TensorType:
        return check_row(self, self.source, self.axis)

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        x = widened(emit, self.source)
        e = emit(array.Exp(below_largest(emit, x, self.axis)))
        sum = total(emit, e, (self.axis,))
        inverse = emit(array.Divide(array.constant_like(emit, 1, sum), sum))
        y = emit(array.Multiply(e, spread(emit, inverse, e, (self.axis,))))
        return (in_dtype(emit, y, tensor_type(self.source).dtype),)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        y, dy = widened(emit, self.result), widened(emit, cotangents[0])
        common = total(emit, emit(array.Multiply(dy, y)), (self.axis,))
        apart = emit(array.Subtract(dy, spread(emit, common, dy, (self.axis,))))
        dx = emit(array.Multiply(apart, y))
        return (in_dtype(emit, dx, tensor_type(self.source).dtype),)


@op("nn.log_softmax")
class LogSoftmax(Decomposed):
    """`x - log of sum of exp(x)` along the axis: the logarithm of the softmax, without its underflow."""

    source: Value = operand()
    axis: int = attribute()

    def infer(self) -> TensorType:
        return check_row(self, self.source, self.axis)

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        x = widened(emit, self.source)
        z = below_largest(emit, x, self.axis)
        log = emit(array.Log(total(emit, emit(array.Exp(z)), (self.axis,))))
        y = emit(array.Subtract(z, spread(emit, log, z, (self.axis,))))
        return (in_dtype(emit, y, tensor_type(self.source).dtype),)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        y, dy = widened(emit, self.result), widened(emit, cotangents[0])
        common = spread(emit, total(emit, dy, (self.axis,)), dy, (self.axis,))
        share = emit(array.Multiply(emit(array.Exp(y)), common))
        dx = emit(array.Subtract(dy, share))
        return (in_dtype(emit, dx, tensor_type(self.source).dtype),)


@op("nn.logsumexp")
class LogSumExp(Decomposed):
    """`log of sum of exp(x)`, reduced along the axis; -inf where all elements are -inf."""

    source: Value = operand()
    axis: int = attribute()

    def infer(self) -> TensorType:
        type = check_row(self, self.source, self.axis)
        return type.with_shape(type.shape[: self.axis] + type.shape[self.axis + 1 :])

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        x = widened(emit, self.source)
        largest = emit(array.ReduceMax(x, (self.axis,)))
        # An infinite maximum is not subtracted: inf - inf is NaN.
        infinity = array.constant_like(emit, float("inf"), largest)
        finite = emit(array.Compare(emit(array.Abs(largest)), infinity, "ne"))
        base = emit(array.Select(finite, largest, array.constant_like(emit, 0, largest)))
        e = emit(array.Exp(emit(array.Subtract(x, spread(emit, base, x, (self.axis,))))))
        y = emit(array.Add(emit(array.Log(total(emit, e, (self.axis,)))), base))
        return (in_dtype(emit, y, tensor_type(self.source).dtype),)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        dy = spread(emit, cotangents[0], self.source, (self.axis,))
        return (emit(array.Multiply(dy, emit(Softmax(self.source, self.axis)))),)
