"""Writing one kernel function: its arguments, its sizes, and what they are computed from.

A lowered kernel takes pointers and sizes only: kernels that differ in nothing but their sizes are the
same text and exist once. Sizes that the call measures are taken as they are, and what follows from them is
computed at the start of the kernel; so are all sizes of a kernel that would have more arguments than a call
passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dlc.dialects import kernel, loop, mem, simt
from dlc.dialects.expr import Expr, Index, Pointer, exprs, index, minimum, select, values
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Dim, Shape, Size, names, symbol
from dlc.ir.location import Location
from dlc.ir.types import INDEX, POINTER, DType, ViewType
from dlc.lowering.kernel_code.words import Branch, compute_size, either
from dlc.runtime.abi import MAX_ARGS, Status

MOST_ARGUMENTS = MAX_ARGS - 3
"""Pointers and sizes of a kernel; on a GPU, tiles and scratch memory may be three arguments more."""

NARROW = ("narrow",)
"""How the role of a size begins that is an argument only so that calls can be refused."""

Function: TypeAlias = loop.Func | simt.Func
"""A lowered kernel."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel as a function, and how to call it.

    Arguments are a pointer for each view, then the sizes, then (if `scratch` is not 0) a pointer to
    that many bytes of the thread's own. Tiles are independent; `cost` is nanoseconds of one.
    """

    function: Function
    sizes: Shape
    tiles: Size
    cost: Size
    scratch: Size = 0


class KernelWriter:
    """The function being written for a kernel of a plan. Sizes become arguments as they are asked for.

    Its first two arguments, `lead`, say which part of the work is to be done.
    """

    def __init__(self, op: kernel.Kernel, lead: tuple[str, str], *, literal: bool = False) -> None:
        self.location: Location = op.location
        self.literal = literal
        self.block = Block()
        self.emit = Builder(self.block, self.location)
        self.lead = exprs(self.emit, [self.block.add_argument(INDEX, name) for name in lead])
        self.views: list[ViewType] = []
        self.pointers: list[Value] = []
        for number, operand in enumerate(op.operands):
            assert isinstance(operand.type, ViewType)
            self.views.append(operand.type)
            self.pointers.append(self.block.add_argument(POINTER, f"p{number}"))
        self._sizes: dict[tuple[object, ...], tuple[Value, Size]] = {}
        program = mem.program_of(op)
        self._measured = frozenset[str]() if program is None else frozenset(program.measured)
        # Divides what is computed from measured sizes from the kernel's own work.
        self._divider = self.emit.place(loop.Return())
        self._start = Builder(self.block, self.location, self._divider)
        self._computed: dict[Size, Value] = {}

    def size(self, size: Size, *role: object) -> Expr:
        """A size as a value: an argument of its own for each role, so that text does not depend on it.

        In a `literal` kernel, known sizes are constants.
        """
        if self.literal and isinstance(size, int):
            return index(self.emit, size)
        if isinstance(size, Dim) and not self._measured.isdisjoint(names(size)):
            return Expr(self.emit, self._computed_size(size))
        return Expr(self.emit, self._argument(size, role))

    def _argument(self, size: Size, role: tuple[object, ...]) -> Value:
        if role not in self._sizes:
            self._sizes[role] = self.block.add_argument(INDEX, f"n{len(self._sizes)}"), size
        argument, same = self._sizes[role]
        assert same == size, f"{role} is {same} and {size}"
        return argument

    def _computed_size(self, size: Dim) -> Value:
        """A size that depends on what the call measures, from one argument for each dim."""
        if size not in self._computed:
            self._computed[size] = compute_size(self._start, size, self._dim).value
        return self._computed[size]

    def _dim(self, name: str) -> Expr:
        return Expr(self._start, self._argument(symbol(name), ("dim", name)))

    def stride(self, view: int, axis: int) -> Index:
        """The stride of a view along an axis, in elements."""
        stride = self.views[view].strides[axis]
        if isinstance(stride, int) and (self.literal or stride == 1):
            return stride
        return self.size(stride, "stride", view, axis)

    def pointer(self, view: int) -> Pointer:
        """The first element of a view."""
        return Pointer(self.emit, self.pointers[view], self.views[view].dtype)

    def offset(self, view: int, indices: Sequence[Index]) -> Expr:
        """Where in a view the element at some indices is, or the first with these leading ones.

        Counted in elements from the view's first.
        """
        terms = (place * self.stride(view, axis) for axis, place in enumerate(indices))
        return index(self.emit, sum(terms))

    def part(self, view: int, indices: Sequence[Index]) -> Pointer:
        """The address of the part of a view with these leading indices."""
        pointer = self.pointer(view)
        return pointer + self.offset(view, indices) if indices else pointer

    def buffer(self, elements: int, dtype: DType) -> Pointer:
        """Memory of the thread's own for a fixed number of elements."""
        return Pointer(self.emit, self.emit(loop.Buffer(elements, dtype)), dtype)

    def load(self, view: int, indices: Sequence[Index]) -> Expr:
        """The element of a view at some indices."""
        return self.pointer(view)[self.offset(view, indices)]

    def store(self, view: int, indices: Sequence[Index], element: Expr) -> None:
        """Write the element of a view at some indices."""
        self.pointer(view)[self.offset(view, indices)] = element

    def if_valid(
        self,
        valid: Expr,
        numbers: tuple[Expr, Expr],
        then: Branch = lambda: None,
        status: Status = Status.INDEX,
    ) -> None:
        """Do something if a condition holds; else note that the call failed, with two numbers."""
        one, other = values(numbers)

        def fail() -> None:
            self.emit.place(loop.Fail(self.tile.value, one, other, int(status)))

        either(valid, then, fail)

    def checked_index(self, place: Expr, extent: Expr, part: Expr | None = None) -> Expr:
        """The index if it is inside an axis; else the call fails, and it is 0.

        `part` is the length of a slice that begins there, without it that of a single element.
        """
        end = extent if part is None else extent - part + 1
        inside = (place >= 0) & (place < end)
        status = Status.INDEX if part is None else Status.RANGE
        self.if_valid(inside, (place, extent), status=status)
        return select(inside, place, 0)

    @property
    def tile(self) -> Expr:
        """The number of the tile, or of the first of several: where a failure is said to be."""
        return self.lead[0]

    def _compute_sizes(self) -> None:
        """Compute the sizes from one argument for each dim, or write them down, in place of arguments."""
        for role, (argument, size) in list(self._sizes.items()):
            if role[:1] not in (("dim",), NARROW):
                argument.replace_by(compute_size(self._start, size, self._dim).value)
                del self._sizes[role]
                self.block.arguments.remove(argument)

    def finish(
        self, tiles: Size, cost: Size, scratch: Size = 0, last: Sequence[Value] = ()
    ) -> Lowered:
        """The function, complete; `last` are arguments that come after the sizes."""
        if isinstance(tiles, Dim) and not self._measured.isdisjoint(names(tiles)):
            self.leave_out_tiles(self._start, self._computed_size(tiles), self._divider)
        if len(self.views) + len(self._sizes) > MOST_ARGUMENTS:
            self._compute_sizes()
        self.emit.place(loop.Return())
        self.block.unlink(self._divider)
        for argument in last:
            self.block.arguments.remove(argument)
            self.block.arguments.append(argument)
        for position, argument in enumerate(self.block.arguments):
            argument.index = position
        function = self.function()
        function.location = self.location
        sizes = tuple([size for _, size in self._sizes.values()])
        return Lowered(function, sizes, tiles, cost, scratch)

    def leave_out_tiles(self, start: Builder, count: Value, divider: Op) -> None:
        """Do nothing for tiles from `count` on: they are there at the limits of measured dims only.

        `start` writes at the kernel's start, and its work follows `divider`.
        """
        raise NotImplementedError

    def function(self) -> Function:
        """The function with the block that was written."""
        raise NotImplementedError


class Writer(KernelWriter):
    """Writes a kernel that does the tiles from `first` up to, but not including, `last`."""

    def __init__(self, op: kernel.Kernel, *, literal: bool = False) -> None:
        super().__init__(op, ("first", "last"), literal=literal)
        self.first, self.last = self.lead

    def leave_out_tiles(self, start: Builder, count: Value, divider: Op) -> None:
        users = list(self.last.value.uses)
        last = minimum(Expr(start, self.last.value), Expr(start, count)).value
        for user in users:
            user.replace_operand(self.last.value, last)

    def function(self) -> loop.Func:
        return loop.Func(self.block, "kernel")
