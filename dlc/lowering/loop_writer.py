"""Writing one kernel function: its arguments, its sizes, and loops in a few words.

A lowered kernel takes pointers and sizes only: kernels that differ in nothing but their sizes are the
same text and exist once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.dialects import kernel, loop, scalar
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.dims import Shape, Size
from dlc.ir.location import Location
from dlc.ir.types import INDEX, POINTER, Type, ViewType


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel as a function, and how to call it.

    Arguments are a pointer for each view, then the sizes, then (if `scratch` is not 0) a pointer to
    that many bytes of the thread's own. Tiles are independent; `cost` is nanoseconds of one.
    """

    function: loop.Func
    sizes: Shape
    tiles: Size
    cost: Size
    scratch: Size = 0


class Writer:
    """The function being written. Sizes become arguments as they are asked for."""

    def __init__(self, op: kernel.Kernel) -> None:
        self.location: Location = op.location
        self.block = Block()
        self.first = self.block.add_argument(INDEX, "first")
        self.last = self.block.add_argument(INDEX, "last")
        self.views: list[ViewType] = []
        self.pointers: list[Value] = []
        for number, operand in enumerate(op.operands):
            assert isinstance(operand.type, ViewType)
            self.views.append(operand.type)
            self.pointers.append(self.block.add_argument(POINTER, f"p{number}"))
        self._sizes: dict[tuple[object, ...], tuple[Value, Size]] = {}
        self.emit = Builder(self.block, self.location)

    def size(self, size: Size, *role: object) -> Value:
        """A size as a value: an argument of its own for each role, so that text does not depend on it."""
        if role not in self._sizes:
            self._sizes[role] = self.block.add_argument(INDEX, f"n{len(self._sizes)}"), size
        return self._sizes[role][0]

    def stride(self, view: int, axis: int) -> Value | None:
        """The stride of a view along an axis, in elements; None if it is 1."""
        stride = self.views[view].strides[axis]
        return None if stride == 1 else self.size(stride, "stride", view, axis)

    def finish(
        self, tiles: Size, cost: Size, scratch: Size = 0, last: Sequence[Value] = ()
    ) -> Lowered:
        """The function, complete; `last` are arguments that come after the sizes."""
        self.emit.place(loop.Return())
        for argument in last:
            self.block.arguments.remove(argument)
            self.block.arguments.append(argument)
        for position, argument in enumerate(self.block.arguments):
            argument.index = position
        function = loop.Func(self.block, "kernel")
        function.location = self.location
        sizes = tuple([size for _, size in self._sizes.values()])
        return Lowered(function, sizes, tiles, cost, scratch)


def index(emit: Builder, value: int) -> Value:
    """A constant index."""
    return emit(scalar.Constant(value, INDEX))


def for_each(
    emit: Builder,
    lower: Value,
    upper: Value,
    step: int,
    initial: Sequence[Value],
    body: Callable[[Builder, Value, list[Value]], Sequence[Value]],
    *,
    parallel: bool = False,
) -> tuple[Value, ...]:
    """A counted loop; `body` gets the index and the carried values and gives the next ones."""
    types: list[Type] = [INDEX, *[value.type for value in initial]]
    block = Block(types, ["i"])
    inner = Builder(block, emit.location)
    results = body(inner, block.arguments[0], block.arguments[1:])
    inner.place(loop.Yield(results))
    made = loop.For(lower, upper, index(emit, step), initial, block, parallel)
    return emit.all(made)


def minimum(emit: Builder, one: Value, other: Value) -> Value:
    """The smaller of two indices."""
    return emit(scalar.Minimum(one, other))


def add(emit: Builder, one: Value | None, other: Value | None) -> Value | None:
    """The sum, where None is 0."""
    if one is None or other is None:
        return one if other is None else other
    return emit(scalar.Add(one, other))


def times(emit: Builder, one: Value, other: Value | None) -> Value:
    """The product, where None is 1."""
    return one if other is None else emit(scalar.Multiply(one, other))


def unravel(emit: Builder, number: Value, extents: Sequence[Value]) -> list[Value]:
    """The index along each axis of a row number."""
    indices: list[Value] = []
    for extent in reversed(extents[1:]):
        quotient = emit(scalar.RawDivide(number, extent))
        indices.append(emit(scalar.Subtract(number, emit(scalar.Multiply(quotient, extent)))))
        number = quotient
    return [number, *reversed(indices)]


def whole_registers(emit: Builder, lower: Value, upper: Value, lanes: int) -> Value:
    """The end of the last whole register between two bounds; `upper - lower` may be negative."""
    width = index(emit, lanes)
    length = emit(scalar.Maximum(emit(scalar.Subtract(upper, lower)), index(emit, 0)))
    count = emit(scalar.RawDivide(length, width))
    return emit(scalar.Add(lower, emit(scalar.Multiply(count, width))))


def nest(
    emit: Builder,
    extents: Sequence[Value],
    carried: Sequence[Value],
    innermost: Callable[[Builder, list[Value], list[Value]], list[Value]],
    indices: tuple[Value, ...] = (),
) -> list[Value]:
    """Loops within loops, each over one extent, carrying values through all of them."""
    if not extents:
        return innermost(emit, list(indices), list(carried))

    def body(inside: Builder, position: Value, values: list[Value]) -> Sequence[Value]:
        return nest(inside, extents[1:], values, innermost, (*indices, position))

    return list(for_each(emit, index(emit, 0), extents[0], 1, carried, body))
