"""Construction of kernels from formulas over values with a builder: reductions, products, index arithmetic.

`dlc.dialects.kernel.formulas` does the same with operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import kernel, scalar
from dlc.dialects.kernel.products import Gemm, sum_dtype
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Shape, Size
from dlc.ir.types import BOOL, INDEX, DType, TensorType, wide

Formula = Callable[[Builder, list[Value], list[Value]], Value]
"""Computes the element at some indices from the arrays that the kernel reads."""


def generic(emit: Builder, inputs: Sequence[Value], domain: Shape, formula: Formula) -> Value:
    """A kernel with one result over `domain`, whose elements the formula computes."""
    types = [kernel.array_type(value) for value in inputs]
    body = Block([*[INDEX] * len(domain), *types], [f"i{axis}" for axis in range(len(domain))])
    inner = Builder(body, emit.location)
    indices, arrays = body.arguments[: len(domain)], body.arguments[len(domain) :]
    inner.place(kernel.Yield([formula(inner, indices, arrays)]))
    return emit(kernel.Generic(inputs, [], body, domain))


def load(emit: Builder, source: Value, indices: Sequence[Value]) -> Value:
    """An element, converted to the dtype in which kernels compute: f32 for f16 and bf16."""
    value = emit(kernel.Load(source, indices))
    return convert(emit, value, wide(scalar.element(value.type)))


def convert(emit: Builder, value: Value, dtype: DType) -> Value:
    """The value in another dtype; itself if it has that dtype."""
    return value if value.type is dtype else emit(scalar.Cast(value, dtype))


def number(emit: Builder, value: float, dtype: DType) -> Value:
    """A scalar constant."""
    exact = bool(value) if dtype is BOOL else float(value) if dtype.is_float else int(value)
    return emit(scalar.Constant(exact, dtype))


def reduce(
    emit: Builder,
    extents: Shape,
    combine: str,
    element: Callable[[Builder, list[Value]], Value],
) -> Value:
    """A reduction of the element over all inner indices; `combine` is for instance `add`."""
    body = Block([INDEX] * len(extents), [f"k{axis}" for axis in range(len(extents))])
    inner = Builder(body, emit.location)
    inner.place(kernel.Yield([element(inner, body.arguments)]))
    return emit(kernel.Reduce(body, extents, combine))


def gemm(
    emit: Builder,
    lhs: Value,
    rhs: Value,
    type: TensorType,
    inner: Size,
    lhs_transposed: bool = False,
) -> Value:
    """A product kernel whose epilogue only rounds to the result's dtype."""
    accumulator = sum_dtype(type.dtype)
    epilogue = Block([*[INDEX] * type.rank, accumulator], [f"i{axis}" for axis in range(type.rank)])
    body = Builder(epilogue, emit.location)
    body.place(kernel.Yield([convert(body, epilogue.arguments[-1], type.dtype)]))
    return emit(Gemm(lhs, rhs, [], [], epilogue, type.shape, inner, lhs_transposed))


def size(emit: Builder, value: Size) -> Value:
    """A size as an index."""
    if isinstance(value, int):
        return emit(scalar.Constant(value, INDEX))
    return emit(kernel.ExtentOf(value))


def plus(emit: Builder, index: Value, by: Size) -> Value:
    """`index + by`."""
    return index if by == 0 else emit(scalar.Add(index, size(emit, by)))


def times(emit: Builder, index: Value, by: Size) -> Value:
    """`index * by`."""
    return index if by == 1 else emit(scalar.Multiply(index, size(emit, by)))


def between(emit: Builder, index: Value, low: Size, high: Size) -> Value:
    """Whether `low <= index < high`."""
    above = emit(scalar.Compare(index, size(emit, low), "ge"))
    return emit(scalar.And(above, emit(scalar.Compare(index, size(emit, high), "lt"))))


def both(emit: Builder, conditions: Sequence[Value]) -> Value | None:
    """Whether all conditions hold; None if there are none."""
    result: Value | None = None
    for condition in conditions:
        result = condition if result is None else emit(scalar.And(result, condition))
    return result


def choose(emit: Builder, condition: Value | None, yes: Value, no: Value) -> Value:
    """`yes` where the condition holds or is None, else `no`."""
    return yes if condition is None else emit(scalar.Select(condition, yes, no))
