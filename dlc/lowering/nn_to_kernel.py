"""Normalisers as one kernel each: a row is read into the cache once and stays there to the end.

The steps are those of the operation's decomposition, in the same order and with the same roundings.
Softmax along another axis than the last is three kernels over neighbouring columns. Attention is one
kernel, too; its sums are those of the decomposition in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import kernel, nn, scalar
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.kernel_attention import Attention
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import Shape, product
from dlc.ir.types import F32, INDEX, DType, wide
from dlc.lowering.array_to_kernel import lowers
from dlc.lowering.formula import convert, fold, generic, load, number, size

Element = Callable[[Builder, list[Value]], Value]
"""The value at some inner indices."""

Rows = Callable[[Builder, list[Value], list[Value], Shape], Value]
"""The staged row of results, from the indices of the row, the arrays and the row's shape."""


def stage(emit: Builder, extents: Shape, element: Element) -> Value:
    """A row of values that can be loaded again."""
    body = Block([INDEX] * len(extents), [f"k{axis}" for axis in range(len(extents))])
    inner = Builder(body, emit.location)
    inner.place(kernel.Yield([element(inner, body.arguments)]))
    return emit(kernel.Stage(body, extents))


def row_kernel(emit: Builder, inputs: Sequence[Value], axis: int, rows: Rows) -> Value:
    """A kernel over the axes before `axis`, whose element is a row of the first input."""
    shape = tensor_type(inputs[0]).shape
    domain, extents = shape[:axis], shape[axis:]
    types = [value.type for value in inputs]
    body = Block([*[INDEX] * len(domain), *types], [f"i{k}" for k in range(len(domain))])
    inner = Builder(body, emit.location)
    indices, arrays = body.arguments[: len(domain)], body.arguments[len(domain) :]
    inner.place(kernel.Yield([rows(inner, indices, arrays, extents)]))
    return emit(kernel.Generic(inputs, [], body, domain))


Finish = Callable[[Builder, Value, Value], Value]
"""A result from an element relative to the largest one, and the sum of the exponentials."""


def in_columns(op: Op, emit: Builder, axis: int, finish: Finish) -> Value:
    """Relative to the largest along an axis that is not the last: neighbouring columns side by side.

    Exponentials are computed twice rather than stored and loaded, or the array transposed.
    """
    (source,) = op.operands
    type = tensor_type(source)
    columns = (*type.shape[:axis], *type.shape[axis + 1 :])
    extents = (type.shape[axis],)

    def element(deep: Builder, array: Value, at: list[Value], k: Value) -> Value:
        return load(deep, array, [*at[:axis], k, *at[axis:]])

    def largest(inner: Builder, at: list[Value], arrays: list[Value]) -> Value:
        return fold(inner, extents, "maximum", lambda d, k: element(d, arrays[0], at, k[0]))

    def below(deep: Builder, arrays: list[Value], at: list[Value], k: Value) -> Value:
        most = deep(kernel.Load(arrays[1], at))
        return deep(scalar.Subtract(element(deep, arrays[0], at, k), most))

    def total(inner: Builder, at: list[Value], arrays: list[Value]) -> Value:
        return fold(inner, extents, "add", lambda d, k: d(scalar.Exp(below(d, arrays, at, k[0]))))

    def result(inner: Builder, at: list[Value], arrays: list[Value]) -> Value:
        column, k = [*at[:axis], *at[axis + 1 :]], at[axis]
        difference = below(inner, arrays, column, k)
        found = finish(inner, difference, inner(kernel.Load(arrays[2], column)))
        return convert(inner, found, type.dtype)

    most = generic(emit, (source,), columns, largest)
    sums = generic(emit, (source, most), columns, total)
    return generic(emit, (source, most, sums), type.shape, result)


@lowers(nn.Softmax)
def _softmax(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, nn.Softmax)
    dtype = tensor_type(op.source).dtype
    if op.axis != tensor_type(op.source).rank - 1:
        return (in_columns(op, emit, op.axis, _share),)

    def rows(inner: Builder, at: list[Value], arrays: list[Value], extents: Shape) -> Value:
        powers, total = _exponentials(inner, at, arrays, extents)

        def share(deep: Builder, k: list[Value]) -> Value:
            power = deep(kernel.Load(powers, k))
            return convert(deep, deep(scalar.Divide(power, total)), dtype)

        return stage(inner, extents, share)

    return (row_kernel(emit, op.operands, op.axis, rows),)


def _exponentials(
    emit: Builder, at: list[Value], arrays: list[Value], extents: Shape
) -> tuple[Value, Value]:
    """The exponentials relative to the largest element, as a row, and their sum."""
    lowered = _below_largest(emit, at, arrays, extents)
    powers = stage(emit, extents, lambda deep, k: deep(scalar.Exp(lowered(deep, k))))
    return powers, fold(emit, extents, "add", lambda deep, k: deep(kernel.Load(powers, k)))


def _below_largest(emit: Builder, at: list[Value], arrays: list[Value], extents: Shape) -> Element:
    largest = fold(emit, extents, "maximum", lambda deep, k: load(deep, arrays[0], [*at, *k]))
    return lambda deep, k: deep(scalar.Subtract(load(deep, arrays[0], [*at, *k]), largest))


def _share(emit: Builder, below: Value, total: Value) -> Value:
    return emit(scalar.Divide(emit(scalar.Exp(below)), total))


def _logarithm_of_share(emit: Builder, below: Value, total: Value) -> Value:
    return emit(scalar.Subtract(below, emit(scalar.Log(total))))


@lowers(nn.LogSoftmax)
def _log_softmax(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, nn.LogSoftmax)
    dtype = tensor_type(op.source).dtype
    if op.axis != tensor_type(op.source).rank - 1:
        return (in_columns(op, emit, op.axis, _logarithm_of_share),)

    def rows(inner: Builder, at: list[Value], arrays: list[Value], extents: Shape) -> Value:
        below = _below_largest(inner, at, arrays, extents)
        total = fold(inner, extents, "add", lambda deep, k: deep(scalar.Exp(below(deep, k))))
        logarithm = inner(scalar.Log(total))

        def share(deep: Builder, k: list[Value]) -> Value:
            return convert(deep, deep(scalar.Subtract(below(deep, k), logarithm)), dtype)

        return stage(inner, extents, share)

    return (row_kernel(emit, op.operands, op.axis, rows),)


@lowers(nn.LayerNorm)
def _layer_norm(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, nn.LayerNorm)
    dtype = tensor_type(op.source).dtype

    def rows(inner: Builder, at: list[Value], arrays: list[Value], extents: Shape) -> Value:
        source, *parameters = arrays
        average = _mean(inner, extents, lambda d, k: load(d, source, [*at, *k]), wide(dtype))

        def centered(deep: Builder, k: list[Value]) -> Value:
            return deep(scalar.Subtract(load(deep, source, [*at, *k]), average))

        apart = stage(inner, extents, centered)

        def squared(deep: Builder, k: list[Value]) -> Value:
            value = deep(kernel.Load(apart, k))
            return deep(scalar.Multiply(value, value))

        inverse = _inverse_root(inner, extents, squared, wide(dtype), op.eps)

        def result(deep: Builder, k: list[Value]) -> Value:
            value = deep(scalar.Multiply(deep(kernel.Load(apart, k)), inverse))
            steps = [scalar.Multiply] * len(op.scale) + [scalar.Add] * len(op.shift)
            for step, parameter in zip(steps, parameters, strict=True):
                value = deep(step(value, load(deep, parameter, k)))
            return convert(deep, value, dtype)

        return stage(inner, extents, result)

    return (row_kernel(emit, op.operands, op.axis, rows),)


@lowers(nn.RMSNorm)
def _rms_norm(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, nn.RMSNorm)
    dtype = tensor_type(op.source).dtype

    def rows(inner: Builder, at: list[Value], arrays: list[Value], extents: Shape) -> Value:
        source, *scales = arrays

        def squared(deep: Builder, k: list[Value]) -> Value:
            value = load(deep, source, [*at, *k])
            return deep(scalar.Multiply(value, value))

        inverse = _inverse_root(inner, extents, squared, wide(dtype), op.eps)

        def result(deep: Builder, k: list[Value]) -> Value:
            value = deep(scalar.Multiply(load(deep, source, [*at, *k]), inverse))
            for scale in scales:
                value = deep(scalar.Multiply(value, load(deep, scale, k)))
            return convert(deep, value, dtype)

        return stage(inner, extents, result)

    return (row_kernel(emit, op.operands, op.axis, rows),)


def _mean(emit: Builder, extents: Shape, element: Element, dtype: DType) -> Value:
    total = fold(emit, extents, "add", element)
    count = product(extents)
    size_value = (
        number(emit, count, dtype)
        if isinstance(count, int)
        else convert(emit, size(emit, count), dtype)
    )
    return emit(scalar.Divide(total, size_value))


def _inverse_root(
    emit: Builder, extents: Shape, squared: Element, dtype: DType, eps: float
) -> Value:
    """`1 / sqrt(mean + eps)`."""
    mean = _mean(emit, extents, squared, dtype)
    return emit(scalar.Rsqrt(emit(scalar.Add(mean, number(emit, eps, dtype)))))


MOST_VALUES = 256
"""Numbers in a value of attention: a kernel keeps the sums of some queries on its stack."""


def attends_at_once(op: nn.Attention) -> bool:
    """Whether attention is one kernel: in f32, with values of a known and moderate size."""
    return has_moderate_values(op) and tensor_type(op.query).dtype is F32


def has_moderate_values(op: nn.Attention) -> bool:
    """Whether the values of an attention have a known and moderate size."""
    width = tensor_type(op.values).shape[-1]
    return isinstance(width, int) and 0 < width <= MOST_VALUES


@lowers(nn.Attention)
def _attention(op: Op, emit: Builder) -> Sequence[Value]:
    assert isinstance(op, nn.Attention)
    *_, count, width = tensor_type(op.values).shape
    sizes = count, width, op.causal, 0
    given = op.query, op.keys, op.values, op.mask
    return emit.all(Attention(*given, (), op.scale, *sizes, op.logarithms))
