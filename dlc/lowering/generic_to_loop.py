"""`kernel.generic` as loops over registers.

Two ways to use registers: over the last axis of the domain (neighbouring elements in one register), or,
for kernels that fold along contiguous memory, over the last inner index of the folds. What does not
depend on the innermost index is computed once outside. Tails are the same code with one lane, so an
element has the same bits wherever it falls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from dlc.dialects import kernel, loop, scalar, vec
from dlc.dialects.scalar import element
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import Size, product
from dlc.ir.types import BOOL, INDEX, DType, TensorType, VectorType
from dlc.lowering.hoist import tidy
from dlc.lowering.lanes import Lane, Linear, Uniform, Varying, combine, compute, register
from dlc.lowering.loop_writer import Lowered, Writer, add, for_each, index, minimum, times
from dlc.lowering.work import ceil_divide, element_work, nanoseconds, tile_rows
from dlc.runtime.abi import Status

ACCUMULATORS = 4
"""Registers that a fold adds into in turn: an addition takes about four cycles."""


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


def lower_generic(op: kernel.Generic, vector_bytes: int) -> Lowered:
    """The function for one kernel in destination form."""
    return _Generic(op, vector_bytes).lower()


class _Generic:
    def __init__(self, op: kernel.Generic, vector_bytes: int) -> None:
        self.op = op
        self.writer = Writer(op)
        self.lanes = lanes_of(op.body, vector_bytes)
        self.folds_in_registers = _has_stage(op.body) or _folds_along_memory(op)
        if _checks_depend_on(op, op.indices[-1:]) and not self.folds_in_registers:
            self.lanes = 1
        self.scratch: Size = 0
        self._scratch: Value | None = None

    def lower(self) -> Lowered:
        op = self.op
        if op.domain and not self.folds_in_registers:
            *outer, inner = op.domain
            write = self._elements
        else:
            outer, inner = list(op.domain), 1
            write = self._one_element
        tiles, cost = self._tiles(outer, inner, write)
        scratch = () if self._scratch is None else (self._scratch,)
        lowered = self.writer.finish(tiles, cost, self.scratch, scratch)
        tidy(lowered.function)
        return lowered

    def _tiles(
        self,
        outer: Sequence[Size],
        inner: Size,
        write: Callable[[Point, list[Value], Value, Value], None],
    ) -> tuple[Size, Size]:
        """The loop over the rows of a tile; with a single row, tiles are stretches of it instead."""
        writer, emit = self.writer, self.writer.emit
        work = element_work(self.op.body, self.lanes)
        zero = index(emit, 0)
        if not outer:
            chunk = self._stretch(work)
            extent = writer.size(inner, "extent", 0)
            length = writer.size(chunk, "stretch")
            lower = emit(scalar.Multiply(writer.first, length))
            upper = minimum(emit, emit(scalar.Multiply(writer.last, length)), extent)
            write(self._start(emit), [], lower, upper)
            return ceil_divide(inner, chunk), nanoseconds(chunk * work)
        rows, per_tile = product(outer), tile_rows(inner * work)
        count = writer.size(per_tile, "rows_per_tile")
        lower = emit(scalar.Multiply(writer.first, count))
        end = emit(scalar.Multiply(writer.last, count))
        upper = minimum(emit, end, writer.size(rows, "rows"))
        extents = [writer.size(size, "extent", axis) for axis, size in enumerate(outer)]
        stop = writer.size(inner, "extent", len(outer)) if inner != 1 else index(emit, 1)

        def row(inside: Builder, number: Value, _: list[Value]) -> Sequence[Value]:
            write(self._start(inside), unravel(inside, number, extents), zero, stop)
            return ()

        for_each(emit, lower, upper, 1, (), row, parallel=True)
        return ceil_divide(rows, per_tile), nanoseconds(per_tile * inner * work)

    def _stretch(self, work: Size) -> Size:
        """Elements of a tile along the only axis: a multiple of the lanes, so tails come last."""
        block = max(self.lanes, 64)
        return ceil_divide(tile_rows(work * block), 1) * block

    def _start(self, emit: Builder) -> Point:
        return Point(emit, 1, {})

    # One stretch of elements, or one element.

    def _one_element(self, point: Point, indices: list[Value], lower: Value, upper: Value) -> None:
        known: dict[Value, Lane] = {
            argument: Uniform(value)
            for argument, value in zip(self.op.indices, indices, strict=True)
        }
        here = point.at(point.emit, 1, known)
        self._store_results(self._run(self.op.body, here), indices)

    def _elements(self, point: Point, indices: list[Value], lower: Value, upper: Value) -> None:
        """Elements `lower` to `upper` along the last axis of the domain."""
        body, last = self.op.body, self.op.indices[-1]
        known: dict[Value, Lane] = {
            argument: Uniform(value)
            for argument, value in zip(self.op.indices[:-1], indices, strict=True)
        }
        outside, inside = _split(body, [last])
        point = self._ops(outside, point.at(point.emit, 1, known))

        def element_at(lanes: int) -> Callable[[Builder, Value, list[Value]], Sequence[Value]]:
            def write(emit: Builder, position: Value, _: list[Value]) -> Sequence[Value]:
                lane = Uniform(position) if lanes == 1 else Linear(position)
                here = self._ops(inside, point.at(emit, lanes, {last: lane}))
                self._store_results(here, [*indices, position])
                return ()

            return write

        self._stretch_loops(point.emit, lower, upper, element_at)

    def _stretch_loops(
        self,
        emit: Builder,
        lower: Value,
        upper: Value,
        element_at: Callable[[int], Callable[[Builder, Value, list[Value]], Sequence[Value]]],
    ) -> None:
        """Whole registers first, then what is left one by one."""
        if self.lanes > 1:
            whole = whole_registers(emit, lower, upper, self.lanes)
            for_each(emit, lower, whole, self.lanes, (), element_at(self.lanes), parallel=True)
            lower = whole
        for_each(emit, lower, upper, 1, (), element_at(1), parallel=True)

    # Operations of a body.

    def _run(self, block: Block, point: Point) -> Point:
        return self._ops([op for op in block if not op.terminator], point)

    def _ops(self, ops: Iterable[Op], point: Point) -> Point:
        """Write operations; the point afterwards knows their results."""
        known = dict(point.known)
        here = replace(point, known=known)
        for op in ops:
            match op:
                case kernel.Load():
                    known[op.result] = self._load(op, here)
                case kernel.ExtentOf(size=size):
                    known[op.result] = Uniform(self.writer.size(size, "size", str(size)))
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
            view = self.op.arrays.index(op.array)
            rank = len(self.writer.views[view].shape)
            pointer = self.writer.pointers[view]
            strides = tuple([self.writer.stride(view, axis) for axis in range(rank)])
        lanes = [point.lane(value) for value in op.indices]
        dtype = op.result.type
        assert isinstance(dtype, DType)
        address = self._address(point, lanes, strides)
        match address:
            case Uniform(offset):
                return Uniform(point.emit(loop.Load(pointer, offset, dtype)))
            case Linear(offset):
                type = VectorType(dtype, point.lanes)
                return Varying(point.emit(vec.Load(pointer, offset, type)))
            case Varying(offsets):
                type = VectorType(dtype, point.lanes)
                return Varying(point.emit(vec.Gather(pointer, offsets, type)))

    def _address(
        self, point: Point, indices: Sequence[Lane], strides: Sequence[Value | None]
    ) -> Lane:
        """The sum of indices times strides: one offset, consecutive ones, or one in each lane."""
        emit = point.emit
        offset: Value | None = None
        spread: list[tuple[Lane, Value | None]] = []
        for lane, stride in zip(indices, strides, strict=True):
            match lane:
                case Uniform(value):
                    offset = add(emit, offset, times(emit, value, stride))
                case _:
                    spread.append((lane, stride))
        start = index(emit, 0) if offset is None else offset
        match spread:
            case []:
                return Uniform(start)
            case [(Linear(base), None)]:
                return Linear(base if offset is None else emit(scalar.Add(offset, base)))
            case _:
                total = register(emit, Uniform(start), point.lanes)
                for lane, stride in spread:
                    part = register(emit, lane, point.lanes)
                    if stride is not None:
                        by = register(emit, Uniform(stride), point.lanes)
                        part = emit(scalar.Multiply(part, by))
                    total = emit(scalar.Add(total, part))
                return Varying(total)

    def _check(self, op: kernel.CheckIndex, point: Point) -> Lane:
        lane = point.lane(op.index)
        assert isinstance(lane, Uniform), "kernels that check varying indices run with one lane"
        emit, value = point.emit, lane.value
        extent = self.writer.size(op.extent, "size", str(op.extent))
        zero = index(emit, 0)
        low = emit(scalar.Compare(value, zero, "ge"))
        inside = emit(scalar.And(low, emit(scalar.Compare(value, extent, "lt"))))
        good, bad = Block(), Block()
        Builder(good, emit.location).place(loop.Yield([]))
        failing = Builder(bad, emit.location)
        failing.place(loop.Fail(self.writer.first, value, extent, int(Status.INDEX)))
        failing.place(loop.Yield([]))
        emit.place(loop.If(inside, good, bad))
        return Uniform(emit(scalar.Select(inside, value, zero)))

    # Folds and staged rows.

    def _fold(self, op: kernel.Fold, point: Point) -> Lane:
        extents = [
            self.writer.size(size, "extent", _path(op), axis)
            for axis, size in enumerate(op.extents)
        ]
        point, inside = self._before(op.body, point)
        dtype = element(op.result.type)
        start = point.emit(scalar.Constant(kernel.identity(op.combine, dtype), dtype))
        if self.folds_in_registers and self.lanes > 1 and extents:
            return self._fold_in_registers(op, point, inside, extents, start)
        initial = start if point.lanes == 1 else register(point.emit, Uniform(start), point.lanes)

        def innermost(emit: Builder, indices: list[Value], carried: list[Value]) -> list[Value]:
            value = self._inner_value(op, inside, point.at(emit, point.lanes), indices)
            taken = value.value if point.lanes == 1 else register(emit, value, point.lanes)  # pyright: ignore[reportAttributeAccessIssue]
            return [combine(emit, op.combine, carried[0], taken)]

        (total,) = nest(point.emit, extents, [initial], innermost)
        return Uniform(total) if point.lanes == 1 else Varying(total)

    def _inner_value(
        self, op: kernel.Inner, inside: list[Op], point: Point, indices: Sequence[Value | Lane]
    ) -> Lane:
        """What the body yields at these inner indices."""
        known = {
            argument: Uniform(value) if isinstance(value, Value) else value
            for argument, value in zip(op.body.arguments, indices, strict=True)
        }
        here = self._ops(inside, point.at(point.emit, point.lanes, known))
        return here.lane(op.body.terminator.operands[0])

    def _before(self, block: Block, point: Point) -> tuple[Point, list[Op]]:
        """Write what does not depend on the block's indices; the rest comes back."""
        outside, inside = _split(block, block.arguments)
        return self._ops(outside, point), inside

    def _fold_in_registers(
        self,
        op: kernel.Fold,
        point: Point,
        inside: list[Op],
        extents: list[Value],
        start: Value,
    ) -> Lane:
        """Outer indices one by one; the last in registers, several of them at a time, then the tail."""
        lanes, extent = self.lanes, extents[-1]
        zero = index(point.emit, 0)
        whole = whole_registers(point.emit, zero, extent, lanes)
        blocks = whole_registers(point.emit, zero, extent, lanes * ACCUMULATORS)
        initial = [register(point.emit, Uniform(start), lanes)] * ACCUMULATORS

        def value_at(emit: Builder, outer: list[Value], position: Value, width: int) -> Value:
            last = Linear(position) if width > 1 else Uniform(position)
            lane = self._inner_value(op, inside, point.at(emit, width), [*outer, last])
            if width > 1:
                return register(emit, lane, width)
            assert isinstance(lane, Uniform)
            return lane.value

        def innermost(emit: Builder, outer: list[Value], carried: list[Value]) -> list[Value]:
            def block(deep: Builder, position: Value, sums: list[Value]) -> Sequence[Value]:
                steps = [add(deep, position, index(deep, k * lanes)) for k in range(ACCUMULATORS)]
                return [
                    combine(deep, op.combine, sums[k], value_at(deep, outer, step, lanes))
                    for k, step in enumerate(steps)
                    if step is not None
                ]

            def one(width: int) -> Callable[[Builder, Value, list[Value]], Sequence[Value]]:
                def step(deep: Builder, position: Value, sums: list[Value]) -> Sequence[Value]:
                    value = value_at(deep, outer, position, width)
                    return [combine(deep, op.combine, sums[0], value)]

                return step

            *sums, tail = carried
            sums = list(for_each(emit, zero, blocks, lanes * ACCUMULATORS, sums, block))
            sums[:1] = for_each(emit, blocks, whole, lanes, sums[:1], one(lanes))
            return [*sums, *for_each(emit, whole, extent, 1, [tail], one(1))]

        *sums, tail = nest(point.emit, extents[:-1], [*initial, start], innermost)
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
            self.writer.size(size, "extent", _path(op), axis)
            for axis, size in enumerate(op.extents)
        ]
        row = self._room(op, point, extents)
        point, inside = self._before(op.body, point)

        def write(emit: Builder, outer: list[Value], _: list[Value]) -> list[Value]:
            def element_at(lanes: int) -> Callable[[Builder, Value, list[Value]], Sequence[Value]]:
                def one(deep: Builder, position: Value, _: list[Value]) -> Sequence[Value]:
                    last = Linear(position) if lanes > 1 else Uniform(position)
                    here = point.at(deep, lanes)
                    lane = self._inner_value(op, inside, here, [*outer, last])
                    places: list[Lane] = [*[Uniform(value) for value in outer], last]
                    self._store(here, lane, row.pointer, places, row.strides)
                    return ()

                return one

            self._stretch_loops(emit, index(emit, 0), extents[-1], element_at)
            return []

        nest(point.emit, extents[:-1], [], write)
        return row

    def _room(self, op: kernel.Stage, point: Point, extents: list[Value]) -> Row:
        """Where a staged row goes: into the result that it is, else into the thread's scratch."""
        emit = point.emit
        strides: list[Value | None] = [None] * len(extents)
        for axis in range(len(extents) - 2, -1, -1):
            strides[axis] = times(emit, extents[axis + 1], strides[axis + 1])
        yielded = self.op.body.terminator.operands
        if op.result in yielded:
            view = len(self.op.inputs) + yielded.index(op.result)
            indices = [point.lane(value) for value in self.op.indices]
            address = self._address(point, indices, self._strides(view)[: len(indices)])
            assert isinstance(address, Uniform)
            pointer = self.writer.pointers[view]
            moved = emit(loop.Offset(pointer, address.value, element_of(op)))
            return Row(moved, tuple(strides))
        if self._scratch is None:
            self._scratch = self.writer.block.add_argument(self.writer.pointers[0].type, "scratch")
        offset = self.writer.size(self.scratch, "scratch", _path(op))
        self.scratch = (
            self.scratch + ceil_divide(product(op.extents) * element_of(op).bytes, 64) * 64
        )
        start = emit(loop.Offset(self._scratch, offset, BYTE))
        return Row(start, tuple(strides))

    # Results.

    def _strides(self, view: int) -> list[Value | None]:
        return [
            self.writer.stride(view, axis) for axis in range(len(self.writer.views[view].shape))
        ]

    def _store_results(self, point: Point, indices: Sequence[Value]) -> None:
        for number, value in enumerate(self.op.body.terminator.operands):
            if isinstance(value.type, TensorType):
                continue  # a staged row: it was written where it belongs
            view = len(self.op.inputs) + number
            places: list[Lane] = [Uniform(position) for position in indices]
            if point.lanes > 1:
                places[-1] = Linear(indices[-1])
            pointer = self.writer.pointers[view]
            self._store(point, point.lane(value), pointer, places, self._strides(view))

    def _store(
        self,
        point: Point,
        lane: Lane,
        pointer: Value,
        indices: Sequence[Lane],
        strides: Sequence[Value | None],
    ) -> None:
        emit = point.emit
        address = self._address(point, indices, strides)
        match address, lane:
            case Uniform(offset), Uniform(value):
                emit.place(loop.Store(value, pointer, offset))
            case Linear(offset), _:
                emit.place(vec.Store(register(emit, lane, point.lanes), pointer, offset))
            case Varying(offsets), _:
                emit.place(vec.Scatter(register(emit, lane, point.lanes), pointer, offsets))
            case _:
                raise AssertionError("many values for one place")


def element_of(op: kernel.Stage) -> DType:
    """The dtype of a staged row."""
    type = op.result.type
    assert isinstance(type, TensorType)
    return type.dtype


def unravel(emit: Builder, number: Value, extents: Sequence[Value]) -> list[Value]:
    """The index along each axis of a row number."""
    indices: list[Value] = []
    for extent in reversed(extents[1:]):
        quotient = emit(scalar.Divide(number, extent))
        indices.append(emit(scalar.Subtract(number, emit(scalar.Multiply(quotient, extent)))))
        number = quotient
    return [number, *reversed(indices)]


def whole_registers(emit: Builder, lower: Value, upper: Value, lanes: int) -> Value:
    """The end of the last whole register between two bounds; `upper - lower` may be negative."""
    width = index(emit, lanes)
    length = emit(scalar.Maximum(emit(scalar.Subtract(upper, lower)), index(emit, 0)))
    count = emit(scalar.Divide(length, width))
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


def _split(block: Block, indices: Sequence[Value]) -> tuple[list[Op], list[Op]]:
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


def _path(op: Op) -> str:
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


def _has_stage(block: Block) -> bool:
    return any(isinstance(op, kernel.Stage) for op in block)


def _folds_along_memory(op: kernel.Generic) -> bool:
    """Whether some fold walks the last axis of an array, and none of the domain's last axis."""
    for inner in op.walk():
        if isinstance(inner, kernel.Fold):
            last = inner.body.arguments[-1] if inner.extents else None
            for load in inner.body:
                if isinstance(load, kernel.Load) and load.indices and load.indices[-1] is last:
                    return True
    return False


def _checks_depend_on(op: kernel.Generic, indices: Sequence[Value]) -> bool:
    varying = set(indices)
    for inner in op.body.parent.walk() if op.body.parent is not None else ():
        if inner is op:
            continue
        if any(value in varying for value in inner.operands):
            if isinstance(inner, kernel.CheckIndex):
                return True
            varying.update(inner.results)
    return False


BYTE = DType.named["u8"]
