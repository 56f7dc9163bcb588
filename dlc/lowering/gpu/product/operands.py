"""The operands of `kernel.gemm` and of `kernel.conv`, an implicit GEMM, on a GPU as two matrices.

Both are products of `rows` x k by k x `columns`, one for each index of a batch. A convolution is one for
each group: a row is a pixel of the result, and k runs over the taps and channels of the window. Its im2col
matrix is never stored: the elements of a k-tile are read from the picture (S. Chetlur et al., "cuDNN:
Efficient Primitives for Deep Learning", 2014).

k is walked in k-tiles (`k_positions`). Operands of whole units are read along walks (`walks`), others
element by element at a position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects import kernel
from dlc.dialects.expr import Expr, Index, Pointer, index, minimum
from dlc.dialects.kernel.product_schedule import Packed, SplitK
from dlc.dialects.kernel.products import Conv, Gemm, Product
from dlc.ir.core import Value
from dlc.ir.dims import Shape, Size, ceil_divide, divides, product
from dlc.ir.types import INDEX, U32, DType
from dlc.lowering.gpu.product.k_positions import KPosition, KTiles, TapTiles
from dlc.lowering.gpu.product.walks import (
    Picture,
    StraightWalk,
    TapSteps,
    TileUnit,
    Walk,
    WindowWalk,
)
from dlc.lowering.gpu.writer import GridWriter
from dlc.lowering.kernel_code.alignment import in_units
from dlc.lowering.kernel_code.words import unravel

UNIT = 16
"""Bytes of one copy where an operand is aligned for it."""
WASTE = 0.25
"""The largest part of k-tiles beyond a tap's channels for which each k-tile keeps to one tap."""

MOST_NARROW = (1 << 31) - 1
"""The largest size of which positions are 32-bit numbers."""
MOST_ROWS = 128
"""The most rows of a tile, and so the most that lie beyond the last pixel."""


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

    @property
    def walks(self) -> bool:
        """Whether `walk` reads it."""
        return self.whole

    def walk(self, k_tiles: KTiles, first: Expr, units: Sequence[TileUnit]) -> Walk:
        """The walk of a thread that copies these units of each k-tile; its sides begin at `first`."""
        raise NotImplementedError

    def _sides(self, first: Expr, units: Sequence[TileUnit], limit: Expr) -> list[Expr]:
        """Where each unit begins along the side; beyond the limit the last row, column or unit."""
        last = limit - (1 if self.along_k else UNIT // self.dtype.bytes)
        return [minimum(first + unit.side, last) for unit in units]


class Geometry:
    """The sizes of a product and how to read its operands."""

    def __init__(self, op: Product, batch: Shape, rows: Size, columns: Size, inner: Size) -> None:
        self.op = op
        self.batch = batch
        self.rows, self.columns, self.inner = rows, columns, inner

    def k_tiles(self, depth: int, dtype: DType = INDEX) -> KTiles:
        """How k is walked in k-tiles of `depth` elements; positions are of `dtype`."""
        raise NotImplementedError

    def consists_of(self, depth: int) -> bool:
        """Whether k, of a convolution that of each tap, consists of whole k-tiles of `depth` elements."""
        return divides(depth, self.inner)

    def position_dtype(self, writer: GridWriter) -> DType:
        """32 bits where they hold each position along k of every call, and each index of a convolution."""
        return U32 if writer.fits(self.inner, MOST_NARROW) else INDEX

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


# Products of matrices.


class _Gemm(Geometry):
    def __init__(self, op: Gemm) -> None:
        *batch, rows, columns = op.domain
        assert not isinstance(op.schedule, Packed), "only CPUs have factors in panels"
        self.part = op.schedule.steps if isinstance(op.schedule, SplitK) else None
        super().__init__(op, tuple(batch), rows, columns, self.part or op.inner)
        self.gemm = op
        self.transposed = op.lhs_transposed, not op.rhs_transposed

    def k_tiles(self, depth: int, dtype: DType = INDEX) -> KTiles:
        role = "inner" if self.part is None else "part"
        return KTiles(depth, self.inner, dtype, role)

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
            return _Steps(0, inner, inner, self.gemm.inner)
        length = writer.size(self.part, "part")
        return _Steps(batch[0] * length, length, inner, _whole_parts(self.part, self.gemm.inner))

    def domain_index(
        self, writer: GridWriter, batch: Sequence[Expr], row: Expr, column: Expr
    ) -> list[Expr]:
        return [*batch, row, column]


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps along k, or channels, of a block: `length` from `begin` on, below `inner`.

    `multiple` is a size of whose divisors the number of steps of every block is a multiple.
    """

    begin: Index
    length: Expr
    inner: Expr
    multiple: Size

    def limit(self, depth: int) -> Expr | None:
        """The number of steps; None where all blocks have whole k-tiles of `depth`."""
        if divides(depth, self.multiple):
            return None
        if isinstance(self.begin, int):
            return self.length
        return minimum(self.length, self.inner - self.begin)

    def locate(self, step: Expr) -> tuple[Expr, Expr]:
        """The number of one of these steps among all, and whether it is in bounds."""
        within = step < self.length
        if isinstance(self.begin, int):
            return step, within
        number = self.begin + step
        return number, within & (number < self.inner)


def _whole_parts(part: Size, inner: Size) -> Size:
    """A size of whose divisors the steps of each part are multiples; the last part may be shorter."""
    fits = isinstance(part, int) and divides(part, inner)
    return part if fits else 1


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
        step, within = self.steps.locate(position[0].cast(INDEX) + k)
        return self._offset(side, step), (side < self.limit) & within

    def walk(self, k_tiles: KTiles, first: Expr, units: Sequence[TileUnit]) -> Walk:
        starts = [
            self.array + self._offset(side, unit.k + self.steps.begin)
            for side, unit in zip(self._sides(first, units, self.limit), units, strict=True)
        ]
        axis = len(self.batch) + (0 if self.transposed else 1)
        step = index(self.writer.emit, self.writer.stride(self.view, axis)) * k_tiles.depth
        return StraightWalk(starts, units, step, self.steps.limit(k_tiles.depth))

    def _offset(self, side: Expr, step: Expr) -> Expr:
        place = (step, side) if self.transposed else (side, step)
        return self.writer.offset(self.view, [*self.batch, *place])


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

    def k_tiles(self, depth: int, dtype: DType = INDEX) -> KTiles:
        if self.part is not None:
            return TapTiles(depth, self.conv, self.part, dtype)
        whole = ceil_divide(self.inputs, depth) * depth
        is_wasteful = (
            isinstance(whole, int)
            and isinstance(self.inputs, int)
            and whole > (1 + WASTE) * self.inputs
        )
        return (
            KTiles(depth, self.inner, dtype)
            if is_wasteful
            else TapTiles(depth, self.conv, self.inputs, dtype)
        )

    def consists_of(self, depth: int) -> bool:
        return divides(depth, self.inputs if self.part is None else self.part)

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
        self.by_taps = isinstance(k_tiles, TapTiles)
        self.inputs = writer.size(geometry.inputs, "inputs")
        self.inner = writer.size(geometry.inner, "inner")
        self.most_steps = geometry.inner + k_tiles.depth
        part = geometry.part
        length = self.inputs if part is None else writer.size(part, "part")
        multiple = geometry.inputs if part is None else _whole_parts(part, geometry.inputs)
        self.steps = _Steps(begin, length, self.inputs, multiple)

    def at(self, position: KPosition, k: Index) -> tuple[list[Index], Expr]:
        """Tap and channel of element `k` of a k-tile, and whether they are in bounds."""
        height, width = self.conv.window
        if self.by_taps:
            row, column, first = (place.cast(INDEX) for place in position)
            channel, within = self.steps.locate(first + k)
            return [row, column, channel], (row < height) & within
        step = position[0].cast(INDEX) + k
        tap, channel = self.writer.unravel(step, [self.inputs] * 2, self.most_steps)
        return [*unravel(tap, [width] * 2), channel], step < self.inner


class _Pixels(Operand):
    """The im2col matrix `[pixels, taps and channels]` of a picture, read in place."""

    def __init__(self, geometry: _Conv, writer: GridWriter, group: Expr, window: _Window) -> None:
        conv = geometry.conv
        whole = divides(UNIT // writer.views[0].dtype.bytes, geometry.inputs)
        super().__init__(writer, 0, True, whole and in_units(conv.lhs, 3, UNIT))
        self.geometry, self.group, self.window = geometry, group, window

    def locate(self, position: KPosition, side: Expr, k: Index) -> tuple[Expr, Expr]:
        image, *pixel = self._pixel(side)
        (*taps, channel), within = self.window.at(position, k)
        inside = (side < self._rows) & within
        coordinates = [self._source_coordinate(axis, pixel[axis], taps[axis]) for axis in range(2)]
        for coordinate, size in zip(coordinates, self._sizes(), strict=True):
            inside = inside & (coordinate >= 0) & (coordinate < size)
        return self.writer.offset(0, [image, *coordinates, self._channel(channel)]), inside

    @property
    def walks(self) -> bool:
        narrow = all(self.writer.fits(size, MOST_NARROW) for size in self.geometry.picture[1:3])
        return self.whole and self.window.by_taps and narrow

    def walk(self, k_tiles: KTiles, first: Expr, units: Sequence[TileUnit]) -> Walk:
        assert isinstance(k_tiles, TapTiles)
        writer, conv = self.writer, self.geometry.conv
        starts: list[Pointer] = []
        pixels: list[tuple[Expr, Expr]] = []
        for side, unit in zip(self._sides(first, units, self._rows), units, strict=True):
            image, *pixel = self._pixel(side)
            y, x = (self._source_coordinate(axis, pixel[axis], 0) for axis in range(2))
            channel = self._channel(unit.k + self.window.steps.begin)
            starts.append(self.array + writer.offset(0, [image, y, x, channel]))
            pixels.append((y.cast(U32), x.cast(U32)))
        height, width = (size.cast(U32) for size in self._sizes())
        picture = Picture(pixels, (height, width), conv.dilations)
        row, column, channel = (index(writer.emit, writer.stride(0, axis)) for axis in (1, 2, 3))
        steps = TapSteps.of(
            k_tiles, writer, (row * conv.dilations[0], column * conv.dilations[1], channel)
        )
        limit = self.window.steps.limit(k_tiles.depth)
        return WindowWalk(starts, units, k_tiles, steps, limit, picture)

    @property
    def _rows(self) -> Expr:
        return self.writer.size(self.geometry.rows, "m")

    def _pixel(self, side: Expr) -> list[Expr]:
        """The picture, row and column of the result with this number; it may be past the last one."""
        geometry, writer = self.geometry, self.writer
        sizes = (geometry.picture[0], *geometry.conv.extents)
        pixels = [writer.size(size, "pixels", axis) for axis, size in enumerate(sizes)]
        return writer.unravel(side, pixels, geometry.rows + MOST_ROWS)

    def _sizes(self) -> list[Expr]:
        picture = self.geometry.picture
        return [self.writer.size(picture[1 + axis], "size", axis) for axis in range(2)]

    def _channel(self, channel: Index) -> Expr:
        """The channel of the picture, from that of the group."""
        return self.group * self.window.inputs + channel

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

    @property
    def walks(self) -> bool:
        return self.whole and self.window.by_taps

    def walk(self, k_tiles: KTiles, first: Expr, units: Sequence[TileUnit]) -> Walk:
        assert isinstance(k_tiles, TapTiles)
        geometry, writer = self.geometry, self.writer
        sides = self._sides(first, units, writer.size(geometry.columns, "n"))
        starts: list[Pointer] = []
        for side, unit in zip(sides, units, strict=True):
            output = geometry.output(writer, self.group, side)
            channel = unit.k + self.window.steps.begin
            starts.append(self.array + writer.offset(1, [0, 0, channel, output]))
        row, column, channel = (index(writer.emit, writer.stride(1, axis)) for axis in range(3))
        steps = TapSteps.of(k_tiles, writer, (row, column, channel))
        return WindowWalk(starts, units, k_tiles, steps, self.window.steps.limit(k_tiles.depth))
