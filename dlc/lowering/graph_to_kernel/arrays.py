"""From the graph to kernels: each `array` operation becomes the formula of one element.

A row of the table below says, for one operation, what the element at an index is. Nothing is fused
here: `dlc.passes.kernel.fuse` puts formulas together afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dlc.dialects import array, kernel, scalar
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.kernel.formula import convert, gemm, generic, load, number, reduce, size, times
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import Shape, Size
from dlc.ir.types import DType, TensorType, wide

Lowering = Callable[[Op, Builder], Sequence[Value]]
"""The results of an operation from kernels placed by the builder."""

LOWERINGS: dict[type[Op], Lowering] = {}
"""How each operation becomes kernels; a class stands for those derived from it, too."""


def lowers(*classes: type[Op]) -> Callable[[Lowering], Lowering]:
    """Register a lowering for operations of these classes."""

    def apply(lowering: Lowering) -> Lowering:
        for cls in classes:
            assert cls not in LOWERINGS, f"{cls.name} has two lowerings"
            LOWERINGS[cls] = lowering
        return lowering

    return apply


@lowers(array.Elementwise)
def _elementwise(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Elementwise)
    type = tensor_type(op.result)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        elements = [load(inner, source, indices) for source in arrays]
        result = inner(op.scalar(*elements))
        return convert(inner, result, type.dtype)

    return (generic(emit, op.operands, type.shape, formula),)


@lowers(array.Compare)
def _compare(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Compare)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        lhs, rhs = (load(inner, source, indices) for source in arrays)
        return inner(scalar.Compare(lhs, rhs, op.predicate))

    return (generic(emit, op.operands, tensor_type(op.lhs).shape, formula),)


@lowers(array.Select)
def _select(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Select)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        # No arithmetic: 16-bit floats go through unconverted.
        return inner(scalar.Select(*[inner(kernel.Load(source, indices)) for source in arrays]))

    return (generic(emit, op.operands, tensor_type(op.yes).shape, formula),)


@lowers(array.Cast)
def _cast(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Cast)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        return convert(inner, inner(kernel.Load(arrays[0], indices)), op.dtype)

    return (generic(emit, op.operands, tensor_type(op.source).shape, formula),)


@lowers(array.Bitcast)
def _bitcast(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Bitcast)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        return inner(scalar.Bitcast(inner(kernel.Load(arrays[0], indices)), op.dtype))

    return (generic(emit, op.operands, tensor_type(op.source).shape, formula),)


@lowers(array.Fill)
def _fill(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Fill)
    dtype = op.type.dtype

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        return convert(inner, number(inner, op.value, wide(dtype)), dtype)

    return (generic(emit, (), op.type.shape, formula),)


@lowers(array.Broadcast)
def _broadcast(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Broadcast)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        return inner(kernel.Load(arrays[0], [indices[axis] for axis in op.axes]))

    return (generic(emit, op.operands, op.shape, formula),)


@lowers(array.Transpose)
def _transpose(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Transpose)
    back = array.inverse(op.axes)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        return inner(kernel.Load(arrays[0], [indices[axis] for axis in back]))

    return (generic(emit, op.operands, tensor_type(op.result).shape, formula),)


@lowers(array.Reduction)
def _reduction(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.Reduction)
    combine = op.scalar.name.removeprefix("scalar.")
    return (_reduce(emit, op.source, op.axes, combine, tensor_type(op.result)),)


def _reduce(
    emit: Builder, source: Value, axes: tuple[int, ...], combine: str, result: TensorType
) -> Value:
    """The elements along some axes of an array as one, rounded to the result's dtype once."""
    shape = kernel.array_type(source).shape
    extents = tuple([shape[axis] for axis in axes])
    length = _part_length(result.size, extents)
    if length is not None:
        return _reduce_in_parts(emit, source, axes, combine, result, length)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        def element(deep: Builder, folded: list[Value]) -> Value:
            return load(deep, arrays[0], _along(axes, indices, folded))

        return convert(inner, reduce(inner, extents, combine, element), result.dtype)

    return generic(emit, (source,), result.shape, formula)


def _along(axes: tuple[int, ...], indices: list[Value], folded: list[Value]) -> list[Value]:
    """The index of an element from those along the axes that stay and those that are folded."""
    at: dict[int, Value] = dict(zip(axes, folded, strict=True))
    staying = iter(indices)
    rank = len(indices) + len(folded)
    return [at[axis] if axis in at else next(staying) for axis in range(rank)]


FEW = 64
"""Results up to which a reduction has too few of them to share the work by results alone."""
PART = 1 << 14
"""Elements of one part of a reduction in parts, at least."""


def _part_length(results: Size, extents: Shape) -> int | None:
    """Into stretches of which length a reduction cuts its first axis; None if it is better not cut."""
    if not isinstance(results, int) or results > FEW:
        return None
    if not extents or not all(isinstance(extent, int) for extent in extents):
        return None
    first, *rest = (extent for extent in extents if isinstance(extent, int))
    inner = math.prod(rest)
    if first * inner < 4 * PART:
        return None
    return max(1, PART // inner)


def _reduce_in_parts(
    emit: Builder,
    source: Value,
    axes: tuple[int, ...],
    combine: str,
    result: TensorType,
    length: int,
) -> Value:
    """A reduction in two steps, so that threads can share it.

    First parts whose size only the shape decides, then all parts of a result, and what is left over.
    """
    shape = kernel.array_type(source).shape
    first, *rest = [shape[axis] for axis in axes]
    assert isinstance(first, int)
    count = first // length

    def stretch(
        inner: Builder, array: Value, outer: list[Value], start: Value, length: int
    ) -> Value:
        """The elements from `start` on along the first axis, and all along the others, as one."""

        def element(deep: Builder, folded: list[Value]) -> Value:
            place = deep(scalar.Add(start, folded[0]))
            return load(deep, array, _along(axes, outer, [place, *folded[1:]]))

        return reduce(inner, (length, *rest), combine, element)

    def part(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        *outer, number = indices
        return stretch(inner, arrays[0], outer, times(inner, number, length), length)

    def total(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        parts, *whole = arrays
        value = reduce(
            inner, (count,), combine, lambda deep, k: deep(kernel.Load(parts, [*indices, *k]))
        )
        if whole:
            done = size(inner, count * length)
            left = stretch(inner, whole[0], indices, done, first - count * length)
            value = inner(scalar.COMBINERS[combine](value, left))
        return convert(inner, value, result.dtype)

    parts = generic(emit, (source,), (*result.shape, count), part)
    read = [parts] if count * length == first else [parts, source]
    return generic(emit, read, result.shape, total)


@lowers(array.MatMul)
def _matmul(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, array.MatMul)
    type = tensor_type(op.result)
    inner = tensor_type(op.lhs).shape[-1]
    if not type.dtype.is_float:
        return (_sum_of_products(op, emit, inner),)
    accumulator = wide(type.dtype)
    lhs, rhs = (cast_all(emit, operand, accumulator) for operand in op.operands)
    if type.shape[-2:] == (1, 1):
        return (_inner_product(emit, lhs, rhs, type),)
    sums = gemm(emit, lhs, rhs, type.with_dtype(accumulator), inner)
    return (cast_all(emit, sums, type.dtype),)


def _inner_product(emit: Builder, lhs: Value, rhs: Value, type: TensorType) -> Value:
    """A row times a column, which is a sum: panels would be a register wide for one number of each."""
    factors = kernel.array_type(lhs)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        *batch, m, k = indices
        row = inner(kernel.Load(arrays[0], indices))
        return inner(scalar.Multiply(row, inner(kernel.Load(arrays[1], [*batch, k, m]))))

    products = generic(emit, (lhs, rhs), factors.shape, formula)
    sums = type.with_shape(type.shape[:-1])
    value = _reduce(emit, products, (factors.rank - 1,), "add", sums)
    return emit(array.Reshape(value, type.shape))


def _sum_of_products(op: array.MatMul, emit: Builder, length: Size) -> Value:
    """A product of matrices of integers: no library has it."""
    type = tensor_type(op.result)

    def formula(inner: Builder, indices: list[Value], arrays: list[Value]) -> Value:
        *batch, m, n = indices

        def element(deep: Builder, folded: list[Value]) -> Value:
            (k,) = folded
            lhs = deep(kernel.Load(arrays[0], [*batch, m, k]))
            rhs = deep(kernel.Load(arrays[1], [*batch, k, n]))
            return deep(scalar.Multiply(lhs, rhs))

        return reduce(inner, (length,), "add", element)

    return generic(emit, op.operands, type.shape, formula)


def cast_all(emit: Builder, value: Value, dtype: DType) -> Value:
    """A kernel that converts an array; the array itself if it has the dtype."""
    type = kernel.array_type(value)
    if type.dtype is dtype:
        return value
    return generic(
        emit, (value,), type.shape, lambda e, i, a: convert(e, e(kernel.Load(a[0], i)), dtype)
    )
