"""Code of a kernel's scalar body, for one element or for a register of neighbouring ones.

Loads become addresses; reductions and staged rows become loops. Operations that do not depend on the
innermost index are placed outside its loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dlc.dialects import kernel, scalar, vec
from dlc.dialects.expr import (
    Expr,
    Index,
    Pointer,
    broadcast,
    combine,
    constant,
    index,
    ramp,
    reduce_lanes,
)
from dlc.dialects.scalar import element
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import product
from dlc.ir.types import BOOL, INDEX, DType, VectorType
from dlc.lowering.kernel_code.blocked_sums import add_in_blocks, block_lengths, sum_nest
from dlc.lowering.kernel_code.distances import Distances
from dlc.lowering.kernel_code.lanes import (
    Clamped,
    Lane,
    Linear,
    Uniform,
    Varying,
    compute,
    in_lanes,
    is_unclamped,
    neighbours,
    register,
    varying,
)
from dlc.lowering.kernel_code.words import either, for_each, iterate, nest, whole_registers
from dlc.lowering.kernel_code.writer import KernelWriter, Writer
from dlc.target.work import CHEAP

ACCUMULATORS = 4
"""Independent sums of a reduction in registers, which hide the latency of an addition, about 4 cycles."""

WIDE = 16
"""Lanes from which a remainder uses half a register, too."""


@dataclass(frozen=True, slots=True)
class LaneOffsets:
    """Offsets of a gather or scatter: `start`, plus a register with one offset for each lane."""

    start: Expr
    steps: Expr


@dataclass(frozen=True, slots=True)
class Row:
    """A staged row: the address of its first element, and the strides of its axes."""

    pointer: Pointer
    strides: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """The number of lanes of the code that is being written, and the body's values there."""

    lanes: int
    known: dict[Value, Lane | Row]

    def lane(self, value: Value) -> Lane:
        """A value of the body, which is not a row."""
        lane = self.known[value]
        assert not isinstance(lane, Row)
        return lane

    def at(self, lanes: int, more: Mapping[Value, Lane] | None = None) -> Point:
        """The same values and `more`, with another number of lanes."""
        return Point(lanes, {**self.known, **(more or {})})


AllocateRow = Callable[["kernel.Stage", Point, list[Expr]], Row]
"""Allocates memory for a staged row."""


class Body:
    """Writes bodies; `arrays` are the views of the writer that their array arguments stand for."""

    def __init__(
        self,
        writer: KernelWriter,
        arrays: Mapping[Value, int],
        lanes: int,
        *,
        reduces_in_registers: bool = False,
        branches: bool = False,
        allocate_row: AllocateRow | None = None,
    ) -> None:
        """With `branches`, registers that reach out of bounds are read lane by lane, all others at once."""
        self.writer = writer
        self.emit = writer.emit
        self.arrays = arrays
        self.lanes = lanes
        self.reduces_in_registers = reduces_in_registers
        self.branches = branches
        self.allocate_row = allocate_row
        self._distances = Distances()

    def register_loops(
        self, lower: Index, upper: Expr, together: int = 1
    ) -> Generator[tuple[int, Expr]]:
        """Loops over a range in registers: yields the elements of a step, and the first of them.

        Code emitted for each is the body of that loop. `together` registers at a time, a power of two,
        come first, then half as many down to a single one, for wide registers half of one, then single
        elements.
        """
        narrowest = self.lanes // 2 if self.lanes >= WIDE else self.lanes
        widths = {1}
        width = self.lanes * together
        while self.lanes > 1 and width >= narrowest:
            widths.add(width)
            width //= 2
        lower = index(self.emit, lower)
        for width in sorted(widths - {1}, reverse=True):
            whole = whole_registers(lower, upper, width)
            with for_each(self.emit, lower, whole, width, parallel=True) as position:
                yield width, position
            lower = whole
        with for_each(self.emit, lower, upper, parallel=True) as position:
            yield 1, position

    # Operations of a body.

    def run(self, block: Block, point: Point) -> Point:
        return self.ops([op for op in block if not op.terminator], point)

    def ops(self, ops: Iterable[Op], point: Point) -> Point:
        """Write operations; returns the point with their results."""
        known = dict(point.known)
        inner_point = replace(point, known=known)
        for op in ops:
            match op:
                case kernel.Load():
                    known[op.result] = self._load(op, inner_point)
                case kernel.ExtentOf(size=size):
                    known[op.result] = Uniform(self.writer.size(size, "size", str(size)))
                case scalar.Constant():
                    known[op.result] = self._constant(op, inner_point.lanes)
                case kernel.CheckIndex():
                    known[op.result] = self._check(op, inner_point)
                case kernel.Reduce():
                    known[op.result] = self._reduce(op, inner_point)
                case kernel.Stage():
                    known[op.result] = self._stage(op, inner_point)
                case _:
                    operands = [inner_point.lane(operand) for operand in op.operands]
                    known[op.result] = compute(self.emit, op, operands, inner_point.lanes)
        return inner_point

    def _constant(self, op: scalar.Constant, lanes: int) -> Lane:
        number = self._distances.number(op) if isinstance(self.writer, Writer) else None
        if number is None:
            return compute(self.emit, op, [], lanes)
        assert isinstance(op.value, int)
        amount = self.writer.size(abs(op.value), "distance", number)
        return Uniform(amount if op.value > 0 else 0 - amount)

    def _load(self, op: kernel.Load, point: Point) -> Lane:
        base = point.known.get(op.array)
        lanes = [point.lane(value) for value in op.indices]
        if isinstance(base, Row):
            return self._read(point, base.pointer, lanes, base.strides)
        return self.load(point, self.arrays[op.array], lanes)

    def load(self, point: Point, view: int, indices: Sequence[Lane]) -> Lane:
        """The elements of a view at the indices of each lane."""
        return self._read(point, self.writer.pointer(view), indices, self.strides(view))

    def _read(
        self, point: Point, pointer: Pointer, indices: Sequence[Lane], strides: Sequence[Index]
    ) -> Lane:
        clamps = self.branches and indices and isinstance(indices[-1], Clamped)
        if clamps and isinstance(strides[-1], int):
            return self._read_clamped(point, pointer, indices, strides)
        match self.address(point, indices, strides):
            case Uniform(offset):
                return Uniform(pointer[offset])
            case Linear(offset):
                return Varying(pointer.load(offset, point.lanes))
            case LaneOffsets(start, steps):
                type = VectorType(pointer.dtype, point.lanes)
                base = pointer + start
                return Varying(steps.apply(vec.Gather(base.value, steps.value, type)))
            case Clamped() | Varying():
                raise AssertionError("an address in each lane has a start")

    def _read_clamped(
        self, point: Point, pointer: Pointer, indices: Sequence[Lane], strides: Sequence[Index]
    ) -> Lane:
        """One vector load where no lane is clamped, else a gather."""
        *outer, last = indices
        assert isinstance(last, Clamped)
        lanes = point.lanes
        scattered = Varying(register(last, lanes))

        def read(inner: Lane) -> list[Expr]:
            return [register(self._read(point, pointer, [*outer, inner], strides), lanes)]

        inside = is_unclamped(last, lanes)
        (value,) = either(inside, lambda: read(Linear(last.base)), lambda: read(scattered))
        return Varying(value)

    def address(
        self, point: Point, indices: Sequence[Lane], strides: Sequence[Index]
    ) -> Lane | LaneOffsets:
        """The sum of indices times strides: one offset, consecutive ones, or one in each lane."""
        lanes = point.lanes
        offset: Index = 0
        lane_offsets: Index = 0
        counting: list[Index] = []
        for lane, stride in zip(indices, strides, strict=True):
            match lane:
                case Uniform(value):
                    offset = offset + value * stride
                case Linear(base):
                    offset = offset + base * stride
                    counting.append(stride)
                case Clamped() | Varying():
                    lane_offsets = lane_offsets + _scaled(register(lane, lanes), stride, lanes)
        start = index(self.emit, offset)
        if isinstance(lane_offsets, int) and not counting:
            return Uniform(start)
        if isinstance(lane_offsets, int) and counting == [1]:
            return Linear(start)
        for stride in counting:
            # The step from lane to lane, which no loop changes.
            lane_offsets = lane_offsets + _scaled(ramp(index(self.emit, 0), lanes), stride, lanes)
        assert isinstance(lane_offsets, Expr)
        return LaneOffsets(start, lane_offsets)

    def _check(self, op: kernel.CheckIndex, point: Point) -> Lane:
        lane = point.lane(op.index)
        assert isinstance(lane, Uniform), "kernels that check varying indices run with one lane"
        extent = self.writer.size(op.extent, "size", str(op.extent))
        part = None if op.part == 1 else self.writer.size(op.part, "size", str(op.part))
        return Uniform(self.writer.checked_index(lane.value, extent, part))

    # Folds and staged rows.

    def _reduce(self, op: kernel.Reduce, point: Point) -> Lane:
        extents = self._extents(op)
        point, inside = self._before(op.body, point)
        dtype = element(op.result.type)
        start = constant(self.emit, kernel.identity(op.combine, dtype), dtype)
        if self.reduces_in_registers and self.lanes > 1 and extents:
            return self._fold_in_registers(op, point, inside, extents, start)
        initial = broadcast(start, point.lanes)

        def innermost(indices: list[Expr], sums: list[Expr]) -> list[Expr]:
            value = self._inner_value(op, inside, point, [Uniform(place) for place in indices])
            return [combine(op.combine, sums[0], in_lanes(value, point.lanes))]

        if is_small_window(op):
            # Unrolled, what a row or column of the window has in common is computed once.
            sums = [initial]
            lengths = [size for size in op.extents if isinstance(size, int)]
            for taps in itertools.product(*map(range, lengths)):
                sums = innermost([index(self.emit, tap) for tap in taps], sums)
            return varying(sums[0], point.lanes)
        lengths = self._block_lengths(op, dtype)
        (total,) = sum_nest(self.emit, extents, lengths, [initial], [initial], innermost)
        return varying(total, point.lanes)

    def _extents(self, op: kernel.Inner) -> list[Expr]:
        return [
            self.writer.size(size, "extent", path(op), axis) for axis, size in enumerate(op.extents)
        ]

    def _block_lengths(
        self, op: kernel.Reduce, dtype: DType, *, lanes: int = 1, registers: int = 1
    ) -> list[Expr | None]:
        """The block lengths of a sum by axis; none on a GPU, where many threads share a long sum."""
        if not isinstance(self.writer, Writer):
            return [None] * len(op.extents)
        lengths = block_lengths(op, dtype, lanes=lanes, registers=registers)
        role = "block", path(op), lanes
        return [
            None if length is None else self.writer.size(length, *role, axis)
            for axis, length in enumerate(lengths)
        ]

    def _inner_value(
        self, op: kernel.Inner, inside: list[Op], point: Point, indices: Sequence[Lane]
    ) -> Lane:
        """The value that the body yields at these inner indices."""
        arguments = dict(zip(op.body.arguments, indices, strict=True))
        return self.ops(inside, point.at(point.lanes, arguments)).lane(
            op.body.terminator.operands[0]
        )

    def _before(self, block: Block, point: Point) -> tuple[Point, list[Op]]:
        """Write the operations that do not depend on the block's indices; returns the others."""
        outside, inside = split(block, block.arguments)
        return self.ops(outside, point), inside

    def _fold_in_registers(
        self, op: kernel.Reduce, point: Point, inside: list[Op], extents: list[Expr], start: Expr
    ) -> Lane:
        """Outer indices one by one; the last by several registers, by single ones, then by elements."""
        emit, name, lanes = self.emit, op.combine, self.lanes
        *outer_extents, extent = extents
        several_lanes = lanes * ACCUMULATORS
        *outer_lengths, length = self._block_lengths(
            op, element(op.result.type), lanes=lanes, registers=ACCUMULATORS
        )
        zero = index(emit, 0)
        whole = whole_registers(zero, extent, lanes)
        blocks = whole_registers(zero, extent, several_lanes)
        initial = [broadcast(start, lanes)] * ACCUMULATORS

        def innermost(outer: list[Expr], carried: list[Expr]) -> list[Expr]:
            def value(position: Expr, lanes: int) -> Expr:
                indices = [*map(Uniform, outer), neighbours(position, lanes)]
                return in_lanes(self._inner_value(op, inside, point.at(lanes), indices), lanes)

            def several(position: Expr, sums: list[Expr]) -> list[Expr]:
                positions = [position + k * lanes for k in range(ACCUMULATORS)]
                pairs = zip(sums, positions, strict=True)
                return [combine(name, sum, value(start, lanes)) for sum, start in pairs]

            def one(position: Expr, sums: list[Expr]) -> list[Expr]:
                return [combine(name, sums[0], value(position, lanes))]

            def single(position: Expr, sums: list[Expr]) -> list[Expr]:
                return [combine(name, sums[0], value(position, 1))]

            *sums, tail = carried
            if length is None:
                sums = iterate(emit, zero, blocks, sums, several, several_lanes)
            else:
                sums = add_in_blocks(
                    emit, zero, blocks, several_lanes, length, sums, initial, several
                )
            sums[:1] = iterate(emit, blocks, whole, sums[:1], one, lanes)
            return [*sums, *iterate(emit, whole, extent, [tail], single)]

        starts = [*initial, start]
        *sums, tail = sum_nest(emit, outer_extents, outer_lengths, starts, starts, innermost)
        return Uniform(combine(name, reduce_lanes(name, combine_all(name, sums)), tail))

    def _stage(self, op: kernel.Stage, point: Point) -> Row:
        extents = self._extents(op)
        assert self.allocate_row is not None
        row = self.allocate_row(op, point, extents)
        point, inside = self._before(op.body, point)

        def write(outer: list[Expr], _: list[Expr]) -> list[Expr]:
            together = registers_for(inside)
            for lanes, position in self.register_loops(0, extents[-1], together):
                indices: list[Lane] = [*map(Uniform, outer), neighbours(position, lanes)]
                inner_point = point.at(lanes)
                lane = self._inner_value(op, inside, inner_point, indices)
                self.store(inner_point, lane, row.pointer, indices, row.strides)
            return []

        nest(self.emit, extents[:-1], [], write)
        return row

    # Memory.

    def strides(self, view: int) -> list[Index]:
        rank = len(self.writer.views[view].shape)
        return [self.writer.stride(view, axis) for axis in range(rank)]

    def store_in(self, point: Point, lane: Lane, view: int, indices: Sequence[Lane]) -> None:
        """Write the elements of a view at the indices of each lane."""
        self.store(point, lane, self.writer.pointer(view), indices, self.strides(view))

    def store(
        self,
        point: Point,
        lane: Lane,
        pointer: Pointer,
        indices: Sequence[Lane],
        strides: Sequence[Index],
    ) -> None:
        match self.address(point, indices, strides), lane:
            case Uniform(offset), Uniform(value):
                pointer[offset] = value
            case Linear(offset), _:
                pointer.store(offset, register(lane, point.lanes))
            case LaneOffsets(start, steps), _:
                value = register(lane, point.lanes)
                base = pointer.of(value.dtype) + start
                self.emit.place(vec.Scatter(value.value, base.value, steps.value))
            case _:
                raise AssertionError("several values for one address")


SMALL_WINDOW = 9
"""Elements of the largest window whose reduction is unrolled."""


def is_small_window(op: kernel.Reduce) -> bool:
    """Whether a reduction is over several short axes, as that of a pooling is, and holds no other."""
    elements = product(op.extents)
    return (
        len(op.extents) > 1
        and isinstance(elements, int)
        and 0 < elements <= SMALL_WINDOW
        and not any(isinstance(inner, kernel.Inner) for inner in op.body)
    )


def registers_for(ops: Iterable[Op]) -> int:
    """The registers of elements that a loop over these operations computes together.

    A function of floats has more constants than there are registers: two of elements share each load.
    """
    functions = (op for op in ops if isinstance(op, scalar.Unary) and op.name not in CHEAP)
    return 2 if any(element(op.result.type).is_float for op in functions) else 1


def _scaled(steps: Expr, stride: Index, lanes: int) -> Expr:
    return steps if isinstance(stride, int) else steps * broadcast(stride, lanes)


def combine_all(name: str, values: Sequence[Expr]) -> Expr:
    """Partial results, a power of two of them, combined in a fixed tree."""
    while len(values) > 1:
        half = len(values) // 2
        pairs = zip(values[:half], values[half:], strict=True)
        values = [combine(name, *pair) for pair in pairs]
    return values[0]


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
    """The number of a reduction or stage in its kernel, the same for equal kernels."""
    generic = kernel.enclosing(op)
    inner = [other for other in generic.walk() if isinstance(other, kernel.Inner)]
    return str(next(k for k, other in enumerate(inner) if other is op))


def lanes_of(block: Block, vector_bytes: int) -> int:
    """The lanes of a register, by the widest dtype in the body; 16 at most."""
    widest = 1
    holder = block.parent
    assert holder is not None
    for op in holder.walk():
        for result in op.results:
            type = result.type
            if isinstance(type, DType) and type not in (BOOL, INDEX):
                widest = max(widest, type.bytes)
    return max(1, min(vector_bytes // widest, 16))
