"""Products that sum over axes."""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.solved_sizes import with_sizes
from dlc.importers.stablehlo.facts import DotNumbers
from dlc.importers.stablehlo.node_context import Importer, Made, NodeContext
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size
from dlc.ir.types import BOOL, I32, DType


def _dot_general(context: NodeContext) -> Made:
    numbers = context.given("dot_dimension_numbers")
    assert isinstance(numbers, DotNumbers)
    return _dot(context, numbers)


def _plain_dot(context: NodeContext) -> Made:
    """Of vectors and matrices: the last axis of the one by the first axis of the other."""
    last = context.type(0).rank - 1
    return _dot(context, DotNumbers((), (), (last,), (0,)))


def _dot(context: NodeContext, numbers: DotNumbers) -> Value:
    emit, lhs, rhs = context.emit, context.value(0), context.value(1)
    computed = computed_dtype(tensor_type(lhs).dtype, tensor_type(rhs).dtype, context.dtype)
    lhs, rhs = in_dtype(emit, lhs, computed), in_dtype(emit, rhs, computed)
    rhs = _agreeing(emit, lhs, rhs, numbers)
    product = emit(
        array.DotGeneral(
            lhs,
            rhs,
            numbers.lhs_batch,
            numbers.rhs_batch,
            numbers.lhs_contract,
            numbers.rhs_contract,
        )
    )
    return in_dtype(emit, product, context.dtype)


def computed_dtype(lhs: DType, rhs: DType, result: DType) -> DType:
    """The widest of the dtypes of a product; bools are multiplied as integers."""
    if result is BOOL:
        return I32
    kept = [dtype for dtype in (lhs, rhs, result) if dtype.is_float == result.is_float]
    return max(kept, key=lambda dtype: (dtype.bits, dtype is result))


def _agreeing(emit: Builder, lhs: Value, rhs: Value, numbers: DotNumbers) -> Value:
    """The right operand with the sizes of the left one along the axes that are walked together."""
    own: tuple[Size, ...] = tensor_type(lhs).shape
    shape = list(tensor_type(rhs).shape)
    pairs = zip(
        numbers.lhs_batch + numbers.lhs_contract,
        numbers.rhs_batch + numbers.rhs_contract,
        strict=True,
    )
    for left, right in pairs:
        shape[right] = own[left]
    return with_sizes(emit, rhs, shape)


IMPORTERS: dict[str, Importer] = {
    "stablehlo.dot": _plain_dot,
    "stablehlo.dot_general": _dot_general,
}
