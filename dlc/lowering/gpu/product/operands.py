"""The operands of `kernel.gemm` and of `kernel.conv`, an implicit GEMM, on a GPU as two matrices.

Both are products of `rows` x k by k x `columns`, one for each index of a batch. A convolution is one for
each group: a row is a pixel of the result, and k runs over the taps and channels of the window. Its im2col
matrix is never stored: the elements of a k-tile are read from the picture (S. Chetlur et al., "cuDNN:
Efficient Primitives for Deep Learning", 2014).

k is walked in k-tiles. A `KPosition` is where a k-tile begins: a few indices that are advanced from one
k-tile to the next without a division, for a convolution the tap and the first channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Index, Pointer, select
from dlc.dialects.kernel.product_schedule import Packed, SplitK
from dlc.dialects.kernel.products import Conv, Gemm, Product
from dlc.ir.core import Value
from dlc.ir.dims import Shape, Size, ceil_divide, divides, product
from dlc.ir.types import DType
from dlc.lowering.gpu.writer import GridWriter
from dlc.lowering.kernel_code.alignment import in_units
from dlc.lowering.kernel_code.words import unravel

UNIT = 16
"""Bytes of one copy where an operand is aligned for it."""
WASTE = 0.25
"""The largest part of k-tiles beyond a tap's channels for which each k-tile keeps to one tap."""

KPosition: TypeAlias = Sequence[Expr]
"""Where a k-tile begins along k."""


class Operand:
    """An operand of a product as a matrix, whose `side` is the rows of lhs or the columns of rhs.

    `along_k` says whether neighbours in memory are neighbours along k, or along the side. `whole` says that
    it can be read in aligned units of 16 bytes, all or none of whose elements are in the matrix.
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

    def locate(self, position: KPosition, side: Expr, k: Index) -> tuple[Expr, Expr]:
        """The offset in its view of element `k` of a k-tile, and whether it is in bounds."""
        raise NotImplementedError


class Geometry:
    """The sizes of a product and how to read its operands."""

    def __init__(self, op: Product, batch: Shape, rows: Size, columns: Size, inner: Size) -> None:
        self.op = op
        self.batch = batch
        self.rows, self.columns, self.inner = rows, columns, inner

    def k_tiles(self, depth: int) -> KTiles:
        """How k is walked in k-tiles of `depth` elements."""
        raise NotImplementedError

    def operands(
        self, writer: GridWriter, batch: Sequence[Expr], k_tiles: KTiles
    ) -> tuple[Operand, Operand]:
        """Both operands, for one index of the batch."""
        raise NotImplementedError

    def domain_index(
        self, writer: GridWriter, batch: Sequence[Expr], row: Expr, column: Expr
    ) -> list[Expr]:
        """The index along each axis of the domain."""
        raise NotImplementedError


def geometry_of(op: kernel.Kernel) -> Geometry:
    """The geometry of a product."""
    match op:
        case Gemm():
            return _Gemm(op)
        case Conv():
            return _Conv(op)
        case _:
            raise AssertionError(op.name)


# k-tiles.


class KTiles:
    """k in k-tiles of `depth`, one after the other."""

    def __init__(self, depth: int, inner: Size) -> None:
        self.depth = depth
        self.inner = inner

    @property
    def count(self) -> Size:
        return ceil_divide(self.inner, self.depth)

    def start(self) -> list[Index]:
        """The first k-tile."""
        return [0]

    def advance(self, writer: GridWriter, position: KPosition) -> list[Index]:
        """The k-tile after one; after the last it is out of bounds."""
        return [position[0] + self.depth]


class _TapTiles(KTiles):
    """The channels of a window's first tap in k-tiles, then those of the next one.

    `channels` are those of a group, with split-K those of one part.
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

    def advance(self, writer: GridWriter, position: KPosition) -> list[Index]:
        row, column, channel = position
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
        self.transposed = op.lhs_transposed, not op.rhs_transposed

    def k_tiles(self, depth: int) -> KTiles:
        return KTiles(depth, self.inner)

    def operands(
        self, writer: GridWriter, batch: Sequence[Expr], k_tiles: KTiles
    ) -> tuple[Operand, Operand]:
        steps = self._steps(writer, batch)
        outer = batch if self.part is None else batch[1:]
        limits = writer.size(self.rows, "m"), writer.size(self.columns, "n")
        lhs, rhs = (
            _Matrix(writer, view, batch_index, transposed, limit, steps, self.op.operands[view])
            for view, batch_index, transposed, limit in zip(
                range(2),
                (outer, () if self.gemm.rhs_shared else outer),
                self.transposed,
                limits,
                strict=True,
            )
        )
        return lhs, rhs

    def _steps(self, writer: GridWriter, batch: Sequence[Expr]) -> _Steps:
        """The steps along k: all of them, or with split-K those of the block's part."""
        inner = writer.size(self.gemm.inner, "inner")
        if self.part is None:
            return _Steps(0, inner, inner)
        length = writer.size(self.part, "part")
        return _Steps(batch[0] * length, length, inner)

    def domain_index(
        self, writer: GridWriter, batch: Sequence[Expr], row: Expr, column: Expr
    ) -> list[Expr]:
        return [*batch, row, column]


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps along k, or channels, of a block: `length` from `begin` on, below `inner`."""

    begin: Index
    length: Expr
    inner: Expr

    def locate(self, step: Expr) -> tuple[Expr, Expr]:
        """The number of one of these steps among all, and whether it is in bounds."""
        within = step < self.length
        if isinstance(self.begin, int):
            return step, within
        number = self.begin + step
        return number, within & (number < self.inner)


class _Matrix(Operand):
    """An operand that is stored as `[.., side, k]`, or `[.., k, side]` where it is transposed."""

    def __init__(
        self,
        writer: GridWriter,
        view: int,
        batch: Sequence[Expr],
        transposed: bool,
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
            along_k=last_is_dense != transposed,
            whole=in_units(operand, fast, UNIT),
        )
        self.batch, self.transposed = batch, transposed
        self.limit, self.steps = limit, steps

    def locate(self, position: KPosition, side: Expr, k: Index) -> tuple[Expr, Expr]:
        step, within = self.steps.locate(position[0] + k)
        index = (step, side) if self.transposed else (side, step)
        offset = self.writer.offset(self.view, [*self.batch, *index])
        return offset, (side < self.limit) & within


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

    def k_tiles(self, depth: int) -> KTiles:
        if self.part is not None:
            return _TapTiles(depth, self.conv, self.part)
        whole = ceil_divide(self.inputs, depth) * depth
        is_wasteful = (
            isinstance(whole, int)
            and isinstance(self.inputs, int)
            and whole > (1 + WASTE) * self.inputs
        )
        return (
            KTiles(depth, self.inner) if is_wasteful else _TapTiles(depth, self.conv, self.inputs)
        )

    def operands(
        self, writer: GridWriter, batch: Sequence[Expr], k_tiles: KTiles
    ) -> tuple[Operand, Operand]:
        begin = 0 if self.part is None else batch[0] * writer.size(self.part, "part")
        window = _Window(self, writer, k_tiles, begin)
        return _Pixels(self, writer, batch[-1], window), _Weights(self, writer, batch[-1], window)

    def domain_index(
        self, writer: GridWriter, batch: Sequence[Expr], row: Expr, column: Expr
    ) -> list[Expr]:
        return [*batch[:-1], row, self.output(writer, batch[-1], column)]

    def output(self, writer: GridWriter, group: Expr, column: Expr) -> Expr:
        """The output channel of a group's column."""
        return group * writer.size(self.columns, "n") + column


class _Window:
    """k as the tap along both axes and the channel of the group, with split-K from channel `begin` on."""

    def __init__(self, geometry: _Conv, writer: GridWriter, k_tiles: KTiles, begin: Index) -> None:
        self.conv = geometry.conv
        self.writer = writer
        self.by_taps = isinstance(k_tiles, _TapTiles)
        self.inputs = writer.size(geometry.inputs, "inputs")
        self.inner = writer.size(geometry.inner, "inner")
        part = geometry.part
        length = self.inputs if part is None else writer.size(part, "part")
        self.steps = _Steps(begin, length, self.inputs)

    def at(self, position: KPosition, k: Index) -> tuple[list[Index], Expr]:
        """Tap and channel of element `k` of a k-tile, and whether they are in bounds."""
        height, width = self.conv.window
        if self.by_taps:
            row, column, first = position
            channel, within = self.steps.locate(first + k)
            return [row, column, channel], (row < height) & within
        step = position[0] + k
        tap, channel = unravel(step, [self.inputs] * 2)
        return [*unravel(tap, [width] * 2), channel], step < self.inner


class _Pixels(Operand):
    """The im2col matrix `[pixels, taps and channels]` of a picture, read in place."""

    def __init__(self, geometry: _Conv, writer: GridWriter, group: Expr, window: _Window) -> None:
        conv = geometry.conv
        whole = divides(UNIT // writer.views[0].dtype.bytes, geometry.inputs)
        super().__init__(writer, 0, True, whole and in_units(conv.lhs, 3, UNIT))
        self.geometry, self.group, self.window = geometry, group, window

    def locate(self, position: KPosition, side: Expr, k: Index) -> tuple[Expr, Expr]:
        geometry, writer, conv = self.geometry, self.writer, self.geometry.conv
        sizes = (geometry.picture[0], *conv.extents)
        pixels = [writer.size(size, "pixels", axis) for axis, size in enumerate(sizes)]
        image, *pixel = unravel(side, pixels)
        (*taps, channel), within = self.window.at(position, k)
        inside = (side < writer.size(geometry.rows, "m")) & within
        coordinates = [self._source_coordinate(axis, pixel[axis], taps[axis]) for axis in range(2)]
        for axis, coordinate in enumerate(coordinates):
            size = writer.size(geometry.picture[1 + axis], "size", axis)
            inside = inside & (coordinate >= 0) & (coordinate < size)
        source_channel = self.group * self.window.inputs + channel
        return writer.offset(0, [image, *coordinates, source_channel]), inside

    def _source_coordinate(self, axis: int, coordinate: Expr, tap: Index) -> Expr:
        """The picture's coordinate along an axis that a tap reads for a pixel of the result.

        It may be out of bounds.
        """
        conv = self.geometry.conv
        low = self.writer.size(conv.padding[axis][0], "padding", axis)
        return coordinate * conv.strides[axis] - low + tap * conv.dilations[axis]


class _Weights(Operand):
    """`[taps and channels, output channels of the group]`."""

    def __init__(self, geometry: _Conv, writer: GridWriter, group: Expr, window: _Window) -> None:
        whole = divides(UNIT // writer.views[1].dtype.bytes, geometry.columns)
        super().__init__(writer, 1, False, whole and in_units(geometry.conv.rhs, 3, UNIT))
        self.geometry, self.group, self.window = geometry, group, window

    def locate(self, position: KPosition, side: Expr, k: Index) -> tuple[Expr, Expr]:
        geometry, writer = self.geometry, self.writer
        tap_and_channel, within = self.window.at(position, k)
        output = geometry.output(writer, self.group, side)
        inside = (side < writer.size(geometry.columns, "n")) & within
        return writer.offset(1, [*tap_and_channel, output]), inside
