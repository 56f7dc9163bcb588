"""Writing the scalar body of a kernel as code for one element or for a register of neighbours.

Loads become addresses; folds and staged rows become loops. What does not depend on the innermost index
is written outside its loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dlc.dialects import kernel, loop, scalar, vec
from dlc.dialects.scalar import element
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Op, Value
from dlc.ir.types import BOOL, INDEX, DType, VectorType
from dlc.lowering.lanes import (
    Clamped,
    Lane,
    Linear,
    Uniform,
    Varying,
    combine,
    compute,
    in_lanes,
    is_unclamped,
    register,
)
from dlc.lowering.long_sums import add_in_blocks, block_lengths, sum_nest
from dlc.lowering.loop_words import add, for_each, index, nest, times, whole_registers
from dlc.lowering.loop_words import known as known_stride
from dlc.lowering.loop_writer import KernelWriter, Writer
from dlc.runtime.abi import Status

ACCUMULATORS = 4
"""Registers that a fold adds into in turn: an addition takes about four cycles."""

WIDE = 16
"""Lanes from which half a register is used, too."""

Step = Callable[[Builder, Value, list[Value]], Sequence[Value]]
"""The body of a counted loop, from the position and the carried values."""


@dataclass(frozen=True, slots=True)
class Apart:
    """Places in each lane: `start`, and from there what a register says."""

    start: Value
    steps: Value


@dataclass(frozen=True, slots=True)
class Row:
    """A staged row: where its first element is, and the strides of its axes (None is 1)."""

    pointer: Value
    strides: tuple[Value | None, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """Where code is being written, with how many lanes, and what each value of the body is there."""

    emit: Builder
    lanes: int
    known: dict[Value, Lane | Row]

    def lane(self, value: Value) -> Lane:
        """A value that is no row."""
        found = self.known[value]
        assert not isinstance(found, Row)
        return found

    def at(self, emit: Builder, lanes: int, more: dict[Value, Lane] | None = None) -> Point:
        """The same values and some more, at another place."""
        return Point(emit, lanes, {**self.known, **(more or {})})


Room = Callable[["kernel.Stage", Point, list[Value]], Row]
"""Finds memory for a staged row."""


class Body:
    """Writes bodies whose array arguments are the given views of the writer."""

    def __init__(
        self,
        writer: KernelWriter,
        arrays: Mapping[Value, int],
        lanes: int,
        *,
        folds_in_registers: bool = False,
        branches: bool = False,
        room: Room | None = None,
    ) -> None:
        """With `branches`, registers that reach beyond an end are read apart from those that do not."""
        self.writer = writer
        self.arrays = arrays
        self.lanes = lanes
        self.folds_in_registers = folds_in_registers
        self.branches = branches
        self.room = room

    def stretch_loops(
        self,
        emit: Builder,
        lower: Value,
        upper: Value,
        element_at: Callable[[int], Step],
        together: int = 1,
    ) -> None:
        """Whole registers first, as many `together` as there are, then what is left one by one.

        Of wide registers there is half a one between: else 15 elements may be left.
        """
        widths = {self.lanes * together, self.lanes}
        if self.lanes >= WIDE:
            widths.add(self.lanes // 2)
        for width in sorted(widths, reverse=True):
            if width > 1:
                whole = whole_registers(emit, lower, upper, width)
                for_each(emit, lower, whole, width, (), element_at(width), parallel=True)
                lower = whole
        for_each(emit, lower, upper, 1, (), element_at(1), parallel=True)

    # Operations of a body.

    def run(self, block: Block, point: Point) -> Point:
        return self.ops([op for op in block if not op.terminator], point)

    def ops(self, ops: Iterable[Op], point: Point) -> Point:
        """Write operations; the point afterwards knows their results."""
        known = dict(point.known)
        here = replace(point, known=known)
        for op in ops:
            match op:
                case kernel.Load():
                    known[op.result] = self._load(op, here)
                case kernel.ExtentOf(size=size):
                    known[op.result] = Uniform(self.writer.size(size, "size", str(size)).value)
                case kernel.CheckIndex():
                    known[op.result] = self._check(op, here)
                case kernel.Fold():
                    known[op.result] = self._fold(op, here)
                case kernel.Stage():
                    known[op.result] = self._stage(op, here)
                case _:
                    operands = [here.lane(operand) for operand in op.operands]
                    known[op.result] = compute(here.emit, op, operands, here.lanes)
        return here

    def _load(self, op: kernel.Load, point: Point) -> Lane:
        base = point.known.get(op.array)
        if isinstance(base, Row):
            pointer, strides = base.pointer, base.strides
        else:
            view = self.arrays[op.array]
            rank = len(self.writer.views[view].shape)
            pointer = self.writer.pointers[view]
            strides = tuple([known_stride(self.writer.stride(view, axis)) for axis in range(rank)])
        lanes = [point.lane(value) for value in op.indices]
        return self._read(point, pointer, lanes, strides, element(op.result.type))

    def load(self, point: Point, view: int, indices: Sequence[Lane], dtype: DType) -> Lane:
        """The elements of a view at some indices."""
        return self._read(point, self.writer.pointers[view], indices, self.strides(view), dtype)

    def _read(
        self,
        point: Point,
        pointer: Value,
        indices: Sequence[Lane],
        strides: Sequence[Value | None],
        dtype: DType,
    ) -> Lane:
        if self.branches and indices and isinstance(indices[-1], Clamped) and strides[-1] is None:
            return self._read_clamped(point, pointer, indices, strides, dtype)
        address = self.address(point, indices, strides)
        match address:
            case Uniform(offset):
                return Uniform(point.emit(loop.Load(pointer, offset, dtype)))
            case Linear(offset):
                type = VectorType(dtype, point.lanes)
                return Varying(point.emit(vec.Load(pointer, offset, type)))
            case Apart(start, steps):
                type = VectorType(dtype, point.lanes)
                moved = point.emit(loop.Offset(pointer, start, dtype))
                return Varying(point.emit(vec.Gather(moved, steps, type)))
            case Clamped() | Varying():
                raise AssertionError("an address in each lane has a start")

    def _read_clamped(
        self,
        point: Point,
        pointer: Value,
        indices: Sequence[Lane],
        strides: Sequence[Value | None],
        dtype: DType,
    ) -> Lane:
        """Neighbours at once where none is clamped, else each by itself."""
        *outer, last = indices
        assert isinstance(last, Clamped)
        lanes, emit = point.lanes, point.emit
        branches: list[Block] = []
        for place in (Linear(last.base), Varying(register(emit, last, lanes))):
            branches.append(Block())
            here = point.at(Builder(branches[-1], emit.location), lanes)
            found = self._read(here, pointer, [*outer, place], strides, dtype)
            here.emit.place(loop.Yield([register(here.emit, found, lanes)]))
        inside = is_unclamped(emit, last, lanes)
        return Varying(emit(loop.If(inside, *branches)))

    def address(
        self, point: Point, indices: Sequence[Lane], strides: Sequence[Value | None]
    ) -> Lane | Apart:
        """The sum of indices times strides: one offset, consecutive ones, or one in each lane."""
        emit, lanes = point.emit, point.lanes
        offset: Value | None = None
        counting: list[Value | None] = []
        apart: Value | None = None
        for lane, stride in zip(indices, strides, strict=True):
            match lane:
                case Uniform(value):
                    offset = add(emit, offset, times(emit, value, stride))
                case Linear(base):
                    offset = add(emit, offset, times(emit, base, stride))
                    counting.append(stride)
                case Clamped() | Varying():
                    value = register(emit, lane, lanes)
                    apart = add(emit, apart, self._times(emit, value, stride, lanes))
        start = index(emit, 0) if offset is None else offset
        if apart is None and not counting:
            return Uniform(start)
        if apart is None and counting == [None]:
            return Linear(start)
        for stride in counting:
            # From lane to lane; this does not change in any loop.
            steps = emit(vec.Ramp(index(emit, 0), lanes))
            apart = add(emit, apart, self._times(emit, steps, stride, lanes))
        assert apart is not None
        return Apart(start, apart)

    def _times(self, emit: Builder, lanes_of: Value, stride: Value | None, lanes: int) -> Value:
        if stride is None:
            return lanes_of
        return emit(scalar.Multiply(lanes_of, register(emit, Uniform(stride), lanes)))

    def _check(self, op: kernel.CheckIndex, point: Point) -> Lane:
        lane = point.lane(op.index)
        assert isinstance(lane, Uniform), "kernels that check varying indices run with one lane"
        emit, value = point.emit, lane.value
        extent = self.writer.size(op.extent, "size", str(op.extent)).value
        zero = index(emit, 0)
        low = emit(scalar.Compare(value, zero, "ge"))
        inside = emit(scalar.And(low, emit(scalar.Compare(value, extent, "lt"))))
        good, bad = Block(), Block()
        Builder(good, emit.location).place(loop.Yield([]))
        failing = Builder(bad, emit.location)
        failing.place(loop.Fail(self.writer.tile.value, value, extent, int(Status.INDEX)))
        failing.place(loop.Yield([]))
        emit.place(loop.If(inside, good, bad))
        return Uniform(emit(scalar.Select(inside, value, zero)))

    # Folds and staged rows.

    def _fold(self, op: kernel.Fold, point: Point) -> Lane:
        extents = [
            self.writer.size(size, "extent", path(op), axis).value for axis, size in enumerate(op.extents)
        ]
        point, inside = self._before(op.body, point)
        dtype = element(op.result.type)
        start = point.emit(scalar.Constant(kernel.identity(op.combine, dtype), dtype))
        if self.folds_in_registers and self.lanes > 1 and extents:
            return self._fold_in_registers(op, point, inside, extents, start)
        initial = start if point.lanes == 1 else register(point.emit, Uniform(start), point.lanes)
        lengths = self._block_lengths(op, dtype)

        def innermost(emit: Builder, indices: list[Value], carried: list[Value]) -> list[Value]:
            value = self._inner_value(op, inside, point.at(emit, point.lanes), indices)
            return [combine(emit, op.combine, carried[0], in_lanes(emit, value, point.lanes))]

        (total,) = sum_nest(point.emit, extents, lengths, [initial], [initial], innermost)
        return Uniform(total) if point.lanes == 1 else Varying(total)

    def _block_lengths(
        self, op: kernel.Fold, dtype: DType, *, lanes: int = 1, registers: int = 1
    ) -> list[int | None]:
        """How the axes of a fold are added up: a GPU has many threads for a long one."""
        if not isinstance(self.writer, Writer):
            return [None] * len(op.extents)
        return block_lengths(op, dtype, lanes=lanes, registers=registers)

    def _inner_value(
        self, op: kernel.Inner, inside: list[Op], point: Point, indices: Sequence[Value | Lane]
    ) -> Lane:
        """What the body yields at these inner indices."""
        known = {
            argument: Uniform(value) if isinstance(value, Value) else value
            for argument, value in zip(op.body.arguments, indices, strict=True)
        }
        here = self.ops(inside, point.at(point.emit, point.lanes, known))
        return here.lane(op.body.terminator.operands[0])

    def _before(self, block: Block, point: Point) -> tuple[Point, list[Op]]:
        """Write what does not depend on the block's indices; the rest comes back."""
        outside, inside = split(block, block.arguments)
        return self.ops(outside, point), inside

    def _fold_in_registers(
        self,
        op: kernel.Fold,
        point: Point,
        inside: list[Op],
        extents: list[Value],
        start: Value,
    ) -> Lane:
        """Outer indices one by one; the last in registers, several of them at a time, then the tail."""
        lanes, extent, width = self.lanes, extents[-1], self.lanes * ACCUMULATORS
        dtype = element(op.result.type)
        *outside, length = self._block_lengths(op, dtype, lanes=lanes, registers=ACCUMULATORS)
        zero = index(point.emit, 0)
        whole = whole_registers(point.emit, zero, extent, lanes)
        blocks = whole_registers(point.emit, zero, extent, width)
        initial = [register(point.emit, Uniform(start), lanes)] * ACCUMULATORS

        def value_at(emit: Builder, outer: list[Value], position: Value, width: int) -> Value:
            last = Linear(position) if width > 1 else Uniform(position)
            lane = self._inner_value(op, inside, point.at(emit, width), [*outer, last])
            return in_lanes(emit, lane, width)

        def innermost(emit: Builder, outer: list[Value], carried: list[Value]) -> list[Value]:
            def block(deep: Builder, position: Value, sums: list[Value]) -> Sequence[Value]:
                steps = [add(deep, position, index(deep, k * lanes)) for k in range(ACCUMULATORS)]
                return [
                    combine(deep, op.combine, sums[k], value_at(deep, outer, step, lanes))
                    for k, step in enumerate(steps)
                    if step is not None
                ]

            def one(width: int) -> Step:
                def step(deep: Builder, position: Value, sums: list[Value]) -> Sequence[Value]:
                    value = value_at(deep, outer, position, width)
                    return [combine(deep, op.combine, sums[0], value)]

                return step

            *sums, tail = carried
            if length is None:
                sums = list(for_each(emit, zero, blocks, width, sums, block))
            else:
                sums = add_in_blocks(emit, zero, blocks, width, length, sums, initial, block)
            sums[:1] = for_each(emit, blocks, whole, lanes, sums[:1], one(lanes))
            return [*sums, *for_each(emit, whole, extent, 1, [tail], one(1))]

        starts = [*initial, start]
        *sums, tail = sum_nest(point.emit, extents[:-1], outside, starts, starts, innermost)
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [
                combine(point.emit, op.combine, one, other)
                for one, other in zip(sums[:half], sums[half:], strict=True)
            ]
        total = point.emit(vec.Reduce(sums[0], op.combine))
        return Uniform(combine(point.emit, op.combine, total, tail))

    def _stage(self, op: kernel.Stage, point: Point) -> Row:
        extents = [
            self.writer.size(size, "extent", path(op), axis).value for axis, size in enumerate(op.extents)
        ]
        assert self.room is not None
        row = self.room(op, point, extents)
        point, inside = self._before(op.body, point)

        def write(emit: Builder, outer: list[Value], _: list[Value]) -> list[Value]:
            def element_at(lanes: int) -> Step:
                def one(deep: Builder, position: Value, _: list[Value]) -> Sequence[Value]:
                    last = Linear(position) if lanes > 1 else Uniform(position)
                    here = point.at(deep, lanes)
                    lane = self._inner_value(op, inside, here, [*outer, last])
                    places: list[Lane] = [*[Uniform(value) for value in outer], last]
                    self.store(here, lane, row.pointer, places, row.strides)
                    return ()

                return one

            self.stretch_loops(emit, index(emit, 0), extents[-1], element_at)
            return []

        nest(point.emit, extents[:-1], [], write)
        return row

    # Memory.

    def strides(self, view: int) -> list[Value | None]:
        return [
            known_stride(self.writer.stride(view, axis)) for axis in range(len(self.writer.views[view].shape))
        ]

    def store(
        self,
        point: Point,
        lane: Lane,
        pointer: Value,
        indices: Sequence[Lane],
        strides: Sequence[Value | None],
    ) -> None:
        emit = point.emit
        address = self.address(point, indices, strides)
        match address, lane:
            case Uniform(offset), Uniform(value):
                emit.place(loop.Store(value, pointer, offset))
            case Linear(offset), _:
                emit.place(vec.Store(register(emit, lane, point.lanes), pointer, offset))
            case Apart(start, steps), _:
                value = register(emit, lane, point.lanes)
                moved = emit(loop.Offset(pointer, start, element(value.type)))
                emit.place(vec.Scatter(value, moved, steps))
            case _:
                raise AssertionError("many values for one place")


def split(block: Block, indices: Sequence[Value]) -> tuple[list[Op], list[Op]]:
    """The operations of a block that do not depend on these indices, and those that do."""
    varying = set(indices)
    outside: list[Op] = []
    inside: list[Op] = []
    for op in block:
        if op.terminator:
            continue
        if any(value in varying for inner in op.walk() for value in inner.operands):
            varying.update(op.results)
            inside.append(op)
        else:
            outside.append(op)
    return outside, inside


def path(op: Op) -> str:
    """A number for a fold or stage within its kernel, the same for equal kernels."""
    generic = kernel.enclosing(op)
    inner = [other for other in generic.walk() if isinstance(other, kernel.Inner)]
    return str(next(k for k, other in enumerate(inner) if other is op))


def lanes_of(block: Block, vector_bytes: int) -> int:
    """Elements in a register: as many of the widest number in the body as fit."""
    widest = 1
    holder = block.parent
    assert holder is not None
    for op in holder.walk():
        for result in op.results:
            type = result.type
            if isinstance(type, DType) and type not in (BOOL, INDEX):
                widest = max(widest, type.bytes)
    return max(1, min(vector_bytes // widest, 16))
