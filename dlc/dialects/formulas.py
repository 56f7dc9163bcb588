"""Construction of kernels from formulas with operators: elements, reductions and staged rows.

`generic(emit, [x, y], shape, lambda at, arrays: arrays[0][at] + arrays[1][at])` adds two arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, constant, exprs, maximum, minimum, values
from dlc.dialects.kernel.products import Gemm, sum_dtype
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Shape, Size
from dlc.ir.types import INDEX, TensorType, wide

Element: TypeAlias = Callable[[list[Expr]], Expr]
"""Computes the value at some inner indices."""


class Array:
    """An array that a formula reads: `a[[i, j]]` is an element."""

    __slots__ = ("emit", "value")

    def __init__(self, emit: Builder, value: Value) -> None:
        self.emit = emit
        self.value = value

    def __getitem__(self, indices: Sequence[Expr]) -> Expr:
        return Expr(self.emit, self.emit(kernel.Load(self.value, values(indices))))

    def wide(self, indices: Sequence[Expr]) -> Expr:
        """An element, converted to the dtype in which kernels compute."""
        element = self[indices]
        return element.cast(wide(element.dtype))


Formula: TypeAlias = Callable[[list[Expr], list[Array]], Expr | Array]
"""Computes the element at some indices, or a staged row, from the arrays that the kernel reads."""


def generic(emit: Builder, inputs: Sequence[Value], domain: Shape, formula: Formula) -> Value:
    """A kernel with one result over `domain`, whose elements or rows the formula computes."""
    types = [kernel.array_type(value) for value in inputs]
    body = Block([*[INDEX] * len(domain), *types], [f"i{axis}" for axis in range(len(domain))])
    with emit.into(body):
        indices = exprs(emit, body.arguments[: len(domain)])
        arrays = [Array(emit, array) for array in body.arguments[len(domain) :]]
        emit.place(kernel.Yield([formula(indices, arrays).value]))
    return emit(kernel.Generic(inputs, [], body, domain))


def gemm(
    emit: Builder,
    lhs: Value,
    rhs: Value,
    type: TensorType,
    inner: Size,
    lhs_transposed: bool = False,
) -> Value:
    """`lhs[m, k] @ rhs[k, n]`, of `inner` steps along k; the epilogue only rounds to the result's dtype."""
    accumulator = sum_dtype(type.dtype)
    epilogue = Block([*[INDEX] * type.rank, accumulator], [f"i{axis}" for axis in range(type.rank)])
    with emit.into(epilogue):
        total = Expr(emit, epilogue.arguments[-1])
        emit.place(kernel.Yield([total.cast(type.dtype).value]))
    return emit(Gemm(lhs, rhs, [], [], epilogue, type.shape, inner, lhs_transposed))


def reduce(emit: Builder, extents: Shape, combine: str, element: Element) -> Expr:
    """A reduction of the element over all inner indices; `combine` is for instance `add`."""
    return Expr(emit, emit(kernel.Reduce(_inner(emit, extents, element), extents, combine)))


def stage(emit: Builder, extents: Shape, element: Element) -> Array:
    """A staged row: values that are computed once and can be loaded again."""
    return Array(emit, emit(kernel.Stage(_inner(emit, extents, element), extents)))


def _inner(emit: Builder, extents: Shape, element: Element) -> Block:
    body = Block([INDEX] * len(extents), [f"k{axis}" for axis in range(len(extents))])
    with emit.into(body):
        emit.place(kernel.Yield([element(exprs(emit, body.arguments)).value]))
    return body


def size(emit: Builder, value: Size) -> Expr:
    """A size as an index."""
    if isinstance(value, int):
        return constant(emit, value, INDEX)
    return Expr(emit, emit(kernel.ExtentOf(value)))


def shift(index: Expr, by: Size) -> Expr:
    """`index + by`; for 0 the index itself, without an operation."""
    return index if by == 0 else index + by


def within(index: Expr, low: Size, high: Size) -> Expr:
    """Whether `low <= index < high`."""
    return (index >= low) & (index < high)


def clamp(index: Expr, extent: Size) -> Expr:
    """The index, or the nearest one in `0 .. extent - 1`; 0 if there is none."""
    return maximum(minimum(index, extent - 1), 0)


def check_index(index: Expr, extent: Size, part: Size = 1, *, decided: bool = False) -> Expr:
    """The index; a call in which it is not in `0 .. extent - part` fails.

    `decided` says that an earlier check has found it to be inside.
    """
    return index.apply(kernel.CheckIndex(index.value, extent, part, decided))


def is_extreme(value: Expr, extreme: Expr) -> Expr:
    """Whether a value is the extreme of a set: equal to it, or NaN, which wins and equals nothing."""
    chosen = value.equals(extreme)
    return chosen | value.differs(value) if value.dtype.is_float else chosen
