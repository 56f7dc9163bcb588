"""Shared-memory layouts of operand tiles: swizzles without bank conflicts, asynchronous copies, `ldmatrix`.

A tile is stored as lines of 16-byte units, in the order of global memory: a line is a part of a row along
k, or for one k a part along the side. Where threads read units of several lines at once, the layout is
swizzled, as in CUTLASS: the unit's number is XORed with some bits of the line's, so that the units which
are read together lie in different banks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from dlc.dialects import simt
from dlc.dialects.expr import Condition, Expr, Index, Pointer, constant, exprs, index
from dlc.dialects.simt import WIDE
from dlc.ir.types import BOOL, F32, DType
from dlc.lowering.gpu.writer import GridWriter
from dlc.lowering.kernel_code.words import either, for_each, unravel

BANK_UNITS = 8
"""Units of 16 bytes in a row of all 32 banks."""
MAX_UNROLLED = 4
"""Copies of a thread that are unrolled; more are a loop."""


class Swizzle(Enum):
    """The order of a line's units."""

    NONE = auto()
    """As in global memory: for threads that read one line at a time, or all the same unit."""
    UNITS = auto()
    """For threads that read the same unit of eight lines."""
    ELEMENTS = auto()
    """For threads that read eight neighbouring elements of each of four lines."""


@dataclass(frozen=True, slots=True)
class GlobalElement:
    """The element of an array in global memory at an index; `within` says whether it is in bounds."""

    array: Pointer
    index: Expr
    within: Expr


Locate = Callable[[Expr, Expr], GlobalElement]
"""The global element that belongs to a line's number and an element's in it."""


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """`lines` lines of `units` units of 16 bytes, a power of two."""

    dtype: DType
    lines: int
    units: int
    swizzle: Swizzle

    @property
    def each(self) -> int:
        """Elements of a unit."""
        return WIDE // self.dtype.bytes

    @property
    def elements(self) -> int:
        """Elements of a line."""
        return self.units * self.each

    @property
    def bytes(self) -> int:
        return self.lines * self.units * WIDE

    def offset(self, line: Index, unit: Expr, low: Expr) -> Expr:
        """The offset of a unit in elements. `low` is the line's number, of which only `% 8` matters."""
        return (line * self.units + self._swizzled(unit, low)) * self.each

    @property
    def _period(self) -> int:
        """The number of lines after which the permutation of units repeats."""
        return {Swizzle.NONE: 1, Swizzle.ELEMENTS: 4, Swizzle.UNITS: BANK_UNITS}[self.swizzle]

    def _swizzled(self, unit: Expr, low: Expr) -> Expr:
        match self.swizzle:
            case Swizzle.NONE:
                return unit
            case Swizzle.ELEMENTS:
                return unit ^ low % 4 * 2
            case Swizzle.UNITS if self.units < BANK_UNITS:
                return unit ^ low // (BANK_UNITS // self.units) % self.units
            case Swizzle.UNITS:
                return unit ^ low % BANK_UNITS

    def units_of_thread(self, writer: GridWriter) -> ThreadUnits:
        """The units that a thread copies: the same one of several lines."""
        count, down = self.lines * self.units // writer.threads, writer.threads // self.units
        assert count and down % self._period == 0, "units are permuted alike in a thread's lines"
        line, unit = unravel(writer.thread, [self.units] * 2)
        return ThreadUnits(self, line, unit, [part * down for part in range(count)])

    def load(self, writer: GridWriter, buffer: Pointer, locate: Locate, *, whole: bool) -> None:
        """Start to copy all lines to a buffer (`cp.async`), with zeros for elements out of bounds.

        `whole` copies units of 16 bytes, otherwise elements are copied one by one.
        """
        size = self.each if whole else 1
        count = self.lines * self.elements // size
        thread, threads = writer.thread, writer.threads
        if count % threads or count > MAX_UNROLLED * threads:
            with for_each(writer.emit, thread, count, threads) as number:
                self._load_chunk(buffer, locate, number, size)
            return
        for part in range(count // threads):
            self._load_chunk(buffer, locate, thread + part * threads, size)

    def _load_chunk(self, buffer: Pointer, locate: Locate, number: Expr, size: int) -> None:
        """Start to copy the chunk of this number, of `size` elements."""
        line, part = unravel(number, [self.elements // size] * 2)
        along = part * size
        source = locate(line, along)
        unit, rest = unravel(along, [self.each] * 2)
        self._copy(source, buffer, self.offset(line, unit, line) + rest, size)

    def _copy(self, source: GlobalElement, buffer: Pointer, offset: Expr, count: int) -> None:
        if count * self.dtype.bytes < 4:
            buffer[offset] = load_if(source.within, source.array, source.index)
            return
        offset.emit.place(
            simt.Copy(
                source.array.value,
                source.index.value,
                buffer.value,
                offset.value,
                source.within.value,
                self.dtype,
                count,
            )
        )


@dataclass(frozen=True, slots=True)
class ThreadUnits:
    """The units that a thread copies: number `unit` of a first line, and of those `apart` lines further."""

    layout: SharedLayout
    line: Expr
    unit: Expr
    apart: Sequence[int]

    def places(self) -> list[tuple[Expr, Expr]]:
        """The line and the first element in it of each unit."""
        element = self.unit * self.layout.each
        return [(self.line + further, element) for further in self.apart]

    def target(self, buffer: Pointer) -> Pointer:
        """The address of the first unit; the others are a constant further."""
        return _row(self.layout, buffer, (self.line, self.unit, self.line), 0)

    def copy(
        self, sources: Sequence[Pointer], target: Pointer, conditions: Sequence[Condition]
    ) -> None:
        """Start to copy the units from these addresses, or zeros where a condition does not hold."""
        emit, layout = target.emit, self.layout
        start = index(emit, 0).value
        for source, further, within in zip(sources, self.apart, conditions, strict=True):
            beyond = index(emit, further * layout.elements).value
            predicate = within if isinstance(within, Expr) else constant(emit, within, BOOL)
            operands = source.value, start, target.value, beyond, predicate.value
            emit.place(simt.Copy(*operands, layout.dtype, layout.each))


def load_fragment(
    layout: SharedLayout,
    buffer: Pointer,
    lane: Expr,
    base: Index,
    at: tuple[int, int],
    *,
    along_k: bool,
    of_rows: bool,
    skip: Index = 0,
) -> list[Expr]:
    """A fragment of `simt.mma`: four matrices of 8 x 16 bytes, 16 along the side and 32 bytes along k.

    It begins at `base + at[0]` along the side and `at[1]` steps of 32 bytes along k, in the tile that is
    `skip` bytes into the buffer. For lhs (`of_rows`) the matrices of the upper and lower rows come first,
    for rhs those of the halves of k.
    """
    first, step = at
    if layout.dtype is F32 and not along_k:
        return _load_f32_fragment(layout, buffer, lane, base, at, of_rows=of_rows, skip=skip)
    which, low = unravel(lane, [8] * 2)
    halves = unravel(which, [2] * 2)
    of_k, of_side = halves if of_rows else reversed(halves)
    if along_k:
        line = base + (of_side * 8 + low)
        unit, lines = of_k + 2 * step, first
    else:
        line = of_k * 8 + low
        unit, lines = base // 8 + of_side + first // 8, 16 * step
    emit, row = lane.emit, _row(layout, buffer, (line, unit, low), skip)
    beyond = index(emit, lines * layout.elements)
    load = simt.LoadMatrix(row.value, beyond.value, layout.dtype, not along_k)
    return exprs(emit, emit.all(load))


def _row(
    layout: SharedLayout, buffer: Pointer, place: tuple[Expr, Expr, Expr], skip: Index
) -> Pointer:
    """A unit of a buffer that begins `skip` bytes further. What is the same in all k-tiles is added first.

    So it is computed once before a loop, and neighbours are a constant further: multiples of eight lines
    are, since they do not change how a line's units are permuted.
    """
    start = buffer.of(layout.dtype) + layout.offset(*place)
    return start if skip == 0 else start.skip(skip)


def _load_f32_fragment(
    layout: SharedLayout,
    buffer: Pointer,
    lane: Expr,
    base: Index,
    at: tuple[int, int],
    *,
    of_rows: bool,
    skip: Index,
) -> list[Expr]:
    """`load_fragment` of f32 that lies along the side: `ldmatrix` transposes 16-bit elements only."""
    first, step = at
    group, part = unravel(lane, [4] * 2)
    elements: list[Expr] = []
    for register in range(4):
        of_k, of_side = divmod(register, 2) if of_rows else reversed(divmod(register, 2))
        side = base + group + (first + 8 * of_side)
        unit, rest = unravel(side, [layout.each] * 2)
        row = _row(layout, buffer, (part, unit, part), skip) + rest
        elements.append(row[(8 * step + 4 * of_k) * layout.elements])
    return elements


def load_if(within: Expr, array: Pointer, index: Expr) -> Expr:
    """The element at an index, 0 where it is out of bounds."""
    (element,) = either(
        within, lambda: [array[index]], lambda: [constant(array.emit, 0, array.dtype)]
    )
    return element
