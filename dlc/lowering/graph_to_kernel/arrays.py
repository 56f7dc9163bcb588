"""From the graph to kernels: each `array` operation becomes the formula of one element.

Each lowering registered here gives the element at an index as a formula of the operands' elements.
Nothing is fused here: `dlc.passes.kernel.fuse` puts formulas together afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from dlc.dialects import array, kernel, scalar
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.expr import Expr, combine, constant, select, values
from dlc.dialects.formulas import Array, gemm, generic, reduce, size
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import Shape, Size
from dlc.ir.types import DType, TensorType, wide

OpT = TypeVar("OpT", bound=Op)

Lowering: TypeAlias = "Callable[[OpT, Builder], Sequence[Value]]"
"""The results of an operation from kernels placed by the builder."""

LOWERINGS: dict[type[Op], Lowering[Any]] = {}
"""How each operation becomes kernels; a class stands for those derived from it, too."""


def lowers(*classes: type[OpT]) -> Callable[[Lowering[OpT]], Lowering[OpT]]:
    """Register a lowering for operations of these classes."""

    def apply(lowering: Lowering[OpT]) -> Lowering[OpT]:
        for cls in classes:
            assert cls not in LOWERINGS, f"{cls.name} has two lowerings"
            LOWERINGS[cls] = lowering
        return lowering

    return apply


@lowers(array.Elementwise)
def _elementwise(op: array.Elementwise, emit: Builder) -> Sequence[Value]:
    type = tensor_type(op.result)

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        elements = [array.wide(indices) for array in arrays]
        return elements[0].apply(op.scalar(*values(elements))).cast(type.dtype)

    return (generic(emit, op.operands, type.shape, formula),)


@lowers(array.Compare)
def _compare(op: array.Compare, emit: Builder) -> Sequence[Value]:
    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        lhs, rhs = (array.wide(indices) for array in arrays)
        return lhs.apply(scalar.Compare(lhs.value, rhs.value, op.predicate))

    return (generic(emit, op.operands, tensor_type(op.lhs).shape, formula),)


@lowers(array.Select)
def _select(op: array.Select, emit: Builder) -> Sequence[Value]:
    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        # No arithmetic: 16-bit floats go through unconverted.
        condition, yes, no = (array[indices] for array in arrays)
        return select(condition, yes, no)

    return (generic(emit, op.operands, tensor_type(op.yes).shape, formula),)


@lowers(array.Cast)
def _cast(op: array.Cast, emit: Builder) -> Sequence[Value]:
    shape = tensor_type(op.source).shape
    return (generic(emit, op.operands, shape, lambda at, x: x[0][at].cast(op.dtype)),)


@lowers(array.Bitcast)
def _bitcast(op: array.Bitcast, emit: Builder) -> Sequence[Value]:
    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        element = arrays[0][indices]
        return element.apply(scalar.Bitcast(element.value, op.dtype))

    return (generic(emit, op.operands, tensor_type(op.source).shape, formula),)


@lowers(array.Fill)
def _fill(op: array.Fill, emit: Builder) -> Sequence[Value]:
    dtype = op.type.dtype

    def formula(_: list[Expr], arrays: list[Array]) -> Expr:
        return constant(emit, op.value, wide(dtype)).cast(dtype)

    return (generic(emit, (), op.type.shape, formula),)


@lowers(array.Broadcast)
def _broadcast(op: array.Broadcast, emit: Builder) -> Sequence[Value]:
    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        return arrays[0][[indices[axis] for axis in op.axes]]

    return (generic(emit, op.operands, op.shape, formula),)


@lowers(array.Transpose)
def _transpose(op: array.Transpose, emit: Builder) -> Sequence[Value]:
    inverse = array.inverse(op.axes)

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        return arrays[0][[indices[axis] for axis in inverse]]

    return (generic(emit, op.operands, tensor_type(op.result).shape, formula),)


@lowers(array.Reduction)
def _reduction(op: array.Reduction, emit: Builder) -> Sequence[Value]:
    combiner = op.scalar.name.removeprefix("scalar.")
    return (_reduce(emit, op.source, op.axes, combiner, tensor_type(op.result)),)


def _reduce(
    emit: Builder, source: Value, axes: tuple[int, ...], combiner: str, result: TensorType
) -> Value:
    """An array reduced along some axes, and rounded to the result's dtype once."""
    shape = kernel.array_type(source).shape
    extents = tuple([shape[axis] for axis in axes])
    if _chunk_length(result.size, extents) is not None:
        return _reduce_in_two_stages(emit, *_merge_neighbours(emit, source, axes), combiner, result)

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        def element(k: list[Expr]) -> Expr:
            return arrays[0].wide(_source_index(axes, indices, k))

        return reduce(emit, extents, combiner, element).cast(result.dtype)

    return generic(emit, (source,), result.shape, formula)


def _source_index(axes: tuple[int, ...], kept: list[Expr], reduced: list[Expr]) -> list[Expr]:
    """The index of an element from its indices along the axes that stay and along the reduced `axes`."""
    along = dict(zip(axes, reduced, strict=True))
    staying = iter(kept)
    rank = len(kept) + len(reduced)
    return [along[axis] if axis in along else next(staying) for axis in range(rank)]


FEW_RESULTS = 64
"""Results up to which a reduction has too few of them to share the work by results alone."""
CHUNK_ELEMENTS = 1 << 14
"""Elements that one chunk of a reduction in two stages has, at least."""


def _chunk_length(results: Size, extents: Shape) -> int | None:
    """The chunk length along a reduction's first axis; None where one stage is enough."""
    if not isinstance(results, int) or results > FEW_RESULTS:
        return None
    if not extents or not all(isinstance(extent, int) for extent in extents):
        return None
    first, *rest = (extent for extent in extents if isinstance(extent, int))
    inner = math.prod(rest)
    if first * inner < 4 * CHUNK_ELEMENTS:
        return None
    return max(1, CHUNK_ELEMENTS // inner)


def _merge_neighbours(
    emit: Builder, source: Value, axes: tuple[int, ...]
) -> tuple[Value, tuple[int, ...]]:
    """An array whose neighbouring reduced axes are one, so that chunks are read along memory; and these.

    What a formula computes keeps its axes: it may be computed in the reduction, without an array in memory.
    """
    if isinstance(source.op, kernel.Generic):
        return source, axes
    shape: list[Size] = []
    merged: list[int] = []
    for axis, extent in enumerate(kernel.array_type(source).shape):
        if axis in axes and axis - 1 in axes:
            shape[-1] = shape[-1] * extent
            continue
        if axis in axes:
            merged.append(len(shape))
        shape.append(extent)
    if len(merged) == len(axes):
        return source, axes
    return emit(array.Reshape(source, tuple(shape))), tuple(merged)


def _reduce_in_two_stages(
    emit: Builder, source: Value, axes: tuple[int, ...], combiner: str, result: TensorType
) -> Value:
    """A two-stage reduction, so that threads can share it.

    The first kernel reduces chunks of equal length along the first axis, so that the shape alone decides
    the bits; the second one combines the chunks of a result, and the remainder of the axis.
    """
    shape = kernel.array_type(source).shape
    first, *rest = [shape[axis] for axis in axes]
    length = _chunk_length(result.size, (first, *rest))
    assert isinstance(first, int)
    assert length is not None
    count = first // length

    def chunk(array: Array, kept: list[Expr], start: Expr, length: int) -> Expr:
        """`length` elements from `start` on along the first axis, and all along the others, as one."""

        def element(k: list[Expr]) -> Expr:
            return array.wide(_source_index(axes, kept, [start + k[0], *k[1:]]))

        return reduce(emit, (length, *rest), combiner, element)

    def partial(indices: list[Expr], arrays: list[Array]) -> Expr:
        which, *kept = indices
        return chunk(arrays[0], kept, which * length, length)

    def total(indices: list[Expr], arrays: list[Array]) -> Expr:
        partials, *sources = arrays
        value = reduce(emit, (count,), combiner, lambda k: partials[[*k, *indices]])
        if sources:
            start = size(emit, count * length)
            rest = chunk(sources[0], indices, start, first - count * length)
            value = combine(combiner, value, rest)
        return value.cast(result.dtype)

    # Chunks come first: axes that stay are those along which memory is read, unless the last is reduced.
    partials = generic(emit, (source,), (count, *result.shape), partial)
    inputs = [partials] if count * length == first else [partials, source]
    return generic(emit, inputs, result.shape, total)


@lowers(array.MatMul)
def _matmul(op: array.MatMul, emit: Builder) -> Sequence[Value]:
    type = tensor_type(op.result)
    inner = tensor_type(op.lhs).shape[-1]
    if not type.dtype.is_float:
        return (_integer_matmul(op, emit, inner),)
    accumulator = wide(type.dtype)
    lhs, rhs = (cast_all(emit, operand, accumulator) for operand in op.operands)
    if type.shape[-2:] == (1, 1):
        return (_inner_product(emit, lhs, rhs, type),)
    sums = gemm(emit, lhs, rhs, type.with_dtype(accumulator), inner)
    return (cast_all(emit, sums, type.dtype),)


def _inner_product(emit: Builder, lhs: Value, rhs: Value, type: TensorType) -> Value:
    """A row times a column as a reduction: a packed panel would have one column of a whole register."""
    factors = kernel.array_type(lhs)

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        *batch, m, k = indices
        return arrays[0][indices] * arrays[1][[*batch, k, m]]

    products = generic(emit, (lhs, rhs), factors.shape, formula)
    sums = type.with_shape(type.shape[:-1])
    value = _reduce(emit, products, (factors.rank - 1,), "add", sums)
    return emit(array.Reshape(value, type.shape))


def _integer_matmul(op: array.MatMul, emit: Builder, length: Size) -> Value:
    """A product of matrices of integers by its formula: micro-kernels and BLAS are for floats."""

    def formula(indices: list[Expr], arrays: list[Array]) -> Expr:
        *batch, m, n = indices

        def element(inner: list[Expr]) -> Expr:
            (k,) = inner
            return arrays[0][[*batch, m, k]] * arrays[1][[*batch, k, n]]

        return reduce(emit, (length,), "add", element)

    return generic(emit, op.operands, tensor_type(op.result).shape, formula)


def cast_all(emit: Builder, value: Value, dtype: DType) -> Value:
    """A kernel that converts an array; the array itself if it has the dtype."""
    type = kernel.array_type(value)
    if type.dtype is dtype:
        return value
    return generic(emit, (value,), type.shape, lambda at, x: x[0][at].cast(dtype))
