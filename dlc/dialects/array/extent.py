"""Symbolic sizes as numbers that a model computes with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dlc.dialects.array.shape import LARGEST_I32
from dlc.ir.core import Array, Evaluation, Op
from dlc.ir.define import attribute, op
from dlc.ir.dims import Size
from dlc.ir.needs import Need
from dlc.ir.types import I32, I64, DType, TensorType

__all__ = ["Extent"]


@op("array.extent")
class Extent(Op):
    """The value of a size in the current call, as an i64, or as an i32 for sizes that fit it."""

    size: Size = attribute()
    dtype: DType = attribute(default=I64)

    def infer(self) -> TensorType:
        if self.dtype not in (I32, I64):
            raise self.fail(f"a size is an i32 or an i64, not {self.dtype.name}", code="D0302")
        if self.dtype is I32 and isinstance(self.size, int) and self.size > LARGEST_I32:
            raise self.fail(self._told(), code="D0323", help="write i64(...) around the size")
        return TensorType(self.dtype)

    def needs(self) -> Iterator[Need]:
        if self.dtype is I32:
            yield Need(LARGEST_I32 - self.size, self._told())

    def _told(self) -> str:
        return f"the size {self.size} is larger than an i32 can be"

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.asarray(at.size(self.size), self.dtype.numpy)
