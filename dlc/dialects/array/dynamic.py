"""Operations with data-dependent sizes: they define a new dim, and reserve memory for its bound."""

from __future__ import annotations

from dlc.dialects.array.elementwise import show, tensor_type
from dlc.dialects.array.index import Gather
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.measured import Measuring, nonzero_indices
from dlc.errors import ModelError
from dlc.ir.attributes import decode
from dlc.ir.core import Array, Builder, Evaluation, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.dims import Dim, Size, symbol
from dlc.ir.types import BOOL, I64, TensorType

__all__ = ["NonZero", "compress"]


@op("array.nonzero")
class NonZero(Measuring):
    """The indices of the non-zero elements in row-major order, one in each row, and their number.

    `dim` names the number, a size that later types refer to. A call with more than `bound` of them fails.
    """

    source: Value = operand()
    dim: str = attribute()
    bound: int | Dim | None = attribute(default=None, doc="by default the size of the source")

    not_differentiable = "its results are indices"

    @property
    def dim_name(self) -> str:
        """The dim of the rows."""
        return self.dim

    @property
    def limit(self) -> Size:
        """The number of rows for which memory is reserved."""
        return tensor_type(self.source).size if self.bound is None else self.bound

    def infer(self) -> tuple[TensorType, ...]:
        if not self.dim.isidentifier():
            raise self.fail(f"{self.dim!r} is not a name of a dim")
        rank = tensor_type(self.source).rank
        return TensorType(I64, (symbol(self.dim), rank)), TensorType(I64)

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        values = decode(inputs[0], tensor_type(self.source).dtype)
        return nonzero_indices(self, values, at.size(self.limit), at)


def compress(
    emit: Builder, source: Value, mask: Value, axis: int, dim: str, bound: Size | None = None
) -> tuple[Value, Value]:
    """The slices of the source along the axis where the mask, a bool[n], is true, and their number.

    `dim` names the number; memory is reserved for `bound` slices.
    """
    type = tensor_type(source)
    if not 0 <= axis < type.rank or mask.type is not TensorType(BOOL, (type.shape[axis],)):
        raise ModelError(
            f"cannot choose along axis {axis} of {type.text} by {show(mask)}; "
            "the mask is a bool for each place along the axis",
            code="D0308",
            place=emit.location.place,
        )
    rows, count = emit.all(NonZero(mask, dim, bound))
    index = reshape(emit, rows, (symbol(dim),))
    taken = emit(Gather(source, (index,), (axis,)))
    # The gather puts the axis in front: move it back.
    order = (*range(1, axis + 1), 0, *range(axis + 1, type.rank))
    return transpose(emit, taken, order), count
