"""Checks of computed indices, before the operations that use them.

An operation checks its own indices in any case. `decided` says that a check before it has found them to be
inside: then it cannot fail, and may stand after what changes the arrays of the caller.
"""

from __future__ import annotations

import numpy as np

from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.core import Array, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.dims import Size
from dlc.ir.types import BOOL, TensorType
from dlc.runtime.abi import Status
from dlc.runtime.calling.status import failure

__all__ = ["CheckIndex"]

DECIDED = "whether an earlier check has found the indices to be inside"


def check_places(op: Op, index: Array, extent: int, part: int = 1) -> None:
    """Raise CallError for the first index from which on `part` elements are not inside an axis."""
    wrong = np.flatnonzero(np.less(index, 0) | np.greater(index, extent - part))
    if wrong.size:
        first, status = int(index.item(wrong[0])), Status.INDEX if part == 1 else Status.RANGE
        raise failure(status, first, extent, op.location.own.place)


@op("array.check_index")
class CheckIndex(Op):
    """True for each index; a call fails unless `0 <= index <= extent - part` holds for all of them.

    `part` is the length of the slice that begins at an index, 1 for single elements.
    """

    index: Value = operand()
    extent: Size = attribute()
    part: Size = attribute(default=1)

    not_differentiable = "its result is a bool"

    def infer(self) -> TensorType:
        type = tensor_type(self.index)
        if not type.dtype.is_integer:
            raise self.fail(f"an index is an integer, found {type.text}", code="D0308")
        return TensorType(BOOL, type.shape)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        check_places(self, inputs[0], at.size(self.extent), at.size(self.part))
        return np.ones(inputs[0].shape, np.bool_)
