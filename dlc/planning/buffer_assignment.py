"""Buffer assignment: the buffer of every value, and its offset and strides there.

The value that a region yields is written straight to its destination: a carried value to the buffer that
the loop reads it from, if nothing reads that any more; a stacked value to its slice of the stack; the
result of a branch to the buffer of the choice; a result that updates an argument over that argument, or it
is copied there at the end. An element-wise kernel may overwrite an input that dies with it, and a scatter
its target if nothing reads that any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from dlc.dialects import array, flow, func, kernel
from dlc.dialects.array.shape import without_reshapes
from dlc.dialects.comm import HOST
from dlc.dialects.kernel.pieces import Join, Subview
from dlc.dialects.measured import upper_bound
from dlc.ir.core import Op, Value
from dlc.ir.dims import Shape, Size
from dlc.ir.log import DecisionLog
from dlc.ir.types import row_major_strides
from dlc.planning.aliases import reshaped_strides, whole_of
from dlc.planning.failures import NEVER, LastFailure
from dlc.planning.lifetimes import Lifetimes
from dlc.planning.overwriting import overwritable_operands
from dlc.planning.waves import Choice, Item, Loop, Origins, Wave


@dataclass(slots=True)
class PlannedBuffer:
    """Memory that becomes a root of the plan: kind, size, the first and the last wave that need it."""

    kind: str
    number: int
    bytes: Size
    first: int
    last: int
    device: str = HOST


FIXED = -1
"""Stands for the memory of constants and weights, which lie outside the plan."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Where an array lies: a buffer, the offset in it, and the strides.

    `offset` is in bytes, in `FIXED` from the start of the constant or weight. `strides` are in elements,
    None for a dense row-major array. `steps` has bytes to add for each iteration of the loops with these
    counters.
    """

    buffer: int
    offset: Size = 0
    strides: Shape | None = None
    steps: tuple[tuple[int, Size], ...] = ()

    def slice(
        self, whole: Value, axis: int, counter: int, length: Size, reverse: bool
    ) -> Allocation:
        """The allocation of the slice of an array, which lies here, that a loop is at."""
        type = kernel.array_type(whole)
        strides = self.strides or row_major_strides(type.shape)
        step = strides[axis] * type.dtype.bytes
        start = (length - 1) * step if reverse else 0
        kept = strides[:axis] + strides[axis + 1 :]
        dense = kept == row_major_strides(type.shape[:axis] + type.shape[axis + 1 :])
        return Allocation(
            self.buffer,
            self.offset + start,
            None if dense else kept,
            (*self.steps, (counter, step * -1 if reverse else step)),
        )

    def in_whole(self, value: Value, join: Join) -> Allocation:
        """The allocation of a piece of a concatenation whose whole lies here."""
        index = [without_reshapes(piece) for piece in join.pieces].index(value)
        type, matrix = kernel.array_type(value), kernel.array_type(join.pieces[index])
        whole_strides = self.strides or row_major_strides(kernel.array_type(join.result).shape)
        strides = reshaped_strides(matrix.shape, whole_strides, type.shape)
        assert strides is not None, "a piece that strides cannot describe is not joined"
        return self._with_layout(type.shape, strides, join.start(index) * type.dtype.bytes)

    def reshaped(self, source: Value, value: Value) -> Allocation:
        """The allocation of a reshape of an array that lies here."""
        if self.strides is None:
            return self
        shape = kernel.array_type(value).shape
        strides = reshaped_strides(kernel.array_type(source).shape, self.strides, shape)
        assert strides is not None, "a subview is reshaped only where strides describe the result"
        return self._with_layout(shape, strides, 0)

    def subview(self, subview: Subview) -> Allocation:
        """The allocation of a subview of an array that lies here."""
        type = kernel.array_type(subview.source)
        strides = self.strides or row_major_strides(type.shape)
        starts = zip(subview.starts, strides, strict=True)
        offset = sum((start * stride for start, stride in starts), 0)
        return self._with_layout(subview.shape, strides, offset * type.dtype.bytes)

    def _with_layout(self, shape: Shape, strides: Shape, offset: Size) -> Allocation:
        dense = strides == row_major_strides(shape)
        return Allocation(self.buffer, self.offset + offset, None if dense else strides, self.steps)


@dataclass(slots=True)
class BufferAssignment:
    """The buffers of a function, and the allocation of every value that is not a view."""

    buffers: list[PlannedBuffer] = field(default_factory=list[PlannedBuffer])
    allocations: dict[Value, Allocation] = field(default_factory=dict[Value, Allocation])
    copies: dict[int, list[tuple[Value, Value]]] = field(
        default_factory=dict[int, list[tuple[Value, Value]]]
    )
    """For each copying wave the values to copy, and the arguments to which they are copied."""
    first_change: float = inf
    """The first wave that may write over an argument."""

    def allocation(self, value: Value, origins: Origins) -> Allocation | None:
        """The allocation of a value or view; None for whole constants and weights.

        An argument of a branch or a loop lies where the value passed lies: a slice stays the slice that the
        loop around is at.
        """
        chain: list[Value] = []
        for ancestor in origins.chain(value):
            chain.append(ancestor)
            if ancestor in self.allocations:
                break
        allocation = self.allocations.get(chain[-1])
        for source, view in zip(reversed(chain[1:]), reversed(chain[:-1]), strict=True):
            if allocation is None:
                return None
            match view.op:
                case Subview() as subview:
                    allocation = allocation.subview(subview)
                case array.Reshape():
                    allocation = allocation.reshaped(source, view)
                case _:
                    pass
        return allocation


def assign_buffers(
    function: func.Func,
    items: list[Item],
    origins: Origins,
    lives: Lifetimes,
    waves: int,
    limits: Mapping[str, Size],
    devices: Mapping[Value, str],
    log: DecisionLog,
    failures: LastFailure = NEVER,
) -> BufferAssignment:
    """Assign a buffer to every value of a function but whole constants and weights.

    `limits` are the upper bounds of measured dims, at which buffers are sized. `devices` has the device of
    each value that is not on the host. Up to the last of its `failures` a call writes no argument in place.
    """
    return _Assignment(function, origins, lives, waves, limits, devices, log, failures).run(items)


class _Assignment:
    def __init__(
        self,
        function: func.Func,
        origins: Origins,
        lives: Lifetimes,
        waves: int,
        limits: Mapping[str, Size],
        devices: Mapping[Value, str],
        log: DecisionLog,
        failures: LastFailure,
    ) -> None:
        self.function = function
        self.origins = origins
        self.lives = lives
        self.waves = waves
        self.limits = limits
        self.devices = devices
        self.log = log
        self.failures = failures
        self.assignment = BufferAssignment()
        self.arena = 0

    def run(self, items: list[Item]) -> BufferAssignment:
        arguments, updates = self.function.body.arguments, self.function.updates
        for index, argument in enumerate(arguments):
            self._allocate_fixed(argument, "input", index)
        for index, value in enumerate(self.function.results_returned):
            if index in updates:
                self._update(items, value, arguments[updates[index]])
            else:
                self._allocate_fixed(self.origins[value], "output", index)
        self._assign_items(items)
        return self.assignment

    def _update(self, items: list[Item], value: Value, argument: Value) -> None:
        """Write a result over the argument that it updates: as it is computed, or by a copy at the end."""
        loop = next((i for i in items if isinstance(i, Loop) and value in i.op.results), None)
        written = self.lives.written.get(self.origins[value], -1) if loop is None else loop.enter
        last_wave = self.waves - 1
        why = self._why_copied(items, value, argument, loop, written)
        changed = written if why is None else last_wave
        self.assignment.first_change = min(self.assignment.first_change, changed)
        if why is None:
            self.assignment.allocations[self.origins[value]] = self.assignment.allocations[argument]
            self.log.did("update in place", value, over=argument.name or "an input")
        else:
            self.assignment.copies.setdefault(last_wave, []).append((value, argument))
            self.lives.last[self.origins[value]] = last_wave
            over = argument.name or "an input"
            self.log.refused(f"update in place: {why}", value, over=over)

    def _why_copied(
        self, items: list[Item], value: Value, argument: Value, loop: Loop | None, written: int
    ) -> str | None:
        """Why a result cannot be computed in the memory of the argument that it updates; None if it can."""
        if self.failures.last >= written:
            return f"the call may fail after that: {self.failures.why}"
        if loop is not None:
            return self._why_loop_copies(loop, loop.op.results.index(value), argument)
        if self._may_write_in_place(_kernels(items), -1, self.waves - 1, value, argument):
            return None
        if self.origins[value] in self.assignment.allocations:
            return "its memory is that of another result"
        if not isinstance(self.origins[value].op, kernel.Kernel):
            return "it is not a result of a kernel"
        return "the value from before the call is read later"

    def _why_loop_copies(self, loop: Loop, number: int, argument: Value) -> str | None:
        """The same for a result of a loop: a carried value that begins with the argument, or a stack of
        what each iteration writes over its slice of the argument."""
        op = loop.op
        carried = len(op.initial)
        if number < carried:
            passed, inside = number, None
        else:
            assert isinstance(op, flow.Scan)
            axis = op.y_axes[number - carried]
            slices = zip(op.xs, op.x_axes, strict=True)
            position = next(
                (k for k, (x, along) in enumerate(slices) if x is argument and along == axis), None
            )
            if position is None:
                return "the loop does not iterate over the value from before the call"
            passed, inside = carried + position, op.slices[position]
        if op.operands[passed] is not argument:
            return "the loop does not begin with the value from before the call"
        if sum(self.origins[operand] is argument for operand in op.operands) > 1:
            return "the loop reads the value from before the call in other iterations, too"
        reads = self.lives.reads.get(argument, [])
        if any(read_in > loop.leave for read_in, _ in reads):
            return "the value from before the call is read after the loop"
        yielded = op.body.terminator.operands[number]
        if inside is not None and not self._may_write_in_place(
            _kernels(loop.body), loop.enter, loop.leave, yielded, inside
        ):
            return "an iteration reads the value from before the call after it has computed the new one"
        return None

    def _allocate_fixed(self, value: Value, kind: str, index: int) -> None:
        self.assignment.allocations[value] = self._allocate(kind, index, value, 0, self.waves)

    def _allocate(self, kind: str, index: int, value: Value, first: int, last: int) -> Allocation:
        type = kernel.array_type(value)
        size = upper_bound(type.size, self.limits) * type.dtype.bytes
        device = self.devices.get(value, HOST) if kind == "arena" else HOST
        self.assignment.buffers.append(PlannedBuffer(kind, index, size, first, last, device))
        return Allocation(len(self.assignment.buffers) - 1)

    def _allocate_in_arena(self, value: Value, first: int, last: int) -> Allocation:
        allocation = self._allocate("arena", self.arena, value, first, last)
        self.arena += 1
        return allocation

    def _allocation(self, value: Value) -> Allocation | None:
        """The allocation of a value; None for constants and weights."""
        return self.assignment.allocation(value, self.origins)

    def _assign_items(self, items: list[Item]) -> None:
        for item in items:
            match item:
                case Wave():
                    self._assign_wave(item)
                case Loop():
                    self._assign_loop(item)
                case Choice():
                    self._assign_choice(item)

    def _assign_wave(self, wave: Wave) -> None:
        readers = Counter(
            allocation.buffer
            for op in wave.kernels
            for allocation in {self._allocation(value) for value in self.lives.reads_of(op)}
            if allocation is not None
        )
        for op in wave.kernels:
            for result in op.results:
                if (
                    self._place_in_whole(result, wave.number)
                    or result in self.assignment.allocations
                ):
                    continue
                last = self.lives.last.get(result, wave.number)
                overwritten = self._reuse_candidate(op, result, wave.number, readers)
                if overwritten is None:
                    self.assignment.allocations[result] = self._allocate_in_arena(
                        result, wave.number, last
                    )
                    continue
                allocation = self.assignment.allocations[overwritten]
                self.assignment.allocations[result] = allocation
                self.assignment.buffers[allocation.buffer].last = last
                self.log.did("write in place", result, over=overwritten.name or "an input")

    def _place_in_whole(self, value: Value, wave_index: int) -> bool:
        """Allocate an array inside the concatenation of which it is a piece; False if it is not a piece."""
        join = whole_of(value)
        if join is None:
            return False
        whole, allocations = join.result, self.assignment.allocations
        if not self._place_in_whole(whole, wave_index) and whole not in allocations:
            allocations[whole] = self._allocate_in_arena(whole, wave_index, self.lives.last[whole])
        allocations[value] = allocations[whole].in_whole(value, join)
        return True

    def _reuse_candidate(
        self, op: kernel.Kernel, result: Value, wave_index: int, readers: Counter[int]
    ) -> Value | None:
        """An operand in the arena that dies with `op` and whose buffer the result may reuse."""
        for index in overwritable_operands(op):
            operand = op.operands[index]
            origin = self.origins[operand]
            allocation = self._allocation(operand)
            if self.lives.reads_of.is_count(origin):
                continue
            if allocation is None or allocation.buffer == FIXED:
                continue
            if allocation != Allocation(allocation.buffer) or readers[allocation.buffer] != 1:
                continue
            buffer = self.assignment.buffers[allocation.buffer]
            if (
                buffer.kind == "arena"
                and buffer.device == self.devices.get(result, HOST)
                and buffer.last == wave_index
                and self.lives.written.get(origin, -1) >= 0
                and kernel.array_type(operand) is kernel.array_type(result)
                and sum(self.origins[other] is origin for other in op.operands) == 1
            ):
                return origin
        return None

    # Loops and branches.

    def _assign_loop(self, item: Loop) -> None:
        op = item.op
        self.assignment.copies[item.enter] = []
        self.assignment.copies[item.leave] = []
        for result in op.results:
            if result not in self.assignment.allocations:
                last = max(item.leave, self.lives.last.get(result, item.leave))
                self.assignment.allocations[result] = self._allocate_in_arena(
                    result, item.enter, last
                )
        next_values = op.body.terminator.operands
        kernels = _kernels(item.body)
        for k, (value, argument) in enumerate(zip(op.initial, op.carried, strict=True)):
            if self._allocation(value) != self._allocation(argument):
                self.assignment.copies[item.enter].append((value, argument))
            if self._may_write_in_place(kernels, item.enter, item.leave, next_values[k], argument):
                self.assignment.allocations[self.origins[next_values[k]]] = (
                    self.assignment.allocations[op.results[k]]
                )
            else:
                self.assignment.copies[item.leave].append((next_values[k], argument))
        if isinstance(op, flow.Scan):
            self._assign_slices(item, op)
        self._assign_items(item.test)
        self._assign_items(item.body)

    def _assign_slices(self, item: Loop, op: flow.Scan) -> None:
        carried = len(op.initial)
        for argument, source, axis in zip(op.slices, op.xs, op.x_axes, strict=True):
            allocation = self._allocation(source) or Allocation(FIXED)
            self.assignment.allocations[argument] = allocation.slice(
                source, axis, item.counter, op.length, op.reverse
            )
        stacks = zip(
            op.results[carried:], op.body.terminator.operands[carried:], op.y_axes, strict=True
        )
        for stack, value, axis in stacks:
            allocation = self.assignment.allocations[stack]
            self.assignment.allocations[self.origins[value]] = allocation.slice(
                stack, axis, item.counter, op.length, op.reverse
            )

    def _may_write_in_place(
        self, kernels: set[Op], enter: int, leave: int, value: Value, argument: Value
    ) -> bool:
        """Whether `value`, computed by one of `kernels`, may be written over `argument` as it is computed.

        Between the waves `enter` and `leave` nothing may read the argument after that, but a kernel that
        reads each element just before it writes it.
        """
        origin = self.origins[value]
        producer = origin.op
        written_in = self.lives.written.get(origin, -1)
        if not isinstance(producer, kernel.Kernel) or producer not in kernels:
            return False
        if origin in self.assignment.allocations:
            return False
        for read_in, reader in self.lives.reads.get(self.origins[argument], []):
            if not enter < read_in < leave or read_in < written_in:
                continue
            reads_own = reader is producer and self._reads_only_own_elements(
                producer, argument, origin
            )
            if read_in != written_in or not reads_own:
                return False
        return True

    def _reads_only_own_elements(self, op: kernel.Kernel, argument: Value, result: Value) -> bool:
        candidates = overwritable_operands(op)
        return all(
            index in candidates and kernel.array_type(operand) is kernel.array_type(result)
            for index, operand in enumerate(op.operands)
            if self.origins[operand] is self.origins[argument]
        )

    def _assign_choice(self, item: Choice) -> None:
        for k, result in enumerate(item.op.results):
            if result not in self.assignment.allocations:
                last = max(item.last, self.lives.last.get(result, item.last))
                self.assignment.allocations[result] = self._allocate_in_arena(
                    result, item.first, last
                )
            for region in item.op.regions:
                value = region.terminator.operands[k]
                self.assignment.allocations[self.origins[value]] = self.assignment.allocations[
                    result
                ]
        self._assign_items(item.then)
        self._assign_items(item.otherwise)


def _kernels(items: list[Item]) -> set[Op]:
    """The kernels of these items, without those in loops and branches."""
    return {op for wave in items if isinstance(wave, Wave) for op in wave.kernels}
