"""What a `kernel.gemm` or `kernel.conv` multiplies on a GPU: two matrices, and where their elements are.

Either is a product of `rows` x k by k x `columns`, once for each index of a batch. A convolution is one for
each group: a row is a pixel of the result, and k walks over the taps and channels of the window (S. Chetlur
et al., "cuDNN: Efficient Primitives for Deep Learning", 2014).

k comes in strips. Where a strip begins is a `State`, a few indices that go on from strip to strip, so that
nothing has to be divided: for a convolution the tap and the first channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dlc.dialects import kernel, loop, scalar
from dlc.dialects.kernel_products import Conv, Gemm, Product
from dlc.dialects.schedule import Packed, SplitK
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.dims import Shape, Size, ceil_divide, divides, product
from dlc.ir.types import DType
from dlc.lowering.loop_words import add, index, times, unravel
from dlc.lowering.multiples import in_units
from dlc.lowering.simt_writer import GridWriter

UNIT = 16
"""Bytes that are moved at once where an operand allows it."""
WASTE = 0.25
"""Of a strip, the most that may be beyond the channels of a tap for the strips to keep to taps."""

State: TypeAlias = Sequence[Value]
"""Where a strip begins along k."""


class Source:
    """An operand of a product as a matrix: its `side` are the rows of lhs, or the columns of rhs.

    `along_k` says whether neighbours in memory are neighbours along k, or along the side; `whole`, that
    they come in units of 16 bytes of which all or no elements are in the matrix.
    """

    def __init__(self, writer: GridWriter, view: int, along_k: bool, whole: bool) -> None:
        self.writer = writer
        self.view = view
        self.along_k = along_k
        self.whole = whole

    @property
    def dtype(self) -> DType:
        return self.writer.views[self.view].dtype

    @property
    def pointer(self) -> Value:
        return self.writer.pointers[self.view]

    def place(self, emit: Builder, state: State, side: Value, k: Value) -> tuple[Value, Value]:
        """Where in its view an element of a strip is, and whether there is one; `k` counts in the strip."""
        raise NotImplementedError


class Geometry:
    """What there is to multiply."""

    def __init__(self, op: Product, batch: Shape, rows: Size, columns: Size, inner: Size) -> None:
        self.op = op
        self.batch = batch
        self.rows, self.columns, self.inner = rows, columns, inner

    def strips(self, depth: int) -> Strips:
        """How k is walked in strips of that many elements."""
        raise NotImplementedError

    def sources(
        self, writer: GridWriter, emit: Builder, batch: Sequence[Value], strips: Strips
    ) -> tuple[Source, Source]:
        """Both operands, for one index of the batch."""
        raise NotImplementedError

    def place(
        self, writer: GridWriter, emit: Builder, batch: Sequence[Value], row: Value, column: Value
    ) -> list[Value]:
        """The index along each axis of the domain."""
        raise NotImplementedError


def geometry_of(op: kernel.Kernel) -> Geometry:
    """What a product multiplies."""
    match op:
        case Gemm():
            return _Gemm(op)
        case Conv():
            return _Conv(op)
        case _:
            raise AssertionError(op.name)


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


def both(emit: Builder, *conditions: Value) -> Value:
    """Whether all conditions hold."""
    found, *others = conditions
    for other in others:
        found = emit(scalar.And(found, other))
    return found


def below(emit: Builder, one: Value, other: Value) -> Value:
    return emit(scalar.Compare(one, other, "lt"))


# Strips.


class Strips:
    """k in strips of `depth`, one after the other."""

    def __init__(self, depth: int, inner: Size) -> None:
        self.depth = depth
        self.inner = inner

    @property
    def count(self) -> Size:
        return ceil_divide(self.inner, self.depth)

    def start(self, emit: Builder) -> list[Value]:
        """The first strip."""
        return [index(emit, 0)]

    def following(self, writer: GridWriter, emit: Builder, state: State) -> list[Value]:
        """The strip after one; it may be the one beyond the last."""
        return [emit(scalar.Add(state[0], index(emit, self.depth)))]


class _Taps(Strips):
    """The channels of the first tap of a window in strips, then those of the next one.

    `channels` are those of a group, or of a part of them.
    """

    def __init__(self, depth: int, conv: Conv, channels: Size) -> None:
        super().__init__(depth, channels)
        self.window = conv.window
        self.role = "part" if isinstance(conv.schedule, SplitK) else "inputs"

    @property
    def count(self) -> Size:
        return product(self.window) * super().count

    def start(self, emit: Builder) -> list[Value]:
        return [index(emit, 0)] * 3

    def following(self, writer: GridWriter, emit: Builder, state: State) -> list[Value]:
        row, column, channel = state
        zero, one = index(emit, 0), index(emit, 1)
        channel = emit(scalar.Add(channel, index(emit, self.depth)))
        ends = emit(scalar.Compare(channel, writer.size(self.inner, self.role), "ge"))
        column = emit(scalar.Add(column, emit(scalar.Select(ends, one, zero))))
        wraps = emit(scalar.Compare(column, index(emit, self.window[1]), "ge"))
        return [
            emit(scalar.Add(row, emit(scalar.Select(wraps, one, zero)))),
            emit(scalar.Select(wraps, zero, column)),
            emit(scalar.Select(ends, zero, channel)),
        ]


# Products of matrices.


class _Gemm(Geometry):
    def __init__(self, op: Gemm) -> None:
        *batch, rows, columns = op.domain
        assert not isinstance(op.schedule, Packed), "only CPUs have factors in panels"
        self.part = op.schedule.steps if isinstance(op.schedule, SplitK) else None
        super().__init__(op, tuple(batch), rows, columns, self.part or op.inner)
        self.gemm = op
        self.turned = op.lhs_transposed, not op.rhs_transposed

    def strips(self, depth: int) -> Strips:
        return Strips(depth, self.inner)

    def sources(
        self, writer: GridWriter, emit: Builder, batch: Sequence[Value], strips: Strips
    ) -> tuple[Source, Source]:
        steps = self._steps(writer, emit, batch)
        own = batch if self.part is None else batch[1:]
        limits = writer.size(self.rows, "m"), writer.size(self.columns, "n")
        lhs, rhs = (
            _Matrix(writer, view, where, turned, limit, steps, self.op.operands[view])
            for view, where, turned, limit in zip(
                range(2),
                (own, () if self.gemm.rhs_shared else own),
                self.turned,
                limits,
                strict=True,
            )
        )
        return lhs, rhs

    def _steps(self, writer: GridWriter, emit: Builder, batch: Sequence[Value]) -> _Steps:
        """The steps along k: all of them, or a part."""
        inner = writer.size(self.gemm.inner, "inner")
        if self.part is None:
            return _Steps(None, inner, inner)
        length = writer.size(self.part, "part")
        return _Steps(emit(scalar.Multiply(batch[0], length)), length, inner)

    def place(
        self, writer: GridWriter, emit: Builder, batch: Sequence[Value], row: Value, column: Value
    ) -> list[Value]:
        return [*batch, row, column]


@dataclass(frozen=True, slots=True)
class _Steps:
    """Steps along k, or channels, of a block: `length` from `begin` on, as far as there are `inner`."""

    begin: Value | None
    length: Value
    inner: Value

    def place(self, emit: Builder, step: Value) -> tuple[Value, Value]:
        """Which step of all one of these is, and whether it is one of them."""
        within = below(emit, step, self.length)
        if self.begin is None:
            return step, within
        place = emit(scalar.Add(self.begin, step))
        return place, both(emit, within, below(emit, place, self.inner))


class _Matrix(Source):
    """An operand that is stored as `[.., side, k]`, or `[.., k, side]` where it is turned."""

    def __init__(
        self,
        writer: GridWriter,
        view: int,
        batch: Sequence[Value],
        turned: bool,
        limit: Value,
        steps: _Steps,
        operand: Value,
    ) -> None:
        strides = writer.views[view].strides
        last_is_dense = strides[-1] == 1 or strides[-2] != 1
        fast = len(strides) - (1 if last_is_dense else 2)
        super().__init__(
            view=view,
            writer=writer,
            along_k=last_is_dense != turned,
            whole=in_units(operand, fast, UNIT),
        )
        self.batch, self.turned = batch, turned
        self.limit, self.steps = limit, steps

    def place(self, emit: Builder, state: State, side: Value, k: Value) -> tuple[Value, Value]:
        step, within = self.steps.place(emit, emit(scalar.Add(state[0], k)))
        places = (step, side) if self.turned else (side, step)
        where = offset(self.writer, emit, self.view, [*self.batch, *places])
        return where, both(emit, below(emit, side, self.limit), within)


# Convolutions.


class _Conv(Geometry):
    def __init__(self, op: Conv) -> None:
        assert not isinstance(op.schedule, Packed), "only CPUs have factors in panels"
        self.conv = op
        self.part = op.schedule.steps if isinstance(op.schedule, SplitK) else None
        self.picture: Shape = kernel.array_type(op.lhs).shape
        self.inputs = self.picture[-1] // op.groups
        *parts, pixels, outputs = op.domain
        inner = product(op.window) * (self.part or self.inputs)
        super().__init__(op, (*parts, op.groups), pixels, outputs // op.groups, inner)

    def strips(self, depth: int) -> Strips:
        if self.part is not None:
            return _Taps(depth, self.conv, self.part)
        whole = ceil_divide(self.inputs, depth) * depth
        few = (
            isinstance(whole, int)
            and isinstance(self.inputs, int)
            and whole > (1 + WASTE) * self.inputs
        )
        return Strips(depth, self.inner) if few else _Taps(depth, self.conv, self.inputs)

    def sources(
        self, writer: GridWriter, emit: Builder, batch: Sequence[Value], strips: Strips
    ) -> tuple[Source, Source]:
        begin = None
        if self.part is not None:
            begin = emit(scalar.Multiply(batch[0], writer.size(self.part, "part")))
        window = _Window(self, writer, strips, begin)
        return _Pixels(self, writer, batch[-1], window), _Weights(self, writer, batch[-1], window)

    def place(
        self, writer: GridWriter, emit: Builder, batch: Sequence[Value], row: Value, column: Value
    ) -> list[Value]:
        return [*batch[:-1], row, self.output(writer, emit, batch[-1], column)]

    def output(self, writer: GridWriter, emit: Builder, group: Value, column: Value) -> Value:
        """The output channel that a column of a group is."""
        first = emit(scalar.Multiply(group, writer.size(self.columns, "n")))
        return emit(scalar.Add(first, column))


class _Window:
    """What k means: the tap along both axes and the channel of the group, of a part from `begin` on."""

    def __init__(
        self, geometry: _Conv, writer: GridWriter, strips: Strips, begin: Value | None
    ) -> None:
        self.conv = geometry.conv
        self.writer = writer
        self.by_taps = isinstance(strips, _Taps)
        self.inputs = writer.size(geometry.inputs, "inputs")
        self.inner = writer.size(geometry.inner, "inner")
        self.steps = _Steps(None, self.inputs, self.inputs)
        if begin is not None and geometry.part is not None:
            self.steps = _Steps(begin, writer.size(geometry.part, "part"), self.inputs)

    def at(self, emit: Builder, state: State, k: Value) -> tuple[list[Value], Value]:
        """Tap and channel of an element of a strip, and whether the window has it."""
        height, width = (index(emit, size) for size in self.conv.window)
        if self.by_taps:
            row, column, first = state
            channel, there = self.steps.place(emit, emit(scalar.Add(first, k)))
            return [row, column, channel], both(emit, below(emit, row, height), there)
        step = emit(scalar.Add(state[0], k))
        tap, channel = unravel(emit, step, [self.inputs, self.inputs])
        return [*unravel(emit, tap, [width, width]), channel], below(emit, step, self.inner)


class _Pixels(Source):
    """`[pixels, taps and channels]` of a picture."""

    def __init__(self, geometry: _Conv, writer: GridWriter, group: Value, window: _Window) -> None:
        conv = geometry.conv
        whole = divides(UNIT // writer.views[0].dtype.bytes, geometry.inputs)
        super().__init__(writer, 0, True, whole and in_units(conv.lhs, 3, UNIT))
        self.geometry, self.group, self.window = geometry, group, window

    def place(self, emit: Builder, state: State, side: Value, k: Value) -> tuple[Value, Value]:
        geometry, writer, conv = self.geometry, self.writer, self.geometry.conv
        sizes = (geometry.picture[0], *conv.extents)
        pixels = [writer.size(size, "pixels", axis) for axis, size in enumerate(sizes)]
        number, *places = unravel(emit, side, pixels)
        (*taps, channel), within = self.window.at(emit, state, k)
        conditions = [below(emit, side, writer.size(geometry.rows, "m")), within]
        where = [self._met(emit, axis, places[axis], taps[axis]) for axis in range(2)]
        for axis, place in enumerate(where):
            size = writer.size(geometry.picture[1 + axis], "size", axis)
            conditions.append(emit(scalar.Compare(place, index(emit, 0), "ge")))
            conditions.append(below(emit, place, size))
        first = emit(scalar.Multiply(self.group, self.window.inputs))
        own = emit(scalar.Add(first, channel))
        return offset(writer, emit, 0, [number, *where, own]), both(emit, *conditions)

    def _met(self, emit: Builder, axis: int, place: Value, tap: Value) -> Value:
        """Where along an axis of the picture a tap falls; it may be outside."""
        conv = self.geometry.conv
        low = self.writer.size(conv.padding[axis][0], "padding", axis)
        moved = emit(scalar.Multiply(place, index(emit, conv.strides[axis])))
        start = emit(scalar.Subtract(moved, low))
        return emit(
            scalar.Add(start, emit(scalar.Multiply(tap, index(emit, conv.dilations[axis]))))
        )


class _Weights(Source):
    """`[taps and channels, output channels of the group]`."""

    def __init__(self, geometry: _Conv, writer: GridWriter, group: Value, window: _Window) -> None:
        whole = divides(UNIT // writer.views[1].dtype.bytes, geometry.columns)
        super().__init__(writer, 1, False, whole and in_units(geometry.conv.rhs, 3, UNIT))
        self.geometry, self.group, self.window = geometry, group, window

    def place(self, emit: Builder, state: State, side: Value, k: Value) -> tuple[Value, Value]:
        geometry, writer = self.geometry, self.writer
        places, within = self.window.at(emit, state, k)
        output = geometry.output(writer, emit, self.group, side)
        inside = both(emit, below(emit, side, writer.size(geometry.columns, "n")), within)
        return offset(writer, emit, 1, [*places, output]), inside
