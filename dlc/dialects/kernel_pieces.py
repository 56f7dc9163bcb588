"""Kernels that put pieces together without looking at each element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.kernel import Kernel, array_type
from dlc.ir.core import Value
from dlc.ir.define import op, operands
from dlc.ir.dims import Size
from dlc.ir.evaluation import Array, Evaluation
from dlc.ir.types import TensorType


@op("kernel.concatenate")
class Concatenate(Kernel):
    """The rows of matrices one behind the other: `[m, n1]`, `[m, n2]`, .. as `[m, n1 + n2 + ..]`."""

    inputs: Sequence[Value] = operands()
    outs: Sequence[Value] = operands()

    def result_types(self) -> tuple[TensorType, ...]:
        types = [array_type(value) for value in self.inputs]
        first, *others = types
        fits = all(type.rank == 2 and type.shape[0] == first.shape[0] for type in types)
        if not fits or any(type.dtype is not first.dtype for type in others):
            raise self.fail(f"{self.name} of {', '.join(type.text for type in types)}")
        width: Size = sum((type.shape[1] for type in others), first.shape[1])
        return (first.with_shape((first.shape[0], width)),)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.concatenate(inputs[: len(self.inputs)], axis=1)
