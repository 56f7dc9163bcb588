"""Symbolic sizes as numbers that a model computes with."""

from __future__ import annotations

import numpy as np

from dlc.ir.core import Op
from dlc.ir.define import attribute, op
from dlc.ir.dims import Size
from dlc.ir.evaluation import Array, Evaluation
from dlc.ir.types import I64, TensorType

__all__ = ["Extent"]


@op("array.extent")
class Extent(Op):
    """The number that a size is in this call, as an i64."""

    size: Size = attribute()

    def infer(self) -> TensorType:
        return TensorType(I64)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.asarray(at.size(self.size), np.int64)
