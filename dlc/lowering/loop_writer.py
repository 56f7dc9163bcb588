"""Writing one kernel function: its arguments, its sizes, and loops in a few words.

A lowered kernel takes pointers and sizes only: kernels that differ in nothing but their sizes are the
same text and exist once. Sizes that the call measures are taken as they are, and what follows from them is
computed at the start of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.dialects import kernel, loop, mem, scalar
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.dims import Atom, Dim, Extreme, Quotient, Shape, Size, names, symbol
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
    """The function being written for a kernel of a plan. Sizes become arguments as they are asked for."""

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
        program = mem.program_of(op)
        self._measured = frozenset[str]() if program is None else frozenset(program.measured)
        # Divides what is computed from measured sizes from the kernel's own work.
        self._divider = self.emit.place(loop.Return())
        self._start = Builder(self.block, self.location, self._divider)
        self._computed: dict[Size, Value] = {}

    def size(self, size: Size, *role: object) -> Value:
        """A size as a value: an argument of its own for each role, so that text does not depend on it."""
        if isinstance(size, Dim) and not self._measured.isdisjoint(names(size)):
            return self._computed_size(size)
        return self._argument(size, role)

    def _argument(self, size: Size, role: tuple[object, ...]) -> Value:
        if role not in self._sizes:
            self._sizes[role] = self.block.add_argument(INDEX, f"n{len(self._sizes)}"), size
        return self._sizes[role][0]

    def _computed_size(self, size: Dim) -> Value:
        """A size that depends on what the call measures, from one argument for each dim."""
        if size not in self._computed:
            self._computed[size] = compute_size(self._start, size, self._dim)
        return self._computed[size]

    def _dim(self, name: str) -> Value:
        return self._argument(symbol(name), ("dim", name))

    def stride(self, view: int, axis: int) -> Value | None:
        """The stride of a view along an axis, in elements; None if it is 1."""
        stride = self.views[view].strides[axis]
        return None if stride == 1 else self.size(stride, "stride", view, axis)

    def finish(
        self, tiles: Size, cost: Size, scratch: Size = 0, last: Sequence[Value] = ()
    ) -> Lowered:
        """The function, complete; `last` are arguments that come after the sizes."""
        if isinstance(tiles, Dim) and not self._measured.isdisjoint(names(tiles)):
            self._leave_out_tiles(self._computed_size(tiles))
        self.emit.place(loop.Return())
        self.block.unlink(self._divider)
        for argument in last:
            self.block.arguments.remove(argument)
            self.block.arguments.append(argument)
        for position, argument in enumerate(self.block.arguments):
            argument.index = position
        function = loop.Func(self.block, "kernel")
        function.location = self.location
        sizes = tuple([size for _, size in self._sizes.values()])
        return Lowered(function, sizes, tiles, cost, scratch)

    def _leave_out_tiles(self, count: Value) -> None:
        """Do nothing for tiles that are there at the limits of measured dims, but not in this call."""
        users = list(self.last.uses)
        last = minimum(self._start, self.last, count)
        for user in users:
            user.replace_operand(self.last, last)


def compute_size(emit: Builder, size: Size, dim: Callable[[str], Value]) -> Value:
    """Code for a size over dims that are values."""
    if isinstance(size, int):
        return index(emit, size)
    total: Value | None = None
    for monomial, factor in size.terms:
        term: Value | None = None if factor == 1 and monomial else index(emit, factor)
        for atom, power in monomial:
            value = _compute_atom(emit, atom, dim)
            for _ in range(power):
                term = value if term is None else emit(scalar.Multiply(term, value))
        total = add(emit, total, term)
    assert total is not None
    return total


def _compute_atom(emit: Builder, atom: Atom, dim: Callable[[str], Value]) -> Value:
    match atom:
        case str():
            return dim(atom)
        case Quotient(top, bottom):
            both = [compute_size(emit, size, dim) for size in (top, bottom)]
            return emit(scalar.FloorDivide(*both))
        case Extreme(which, sizes):
            both = [compute_size(emit, size, dim) for size in sizes]
            return emit((scalar.Maximum if which == "max" else scalar.Minimum)(*both))


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
