"""Concatenation and slicing at the kernel level, by copies or without (`join`, `subview`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.kernel.generic import Access, Kernel, array_type
from dlc.ir.core import Array, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand, operands
from dlc.ir.dims import Shape, Size
from dlc.ir.types import TensorType


@op("kernel.concatenate")
class Concatenate(Kernel):
    """Concatenate the columns of matrices by a copy: `[m, n1]`, `[m, n2]`, .. to `[m, n1 + n2 + ..]`."""

    inputs: Sequence[Value] = operands()
    outs: Sequence[Value] = operands()

    def reads(self, number: int) -> Access:
        return Access.UNIT_STRIDE

    def result_types(self) -> tuple[TensorType, ...]:
        return (_concatenated(self, self.inputs),)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.concatenate(inputs[: len(self.inputs)], axis=1)


@op("kernel.join")
class Join(Op):
    """As `kernel.concatenate` without a copy: producers write their pieces straight into the result.

    An array is a piece of one join only; its other users read it inside the result.
    """

    pieces: Sequence[Value] = operands()

    def infer(self) -> TensorType:
        return _concatenated(self, self.pieces)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.concatenate(inputs, axis=1)

    def start(self, piece: int) -> Size:
        """The first column of a piece in the result."""
        return sum((array_type(value).shape[1] for value in self.pieces[:piece]), 0)


@op("kernel.subview")
class Subview(Op):
    """A slice of an array, from `starts` on, without a copy: users read the source by strides."""

    source: Value = operand()
    starts: Shape = attribute()
    shape: Shape = attribute()

    def infer(self) -> TensorType:
        type = array_type(self.source)
        if len(self.starts) != type.rank or len(self.shape) != type.rank:
            raise self.fail(f"{self.name} of {type.text} needs {type.rank} starts and sizes")
        return type.with_shape(self.shape)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        starts, sizes = at.shape(self.starts), at.shape(self.shape)
        ranges = [slice(start, start + n) for start, n in zip(starts, sizes, strict=True)]
        return inputs[0][tuple(ranges)]


def _concatenated(op: Op, matrices: Sequence[Value]) -> TensorType:
    types = [array_type(value) for value in matrices]
    first, *others = types
    fits = all(type.rank == 2 and type.shape[0] == first.shape[0] for type in types)
    if not fits or any(type.dtype is not first.dtype for type in others):
        raise op.fail(f"{op.name} of {', '.join(type.text for type in types)}")
    width: Size = sum((type.shape[1] for type in others), first.shape[1])
    return first.with_shape((first.shape[0], width))
