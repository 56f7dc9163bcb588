"""`kernel.gemm` and `kernel.conv` for a GPU, in exact arithmetic: every element is one sum in order of k.

A block computes a square tile of the result. Step by step along k its threads bring a strip of both
operands into shared memory, and each thread adds up a few elements of the tile in registers. A
convolution is the same product: a row is a pixel of the result, and k walks over the taps and channels of
the window (S. Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import kernel, loop, scalar, simt
from dlc.dialects.kernel_products import Conv, Gemm, Product
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Value
from dlc.ir.dims import Shape, Size, product
from dlc.ir.passes import Context
from dlc.lowering.body import Body, Point, Row
from dlc.lowering.epilogue import epilogue_body
from dlc.lowering.formula import convert, number
from dlc.lowering.hoist import tidy
from dlc.lowering.lanes import Lane, Uniform
from dlc.lowering.loop_words import add, for_each, index, times, unravel
from dlc.lowering.loop_writer import Lowered
from dlc.lowering.simt_writer import GridWriter, nothing
from dlc.lowering.work import ceil_divide, nanoseconds

SIDE = 64
"""Rows and columns of a tile."""
STRIP = 16
"""Steps along k that are in shared memory at a time."""
ACROSS = 16
"""Threads along each side of a tile; a thread has every sixteenth row and column."""
EACH = SIDE // ACROSS
THREADS = ACROSS * ACROSS
PITCH = SIDE + 1
"""Elements from one k to the next in shared memory: one more, so that columns lie in different banks."""
UNROLL = 4
"""Steps along k that are written out."""
PICOSECONDS = 20
"""Of one multiplication and addition, roughly."""

At = Callable[[Builder, Value, Value], Value]
"""An element of an operand: of lhs by row and k, of rhs by k and column. Both are inside."""


def lower_product(op: kernel.Kernel, context: Context) -> Lowered:
    """The function for one product in destination form."""
    match op:
        case Gemm():
            lowered = _Gemm(op).lower()
        case Conv():
            lowered = _Conv(op).lower()
        case _:
            raise AssertionError(op.name)
    tidy(lowered.function)
    return lowered


class _Tiles:
    """A product of `rows` x `inner` by `inner` x `columns`, once for each index of `batch`."""

    def __init__(
        self, op: Product, batch: Sequence[Size], rows: Size, columns: Size, inner: Size
    ) -> None:
        self.op = op
        self.writer = GridWriter(op, THREADS)
        self.batch = batch
        self.rows, self.columns, self.inner = rows, columns, inner
        self.dtype = op.accumulator

    # What differs from one kind of product to another.

    lhs_by_rows = False
    """Whether neighbours in a stored lhs are neighbours in k."""
    rhs_by_rows = True
    """Whether neighbours in a stored rhs are neighbouring columns."""

    def operands(self, emit: Builder, batch: Sequence[Value]) -> tuple[At, At]:
        """What reads the operands, for one index of the batch."""
        raise NotImplementedError

    def place(
        self, emit: Builder, batch: Sequence[Value], row: Value, column: Value
    ) -> list[Value]:
        """The index along each axis of the domain."""
        raise NotImplementedError

    # What they have in common.

    def lower(self) -> Lowered:
        writer, emit = self.writer, self.writer.emit
        down, across = ceil_divide(self.rows, SIDE), ceil_divide(self.columns, SIDE)
        counts = [writer.size(size, "batch", k) for k, size in enumerate(self.batch)]
        counts += [writer.size(down, "down"), writer.size(across, "across")]
        *batch, i, j = unravel(emit, writer.tile, counts)
        first = [emit(scalar.Multiply(place, index(emit, SIDE))) for place in (i, j)]
        y, x = unravel(emit, writer.thread, [index(emit, ACROSS)] * 2)
        sums = self._sums(emit, batch, first, y, x)
        self._finish(emit, batch, first, y, x, sums)
        work = SIDE * SIDE * self.inner * PICOSECONDS
        return writer.finish(product(self.batch) * down * across, nanoseconds(work))

    def _sums(
        self, emit: Builder, batch: Sequence[Value], first: Sequence[Value], y: Value, x: Value
    ) -> list[Value]:
        """The sums of the thread, row by row."""
        rooms = [emit(simt.Shared(STRIP * PITCH, self.dtype)) for _ in range(2)]
        lhs, rhs = self.operands(emit, batch)
        inner = self.writer.size(self.inner, "inner")
        limits = self.writer.size(self.rows, "m"), self.writer.size(self.columns, "n")

        def strip(deep: Builder, start: Value, sums: list[Value]) -> Sequence[Value]:
            for room, at, low, limit, along_k in (
                (rooms[0], lhs, first[0], limits[0], self.lhs_by_rows),
                (rooms[1], _turned(rhs), first[1], limits[1], not self.rhs_by_rows),
            ):
                self._bring(deep, room, at, (low, limit), (start, inner), along_k)
            deep.place(simt.Barrier())
            sums = self._multiply(deep, rooms, y, x, sums)
            deep.place(simt.Barrier())
            return sums

        zero = number(emit, 0, self.dtype)
        return list(for_each(emit, index(emit, 0), inner, STRIP, [zero] * (EACH * EACH), strip))

    def _bring(
        self,
        emit: Builder,
        room: Value,
        at: At,
        side: tuple[Value, Value],
        depth: tuple[Value, Value],
        along_k: bool,
    ) -> None:
        """Bring a strip of an operand into shared memory: `[k, side]`, zeros beyond its ends."""
        for part in range(SIDE * STRIP // THREADS):
            place = emit(scalar.Add(self.writer.thread, index(emit, part * THREADS)))
            fast = index(emit, STRIP if along_k else SIDE)
            slow, quick = unravel(emit, place, [fast, fast])
            s, k = (slow, quick) if along_k else (quick, slow)
            row, step = emit(scalar.Add(side[0], s)), emit(scalar.Add(depth[0], k))
            within = emit(
                scalar.And(
                    emit(scalar.Compare(row, side[1], "lt")),
                    emit(scalar.Compare(step, depth[1], "lt")),
                )
            )
            value = self._if_within(emit, within, at, row, step)
            there = emit(scalar.Add(emit(scalar.Multiply(k, index(emit, PITCH))), s))
            emit.place(loop.Store(value, room, there))

    def _if_within(self, emit: Builder, within: Value, at: At, row: Value, step: Value) -> Value:
        """The element at a place, 0 where that is outside of the operand."""
        yes, no = Block(), Block()
        inside, outside = Builder(yes, emit.location), Builder(no, emit.location)
        inside.place(loop.Yield([convert(inside, at(inside, row, step), self.dtype)]))
        outside.place(loop.Yield([number(outside, 0, self.dtype)]))
        (value,) = emit.all(loop.If(within, yes, no))
        return value

    def _multiply(
        self, emit: Builder, rooms: Sequence[Value], y: Value, x: Value, sums: list[Value]
    ) -> list[Value]:
        """Add the products of a strip."""

        def steps(deep: Builder, start: Value, carried: list[Value]) -> Sequence[Value]:
            for k in range(UNROLL):
                step = deep(scalar.Add(start, index(deep, k)))
                base = deep(scalar.Multiply(step, index(deep, PITCH)))
                rows, columns = (
                    [self._shared(deep, room, base, near, part) for part in range(EACH)]
                    for room, near in ((rooms[0], y), (rooms[1], x))
                )
                pairs = [(row, column) for row in rows for column in columns]
                carried = [
                    self._add(deep, *pair, sum) for pair, sum in zip(pairs, carried, strict=True)
                ]
            return carried

        return list(for_each(emit, index(emit, 0), index(emit, STRIP), UNROLL, sums, steps))

    def _shared(self, emit: Builder, room: Value, base: Value, near: Value, part: int) -> Value:
        place = emit(scalar.Add(base, emit(scalar.Add(near, index(emit, part * ACROSS)))))
        return emit(loop.Load(room, place, self.dtype))

    def _add(self, emit: Builder, lhs: Value, rhs: Value, sum: Value) -> Value:
        if self.dtype.is_float:
            return emit(scalar.Fma(lhs, rhs, sum))
        return emit(scalar.Add(emit(scalar.Multiply(lhs, rhs)), sum))

    def _finish(
        self,
        emit: Builder,
        batch: Sequence[Value],
        first: Sequence[Value],
        y: Value,
        x: Value,
        sums: Sequence[Value],
    ) -> None:
        """The epilogue for each sum of the thread that is inside of the result."""
        body = epilogue_body(self.op, self.writer, 1)
        limits = self.writer.size(self.rows, "m"), self.writer.size(self.columns, "n")
        for position, sum in enumerate(sums):
            parts = divmod(position, EACH)
            row, column = (
                emit(scalar.Add(low, emit(scalar.Add(near, index(emit, part * ACROSS)))))
                for low, near, part in zip(first, (y, x), parts, strict=True)
            )
            within = emit(
                scalar.And(
                    emit(scalar.Compare(row, limits[0], "lt")),
                    emit(scalar.Compare(column, limits[1], "lt")),
                )
            )
            work = Block()
            inside = Builder(work, emit.location)
            write_result(self.op, body, inside, self.place(inside, batch, row, column), sum)
            inside.place(loop.Yield([]))
            emit.place(loop.If(within, work, nothing(emit)))


def _turned(at: At) -> At:
    """An operand that is read by k and column, by column and k."""
    return lambda emit, column, k: at(emit, k, column)


def write_result(
    op: Product, body: Body, emit: Builder, place: Sequence[Value], sum: Value
) -> None:
    """Apply the epilogue to one finished sum and write what it gives."""
    rank = len(op.domain)
    known: dict[Value, Lane | Row] = {
        argument: Uniform(value)
        for argument, value in zip(op.epilogue.arguments[: rank + 1], [*place, sum], strict=True)
    }
    point = body.run(op.epilogue, Point(emit, 1, known))
    first = len(op.operands) - len(op.outs)
    lanes: list[Lane] = [Uniform(position) for position in place]
    for view, value in enumerate(op.epilogue.terminator.operands, first):
        body.store(point, point.lane(value), body.writer.pointers[view], lanes, body.strides(view))


class _Gemm(_Tiles):
    def __init__(self, op: Gemm) -> None:
        *batch, rows, columns = op.domain
        assert not op.panel, "operands of products are in panels for CPUs only"
        super().__init__(op, batch, rows, columns, op.inner)
        self.lhs_by_rows = not op.lhs_transposed
        self.rhs_by_rows = not op.rhs_transposed
        self._shared_rhs = op.rhs_shared
        self._turned = op.lhs_transposed, op.rhs_transposed

    def operands(self, emit: Builder, batch: Sequence[Value]) -> tuple[At, At]:
        def reader(view: int, where: Sequence[Value], turned: bool) -> At:
            def at(deep: Builder, one: Value, other: Value) -> Value:
                places = [*where, *((other, one) if turned else (one, other))]
                return read(self.writer, deep, view, places)

            return at

        batch_of_rhs = () if self._shared_rhs else batch
        return reader(0, batch, self._turned[0]), reader(1, batch_of_rhs, self._turned[1])

    def place(
        self, emit: Builder, batch: Sequence[Value], row: Value, column: Value
    ) -> list[Value]:
        return [*batch, row, column]


class _Conv(_Tiles):
    """One product for each group: a row is a pixel of the results, k a tap of the window and a channel."""

    lhs_by_rows = True

    def __init__(self, op: Conv) -> None:
        assert not op.panel, "operands of products are in panels for CPUs only"
        pixels, outputs = op.domain
        self.conv = op
        self.picture: Shape = kernel.array_type(op.lhs).shape
        self.inputs = self.picture[-1] // op.groups
        self.outputs = outputs // op.groups
        inner = product(op.window) * self.inputs
        super().__init__(op, (op.groups,), pixels, self.outputs, inner)

    def operands(self, emit: Builder, batch: Sequence[Value]) -> tuple[At, At]:
        (group,) = batch
        inputs = self.writer.size(self.inputs, "inputs")
        pixels = [
            self.writer.size(size, "pixels", axis)
            for axis, size in enumerate((self.picture[0], *self.conv.extents))
        ]

        def window(deep: Builder, k: Value) -> list[Value]:
            """The tap along both axes and the channel of the group."""
            tap, channel = unravel(deep, k, [inputs, inputs])
            width = index(deep, self.conv.window[1])
            return [*unravel(deep, tap, [width, width]), channel]

        def lhs(deep: Builder, row: Value, k: Value) -> Value:
            picture, *places = unravel(deep, row, pixels)
            *taps, channel = window(deep, k)
            where = [self._met(deep, axis, places[axis], taps[axis]) for axis in range(2)]
            own = deep(scalar.Add(deep(scalar.Multiply(group, inputs)), channel))
            return self._pixel(deep, picture, where, own)

        def rhs(deep: Builder, k: Value, column: Value) -> Value:
            return read(self.writer, deep, 1, [*window(deep, k), self._output(deep, group, column)])

        return lhs, rhs

    def _met(self, emit: Builder, axis: int, place: Value, tap: Value) -> Value:
        """Where along an axis of the picture a tap falls; it may be outside."""
        conv = self.conv
        low = self.writer.size(conv.padding[axis][0], "padding", axis)
        moved = emit(scalar.Multiply(place, index(emit, conv.strides[axis])))
        reach = emit(scalar.Multiply(tap, index(emit, conv.dilations[axis])))
        return emit(scalar.Subtract(emit(scalar.Add(moved, reach)), low))

    def _pixel(self, emit: Builder, picture: Value, where: Sequence[Value], own: Value) -> Value:
        """The element of a picture, 0 outside of it."""
        dtype = kernel.array_type(self.conv.lhs).dtype
        zero = index(emit, 0)
        within: Value | None = None
        for axis, place in enumerate(where):
            size = self.writer.size(self.picture[1 + axis], "size", axis)
            low = emit(scalar.Compare(place, zero, "ge"))
            inside = emit(scalar.And(low, emit(scalar.Compare(place, size, "lt"))))
            within = inside if within is None else emit(scalar.And(within, inside))
        assert within is not None
        yes, no = Block(), Block()
        there, outside = Builder(yes, emit.location), Builder(no, emit.location)
        there.place(loop.Yield([read(self.writer, there, 0, [picture, *where, own])]))
        outside.place(loop.Yield([number(outside, 0, dtype)]))
        (value,) = emit.all(loop.If(within, yes, no))
        return value

    def _output(self, emit: Builder, group: Value, column: Value) -> Value:
        first = emit(scalar.Multiply(group, self.writer.size(self.outputs, "outputs")))
        return emit(scalar.Add(first, column))

    def place(
        self, emit: Builder, batch: Sequence[Value], row: Value, column: Value
    ) -> list[Value]:
        return [row, self._output(emit, batch[0], column)]


def offset(writer: GridWriter, emit: Builder, view: int, places: Sequence[Value]) -> Value:
    """Where in a view the element at some indices is."""
    found: Value | None = None
    for axis, place in enumerate(places):
        found = add(emit, found, times(emit, place, writer.stride(view, axis)))
    return index(emit, 0) if found is None else found


def read(writer: GridWriter, emit: Builder, view: int, places: Sequence[Value]) -> Value:
    """The element of a view at some indices."""
    where = offset(writer, emit, view, places)
    return emit(loop.Load(writer.pointers[view], where, writer.views[view].dtype))
