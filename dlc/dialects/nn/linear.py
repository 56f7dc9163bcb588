"""Products with weights, and a bias."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array
from dlc.dialects.array import show, tensor_type
from dlc.dialects.array.shape import reshape
from dlc.dialects.decomposed import Decomposed
from dlc.dialects.nn.rows import along
from dlc.ir.core import Builder, Op, Value
from dlc.ir.define import attribute, op, operand, operands
from dlc.ir.dims import Size, product
from dlc.ir.types import TensorType

__all__ = ["Conv", "Linear"]


def check_bias(op: Op, bias: Sequence[Value], type: TensorType, axis: int) -> TensorType:
    """The type of the result; raises if the bias does not fit its axis."""
    wanted = type.with_shape((type.shape[axis],))
    if len(bias) > 1 or any(value.type is not wanted for value in bias):
        found = ", ".join(map(show, bias))
        raise op.fail(f"the bias of {op.name} is one {wanted.text}, found {found}")
    return type


def biased(emit: Builder, y: Value, bias: Sequence[Value], axis: int) -> Value:
    """The value plus the bias, if there is one."""
    for value in bias:
        y = emit(array.Add(y, along(emit, value, y, (axis,))))
    return y


@op("nn.linear")
class Linear(Decomposed):
    """`y[.., o] = sum over i of x[.., i] * weight[i, o] + bias[o]`."""

    source: Value = operand()
    weight: Value = operand()
    bias: Sequence[Value] = operands(doc="one or none")

    def infer(self) -> TensorType:
        match self.source.type, self.weight.type:
            case TensorType(dtype, (*rows, i)), TensorType(other, (taken, o)) if (
                dtype is other and i == taken
            ):
                type = TensorType(dtype, (*rows, o))
                return check_bias(self, self.bias, type, len(rows))
            case _:
                raise self.fail(
                    f"cannot multiply {show(self.source)} by {show(self.weight)}: the weight takes "
                    "rows as long as its first axis, of its dtype"
                )

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        shape = tensor_type(self.result).shape
        rows = reshape(emit, self.source, (product(shape[:-1]), tensor_type(self.weight).shape[0]))
        # The bias is added to rows, so that it can become the epilogue of the product.
        y = biased(emit, emit(array.MatMul(rows, self.weight)), self.bias, 1)
        return (reshape(emit, y, shape),)


@op("nn.conv")
class Conv(Decomposed):
    """`array.convolution` plus a bias for each output channel."""

    source: Value = operand()
    kernel: Value = operand()
    bias: Sequence[Value] = operands(doc="one or none")
    strides: tuple[int, ...] = attribute()
    padding: tuple[tuple[Size, Size], ...] = attribute(doc="(low, high) for each spatial axis")
    dilations: tuple[int, ...] = attribute()
    source_dilations: tuple[int, ...] = attribute(doc="more than 1 for a transposed convolution")
    groups: int = attribute(default=1)
    dims: str = attribute(default="nhwc")

    def _convolution(self) -> array.Convolution:
        return array.Convolution(
            self.source,
            self.kernel,
            self.strides,
            self.padding,
            self.dilations,
            self.source_dilations,
            self.groups,
            self.dims,
        )

    def infer(self) -> TensorType:
        product = self._convolution()
        type = tensor_type(product.result)
        product.erase()
        return check_bias(self, self.bias, type, array.LAYOUTS[self.dims].channel)

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        y = emit(self._convolution())
        return (biased(emit, y, self.bias, array.LAYOUTS[self.dims].channel),)
