"""Normalising rows: subtracting the mean and dividing by the standard deviation."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array
from dlc.dialects.array import show, tensor_type
from dlc.dialects.array.arithmetic import plus, square
from dlc.dialects.decomposed import Decomposed
from dlc.dialects.nn.rows import along, check_floats, in_dtype, mean, spread, widened
from dlc.ir.core import Builder, Op, Value
from dlc.ir.define import attribute, op, operand, operands
from dlc.ir.types import TensorType

__all__ = ["LayerNorm", "RMSNorm", "normalized"]


def normalized(emit: Builder, x: Value, axes: tuple[int, ...], eps: float) -> Value:
    """`(x - mean) / sqrt(variance + eps)` over the axes; the variance divides by the element count."""
    centered = emit(array.Subtract(x, spread(emit, mean(emit, x, axes), x, axes)))
    variance = mean(emit, square(emit, centered), axes)
    inverse = emit(array.Rsqrt(plus(emit, variance, eps)))
    return emit(array.Multiply(centered, spread(emit, inverse, x, axes)))


def check_rows(op: Op, source: Value, axis: int, parameters: Sequence[Value]) -> TensorType:
    """The type of the source; raises if it lacks the axis, or a parameter has not the type of a row."""
    type = check_floats(op, source)
    if not 0 <= axis < type.rank:
        raise op.fail(f"{type.text} has no axis {axis}", code="D0305")
    row = type.with_shape(type.shape[axis:])
    for parameter in parameters:
        if parameter.type is not row:
            raise op.fail(f"the rows of {type.text} are {row.text}, found {show(parameter)}")
    return type


def applied(emit: Builder, step: type[array.Binary], x: Value, row: Value, axis: int) -> Value:
    """A binary function of each row and the same parameters."""
    axes = range(axis, tensor_type(x).rank)
    return emit(step(x, along(emit, widened(emit, row), x, axes)))


@op("nn.layer_norm")
class LayerNorm(Decomposed):
    """`(x - mean) / sqrt(variance + eps) * scale + shift`, over the axes from `axis` to the last.

    Scale and shift have the shape of one row and may be left out.
    """

    source: Value = operand()
    scale: Sequence[Value] = operands(doc="one or none")
    shift: Sequence[Value] = operands(doc="one or none")
    axis: int = attribute()
    eps: float = attribute(default=1e-5)

    def infer(self) -> TensorType:
        if max(self.segments) > 1:
            raise self.fail(f"{self.name} takes at most one scale and one shift")
        return check_rows(self, self.source, self.axis, (*self.scale, *self.shift))

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        x = widened(emit, self.source)
        y = normalized(emit, x, tuple(range(self.axis, tensor_type(x).rank)), self.eps)
        for scale in self.scale:
            y = applied(emit, array.Multiply, y, scale, self.axis)
        for shift in self.shift:
            y = applied(emit, array.Add, y, shift, self.axis)
        return (in_dtype(emit, y, tensor_type(self.source).dtype),)


@op("nn.rms_norm")
class RMSNorm(Decomposed):
    """`x / sqrt(mean of x * x + eps) * scale`, over the axes from `axis` to the last.

    The scale has the shape of one row and may be left out.
    """

    source: Value = operand()
    scale: Sequence[Value] = operands(doc="one or none")
    axis: int = attribute()
    eps: float = attribute(default=1e-5)

    def infer(self) -> TensorType:
        if len(self.scale) > 1:
            raise self.fail(f"{self.name} takes at most one scale")
        return check_rows(self, self.source, self.axis, self.scale)

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        x = widened(emit, self.source)
        axes = tuple(range(self.axis, tensor_type(x).rank))
        size = mean(emit, square(emit, x), axes)
        inverse = emit(array.Rsqrt(plus(emit, size, self.eps)))
        y = emit(array.Multiply(x, spread(emit, inverse, x, axes)))
        for scale in self.scale:
            y = applied(emit, array.Multiply, y, scale, self.axis)
        return (in_dtype(emit, y, tensor_type(self.source).dtype),)
