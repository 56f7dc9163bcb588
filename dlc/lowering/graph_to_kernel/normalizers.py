"""Normalisers as one kernel each: a row is read into the cache once and stays there to the end.

The steps are those of the operation's decomposition, in the same order and with the same roundings.
Softmax along another axis than the last is three kernels over neighbouring columns. Attention is one
kernel, too; its sums are those of the decomposition in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import nn, scalar
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.expr import Expr, constant
from dlc.dialects.formulas import Array, Element, generic, reduce, size, stage
from dlc.dialects.kernel.attention import Attention, CachedAttention
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import Shape, product
from dlc.ir.types import F32, DType, wide
from dlc.lowering.graph_to_kernel.arrays import lowers

Rows = Callable[[list[Expr], list[Array], Shape], Array]
"""The staged row of results, from the indices of the row, the arrays and the row's shape."""


def row_kernel(emit: Builder, inputs: Sequence[Value], axis: int, rows: Rows) -> Value:
    """A kernel over the axes before `axis`, whose element is a row of the first input."""
    shape = tensor_type(inputs[0]).shape
    return generic(emit, inputs, shape[:axis], lambda at, arrays: rows(at, arrays, shape[axis:]))


OfSum = Callable[[Expr], Expr]
"""What a column keeps of the sum of its exponentials."""
Finish = Callable[[Expr, Expr], Expr]
"""A result from an element relative to the largest one, and what the column keeps."""


def in_columns(op: Op, emit: Builder, axis: int, of_sum: OfSum, finish: Finish) -> Value:
    """Relative to the largest along an axis that is not the last: neighbouring columns side by side.

    Exponentials are computed twice rather than stored and loaded, or the array transposed.
    """
    (source,) = op.operands
    type = tensor_type(source)
    columns = (*type.shape[:axis], *type.shape[axis + 1 :])
    extents = (type.shape[axis],)

    def element(array: Array, at: list[Expr], k: Expr) -> Expr:
        return array.wide([*at[:axis], k, *at[axis:]])

    def largest(at: list[Expr], arrays: list[Array]) -> Expr:
        (x,) = arrays
        return reduce(x.emit, extents, "maximum", lambda k: element(x, at, k[0]))

    def below(arrays: list[Array], at: list[Expr], k: Expr) -> Expr:
        most = arrays[1][at]
        return element(arrays[0], at, k) - most

    def total(at: list[Expr], arrays: list[Array]) -> Expr:
        return of_sum(
            reduce(arrays[0].emit, extents, "add", lambda k: below(arrays, at, k[0]).exp())
        )

    def result(at: list[Expr], arrays: list[Array]) -> Expr:
        column, k = [*at[:axis], *at[axis + 1 :]], at[axis]
        return finish(below(arrays, column, k), arrays[2][column]).cast(type.dtype)

    most = generic(emit, (source,), columns, largest)
    sums = generic(emit, (source, most), columns, total)
    return generic(emit, (source, most, sums), type.shape, result)


@lowers(nn.Softmax)
def _softmax(op: nn.Softmax, emit: Builder) -> Sequence[Value]:
    dtype = tensor_type(op.source).dtype
    if op.axis != tensor_type(op.source).rank - 1:
        column = in_columns(
            op, emit, op.axis, reciprocal, lambda below, inverse: below.exp() * inverse
        )
        return (column,)

    def rows(at: list[Expr], arrays: list[Array], extents: Shape) -> Array:
        emit = arrays[0].emit
        below = _below_largest(at, arrays[0], extents)
        powers = stage(emit, extents, lambda k: below(k).exp())
        inverse = reciprocal(reduce(emit, extents, "add", lambda k: powers[k]))
        return stage(emit, extents, lambda k: (powers[k] * inverse).cast(dtype))

    return (row_kernel(emit, op.operands, op.axis, rows),)


def reciprocal(value: Expr) -> Expr:
    """`1 / value`."""
    return 1 / value


def _below_largest(at: list[Expr], array: Array, extents: Shape) -> Element:
    """An element relative to the largest one of its row."""
    largest = reduce(array.emit, extents, "maximum", lambda k: array.wide([*at, *k]))
    return lambda k: array.wide([*at, *k]) - largest


@lowers(nn.LogSoftmax)
def _log_softmax(op: nn.LogSoftmax, emit: Builder) -> Sequence[Value]:
    dtype = tensor_type(op.source).dtype
    if op.axis != tensor_type(op.source).rank - 1:
        column = in_columns(op, emit, op.axis, Expr.log, lambda below, log: below - log)
        return (column,)

    def rows(at: list[Expr], arrays: list[Array], extents: Shape) -> Array:
        emit = arrays[0].emit
        below = _below_largest(at, arrays[0], extents)
        logarithm = reduce(emit, extents, "add", lambda k: below(k).exp()).log()
        return stage(emit, extents, lambda k: (below(k) - logarithm).cast(dtype))

    return (row_kernel(emit, op.operands, op.axis, rows),)


@lowers(nn.LayerNorm)
def _layer_norm(op: nn.LayerNorm, emit: Builder) -> Sequence[Value]:
    dtype = tensor_type(op.source).dtype

    def rows(at: list[Expr], arrays: list[Array], extents: Shape) -> Array:
        source, *parameters = arrays
        emit = source.emit
        average = _mean(emit, extents, lambda k: source.wide([*at, *k]), wide(dtype))
        centered = stage(emit, extents, lambda k: source.wide([*at, *k]) - average)
        inverse = _inverse_root(emit, extents, lambda k: centered[k], wide(dtype), op.eps)

        def result(k: list[Expr]) -> Expr:
            value = centered[k] * inverse
            for scale in parameters[: len(op.scale)]:
                value = value * scale.wide(k)
            for shift in parameters[len(op.scale) :]:
                value = value + shift.wide(k)
            return value.cast(dtype)

        return stage(emit, extents, result)

    return (row_kernel(emit, op.operands, op.axis, rows),)


@lowers(nn.RMSNorm)
def _rms_norm(op: nn.RMSNorm, emit: Builder) -> Sequence[Value]:
    dtype = tensor_type(op.source).dtype

    def rows(at: list[Expr], arrays: list[Array], extents: Shape) -> Array:
        source, *scales = arrays
        emit = source.emit

        def element(k: list[Expr]) -> Expr:
            return source.wide([*at, *k])

        inverse = _inverse_root(emit, extents, element, wide(dtype), op.eps)

        def result(k: list[Expr]) -> Expr:
            value = element(k) * inverse
            for scale in scales:
                value = value * scale.wide(k)
            return value.cast(dtype)

        return stage(emit, extents, result)

    return (row_kernel(emit, op.operands, op.axis, rows),)


def _mean(emit: Builder, extents: Shape, element: Element, dtype: DType) -> Expr:
    total = reduce(emit, extents, "add", element)
    count = product(extents)
    if isinstance(count, int):
        return total / constant(emit, count, dtype)
    return total / size(emit, count).cast(dtype)


def _inverse_root(
    emit: Builder, extents: Shape, element: Element, dtype: DType, eps: float
) -> Expr:
    """`1 / sqrt(mean + eps)`, where the mean is that of the elements' squares."""

    def squared(k: list[Expr]) -> Expr:
        value = element(k)
        return value * value

    mean = _mean(emit, extents, squared, dtype)
    variance = mean + eps
    return variance.apply(scalar.Rsqrt(variance.value))


MOST_VALUES = 256
"""Numbers in a value of attention: a kernel keeps the sums of some queries on its stack."""


def attends_at_once(op: nn.Attention) -> bool:
    """Whether attention is one kernel: in f32, with values of a known and moderate size."""
    return has_moderate_values(op) and tensor_type(op.query).dtype is F32


def has_moderate_rows(op: nn.CachedAttention) -> bool:
    """Whether the keys and values of a cache have known and moderate sizes."""
    sizes = [tensor_type(value).shape[-1] for value in (op.keys, op.values)]
    return all(isinstance(size, int) and 0 < size <= MOST_VALUES for size in sizes)


@lowers(nn.CachedAttention)
def _cached_attention(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, nn.CachedAttention)
    return emit.all(CachedAttention(op.operands, (), op.scale))


def has_moderate_values(op: nn.Attention) -> bool:
    """Whether the values of an attention have a known and moderate size."""
    width = tensor_type(op.values).shape[-1]
    return isinstance(width, int) and 0 < width <= MOST_VALUES


@lowers(nn.Attention)
def _attention(op: nn.Attention, emit: Builder) -> Sequence[Value]:
    *_, count, width = tensor_type(op.values).shape
    sizes = count, width, op.causal, 0
    given = op.query, op.keys, op.values, op.mask
    return emit.all(Attention(*given, (), op.scale, *sizes, op.logarithms))
