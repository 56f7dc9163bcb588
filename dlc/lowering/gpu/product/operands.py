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

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Index, Pointer, select
from dlc.dialects.kernel.products import Conv, Gemm, Product
from dlc.dialects.kernel.schedule import Packed, SplitK
from dlc.ir.core import Value
from dlc.ir.dims import Shape, Size, ceil_divide, divides, product
from dlc.ir.types import DType
from dlc.lowering.gpu.writer import GridWriter
from dlc.lowering.kernel_code.alignment import in_units
from dlc.lowering.kernel_code.words import unravel

UNIT = 16
"""Bytes that are moved at once where an operand allows it."""
WASTE = 0.25
"""Of a strip, the most that may be beyond the channels of a tap for the strips to keep to taps."""

State: TypeAlias = Sequence[Expr]
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
    def array(self) -> Pointer:
        return self.writer.pointer(self.view)

    def place(self, state: State, side: Expr, k: Index) -> tuple[Expr, Expr]:
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
        self, writer: GridWriter, batch: Sequence[Expr], strips: Strips
    ) -> tuple[Source, Source]:
        """Both operands, for one index of the batch."""
        raise NotImplementedError

    def place(
        self, writer: GridWriter, batch: Sequence[Expr], row: Expr, column: Expr
    ) -> list[Expr]:
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


# Strips.


class Strips:
    """k in strips of `depth`, one after the other."""

    def __init__(self, depth: int, inner: Size) -> None:
        self.depth = depth
        self.inner = inner

    @property
    def count(self) -> Size:
        return ceil_divide(self.inner, self.depth)

    def start(self) -> list[Index]:
        """The first strip."""
        return [0]

    def following(self, writer: GridWriter, state: State) -> list[Index]:
        """The strip after one; it may be the one beyond the last."""
        return [state[0] + self.depth]


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

    def start(self) -> list[Index]:
        return [0, 0, 0]

    def following(self, writer: GridWriter, state: State) -> list[Index]:
        row, column, channel = state
        channel += self.depth
        ends = channel >= writer.size(self.inner, self.role)
        column += select(ends, 1, 0)
        wraps = column >= self.window[1]
        return [row + select(wraps, 1, 0), select(wraps, 0, column), select(ends, 0, channel)]


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
        self, writer: GridWriter, batch: Sequence[Expr], strips: Strips
    ) -> tuple[Source, Source]:
        steps = self._steps(writer, batch)
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

    def _steps(self, writer: GridWriter, batch: Sequence[Expr]) -> _Steps:
        """The steps along k: all of them, or a part."""
        inner = writer.size(self.gemm.inner, "inner")
        if self.part is None:
            return _Steps(0, inner, inner)
        length = writer.size(self.part, "part")
        return _Steps(batch[0] * length, length, inner)

    def place(
        self, writer: GridWriter, batch: Sequence[Expr], row: Expr, column: Expr
    ) -> list[Expr]:
        return [*batch, row, column]


@dataclass(frozen=True, slots=True)
class _Steps:
    """Steps along k, or channels, of a block: `length` from `begin` on, as far as there are `inner`."""

    begin: Index
    length: Expr
    inner: Expr

    def place(self, step: Expr) -> tuple[Expr, Expr]:
        """Which step of all one of these is, and whether it is one of them."""
        within = step < self.length
        if isinstance(self.begin, int):
            return step, within
        place = self.begin + step
        return place, within & (place < self.inner)


class _Matrix(Source):
    """An operand that is stored as `[.., side, k]`, or `[.., k, side]` where it is turned."""

    def __init__(
        self,
        writer: GridWriter,
        view: int,
        batch: Sequence[Expr],
        turned: bool,
        limit: Expr,
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

    def place(self, state: State, side: Expr, k: Index) -> tuple[Expr, Expr]:
        step, within = self.steps.place(state[0] + k)
        places = (step, side) if self.turned else (side, step)
        where = self.writer.offset(self.view, [*self.batch, *places])
        return where, (side < self.limit) & within


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
        self, writer: GridWriter, batch: Sequence[Expr], strips: Strips
    ) -> tuple[Source, Source]:
        begin = 0 if self.part is None else batch[0] * writer.size(self.part, "part")
        window = _Window(self, writer, strips, begin)
        return _Pixels(self, writer, batch[-1], window), _Weights(self, writer, batch[-1], window)

    def place(
        self, writer: GridWriter, batch: Sequence[Expr], row: Expr, column: Expr
    ) -> list[Expr]:
        return [*batch[:-1], row, self.output(writer, batch[-1], column)]

    def output(self, writer: GridWriter, group: Expr, column: Expr) -> Expr:
        """The output channel that a column of a group is."""
        return group * writer.size(self.columns, "n") + column


class _Window:
    """What k means: the tap along both axes and the channel of the group, of a part from `begin` on."""

    def __init__(self, geometry: _Conv, writer: GridWriter, strips: Strips, begin: Index) -> None:
        self.conv = geometry.conv
        self.writer = writer
        self.by_taps = isinstance(strips, _Taps)
        self.inputs = writer.size(geometry.inputs, "inputs")
        self.inner = writer.size(geometry.inner, "inner")
        part = geometry.part
        length = self.inputs if part is None else writer.size(part, "part")
        self.steps = _Steps(begin, length, self.inputs)

    def at(self, state: State, k: Index) -> tuple[list[Index], Expr]:
        """Tap and channel of an element of a strip, and whether the window has it."""
        height, width = self.conv.window
        if self.by_taps:
            row, column, first = state
            channel, within = self.steps.place(first + k)
            return [row, column, channel], (row < height) & within
        step = state[0] + k
        tap, channel = unravel(step, [self.inputs] * 2)
        return [*unravel(tap, [width] * 2), channel], step < self.inner


class _Pixels(Source):
    """`[pixels, taps and channels]` of a picture."""

    def __init__(self, geometry: _Conv, writer: GridWriter, group: Expr, window: _Window) -> None:
        conv = geometry.conv
        whole = divides(UNIT // writer.views[0].dtype.bytes, geometry.inputs)
        super().__init__(writer, 0, True, whole and in_units(conv.lhs, 3, UNIT))
        self.geometry, self.group, self.window = geometry, group, window

    def place(self, state: State, side: Expr, k: Index) -> tuple[Expr, Expr]:
        geometry, writer, conv = self.geometry, self.writer, self.geometry.conv
        sizes = (geometry.picture[0], *conv.extents)
        pixels = [writer.size(size, "pixels", axis) for axis, size in enumerate(sizes)]
        number, *places = unravel(side, pixels)
        (*taps, channel), within = self.window.at(state, k)
        inside = (side < writer.size(geometry.rows, "m")) & within
        where = [self._met(axis, places[axis], taps[axis]) for axis in range(2)]
        for axis, place in enumerate(where):
            size = writer.size(geometry.picture[1 + axis], "size", axis)
            inside = inside & (place >= 0) & (place < size)
        own = self.group * self.window.inputs + channel
        return writer.offset(0, [number, *where, own]), inside

    def _met(self, axis: int, place: Expr, tap: Index) -> Expr:
        """Where along an axis of the picture a tap falls; it may be outside."""
        conv = self.geometry.conv
        low = self.writer.size(conv.padding[axis][0], "padding", axis)
        return place * conv.strides[axis] - low + tap * conv.dilations[axis]


class _Weights(Source):
    """`[taps and channels, output channels of the group]`."""

    def __init__(self, geometry: _Conv, writer: GridWriter, group: Expr, window: _Window) -> None:
        whole = divides(UNIT // writer.views[1].dtype.bytes, geometry.columns)
        super().__init__(writer, 1, False, whole and in_units(geometry.conv.rhs, 3, UNIT))
        self.geometry, self.group, self.window = geometry, group, window

    def place(self, state: State, side: Expr, k: Index) -> tuple[Expr, Expr]:
        geometry, writer = self.geometry, self.writer
        places, within = self.window.at(state, k)
        output = geometry.output(writer, self.group, side)
        inside = (side < writer.size(geometry.columns, "n")) & within
        return writer.offset(1, [*places, output]), inside
