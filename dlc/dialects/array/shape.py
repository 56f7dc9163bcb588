"""Rearranging a tensor without arithmetic."""

from __future__ import annotations

from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.builder import Builder
from dlc.ir.core import Op, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.dims import Shape, product
from dlc.ir.evaluation import Array, Evaluation
from dlc.ir.types import TensorType

__all__ = ["Reshape", "Transpose", "inverse"]


def inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes `axes`."""
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


@op("array.reshape")
class Reshape(Op):
    """The same elements in row-major order under another shape of the same size."""

    source: Value = operand()
    shape: Shape = attribute()

    def infer(self) -> TensorType:
        type = tensor_type(self.source)
        if type.size != product(self.shape):
            raise self.fail(
                f"cannot reshape {type.text} of {type.size} elements to "
                f"{type.with_shape(self.shape).text} of {product(self.shape)}",
                code="D0303",
            )
        return type.with_shape(self.shape)

    def fold(self) -> Value | None:
        return self.source if self.source.type is self.result.type else None

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return inputs[0].reshape(at.shape(self.shape))

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return (emit(Reshape(cotangents[0], tensor_type(self.source).shape)),)


@op("array.transpose")
class Transpose(Op):
    """The axes in another order: axis k of the result is axis `axes[k]` of the source."""

    source: Value = operand()
    axes: tuple[int, ...] = attribute()

    def infer(self) -> TensorType:
        type = tensor_type(self.source)
        if sorted(self.axes) != list(range(type.rank)):
            raise self.fail(f"{list(self.axes)} is no order of the {type.rank} axes of {type.text}")
        return type.with_shape(tuple([type.shape[axis] for axis in self.axes]))

    def fold(self) -> Value | None:
        if self.axes == tuple(range(len(self.axes))):
            return self.source
        match self.source.op:
            case Transpose(source=origin, axes=inner) if self.axes == inverse(inner):
                return origin
            case _:
                return None

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return inputs[0].transpose(self.axes)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return (emit(Transpose(cotangents[0], inverse(self.axes))),)
