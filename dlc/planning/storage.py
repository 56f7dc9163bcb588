"""Where values live: which memory, and which part of it.

A value that a region hands over is written where it is wanted: a carried value into the memory that the
loop reads it from, if nothing reads that any more; a value to stack into its place in the stack; the
result of a branch into the memory of the choice; a result that updates an argument over it, or else it is
copied there at the end. An element-wise kernel may write over an input that dies with it, and an update
is put into its target where nothing reads that any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from dlc.dialects import array, flow, func, kernel
from dlc.dialects.comm import HOST
from dlc.dialects.kernel.pieces import Join, Subview
from dlc.dialects.kernel.products import Conv, Gemm, Product
from dlc.dialects.kernel.schedule import Packed, PackInline
from dlc.dialects.measured import upper_bound
from dlc.ir.core import Op, Value
from dlc.ir.dims import Shape, Size
from dlc.ir.log import DecisionLog
from dlc.ir.types import row_major_strides
from dlc.planning.aliases import computed, reshaped_strides, whole_of
from dlc.planning.schedule import Choice, Item, Lifetimes, Loop, Origins, Wave


@dataclass(slots=True)
class Memory:
    """A root to be: what it is, how large in bytes, and the waves from first to last that need it."""

    kind: str
    number: int
    bytes: Size
    first: int
    last: int
    device: str = HOST


FIXED = -1
"""The memory of constants and weights, each of which has a place of its own outside the plan."""


@dataclass(frozen=True, slots=True)
class Home:
    """A place in a memory: `offset` bytes from its start, and `steps` of bytes for rounds of loops.

    `strides` in elements; None for a dense row-major array. In `FIXED` the offset counts from the start
    of the constant or weight.
    """

    memory: int
    offset: Size = 0
    strides: Shape | None = None
    steps: tuple[tuple[int, Size], ...] = ()

    def slice(self, whole: Value, axis: int, counter: int, length: Size, reverse: bool) -> Home:
        """The slice of an array in this place that a loop is at."""
        type = kernel.array_type(whole)
        strides = self.strides or row_major_strides(type.shape)
        step = strides[axis] * type.dtype.bytes
        start = (length - 1) * step if reverse else 0
        kept = strides[:axis] + strides[axis + 1 :]
        dense = kept == row_major_strides(type.shape[:axis] + type.shape[axis + 1 :])
        return Home(
            self.memory,
            self.offset + start,
            None if dense else kept,
            (*self.steps, (counter, step * -1 if reverse else step)),
        )

    def piece(self, value: Value, join: Join) -> Home:
        """Where an array is that is a piece of a whole in this place."""
        number = [computed(piece) for piece in join.pieces].index(value)
        type, matrix = kernel.array_type(value), kernel.array_type(join.pieces[number])
        pitch = self.strides or row_major_strides(kernel.array_type(join.result).shape)
        strides = reshaped_strides(matrix.shape, pitch, type.shape)
        assert strides is not None, "what has no strides there is not joined"
        return self._with(type.shape, strides, join.start(number) * type.dtype.bytes)

    def seen(self, known: Value, value: Value) -> Home:
        """The place of an array in this place, as it is seen in another shape."""
        if self.strides is None:
            return self
        shape = kernel.array_type(value).shape
        strides = reshaped_strides(kernel.array_type(known).shape, self.strides, shape)
        assert strides is not None, "what is in pieces is not seen in shapes that have no strides"
        return self._with(shape, strides, 0)

    def part(self, part: Subview) -> Home:
        """Where a part is of an array in this place."""
        type = kernel.array_type(part.source)
        strides = self.strides or row_major_strides(type.shape)
        starts = zip(part.starts, strides, strict=True)
        offset = sum((start * stride for start, stride in starts), 0)
        return self._with(part.shape, strides, offset * type.dtype.bytes)

    def _with(self, shape: Shape, strides: Shape, offset: Size) -> Home:
        dense = strides == row_major_strides(shape)
        return Home(self.memory, self.offset + offset, None if dense else strides, self.steps)


@dataclass(slots=True)
class Storage:
    """The memories of a function and the home of every value that has one."""

    memories: list[Memory] = field(default_factory=list[Memory])
    homes: dict[Value, Home] = field(default_factory=dict[Value, Home])
    copies: dict[int, list[tuple[Value, Value]]] = field(
        default_factory=dict[int, list[tuple[Value, Value]]]
    )
    """For each copying wave the values to copy, and the arguments they are copied to."""

    def home(self, value: Value, origins: Origins) -> Home | None:
        """Where a value is, None for whole constants and weights.

        What a branch or a loop is given is where it was before: a slice stays the slice that the loop
        around is at. A reshape is the same elements in another shape.
        """
        chain: list[Value] = []
        for known in origins.chain(value):
            chain.append(known)
            if known in self.homes:
                break
        home = self.homes.get(chain[-1])
        for source, seen in zip(reversed(chain[1:]), reversed(chain[:-1]), strict=True):
            if home is None:
                return None
            match seen.op:
                case Subview() as part:
                    home = home.part(part)
                case array.Reshape():
                    home = home.seen(source, seen)
                case _:
                    pass
        return home


def assign(
    function: func.Func,
    items: list[Item],
    origins: Origins,
    lives: Lifetimes,
    waves: int,
    limits: Mapping[str, Size],
    devices: Mapping[Value, str],
    log: DecisionLog,
) -> Storage:
    """Find a home for every value of a function that is no whole constant or weight.

    `limits` are those of measured dims: memories are as large as they may have to be. `devices` says of
    values that are not on the host where they are.
    """
    return _Assignment(function, origins, lives, waves, limits, devices, log).run(items)


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
    ) -> None:
        self.function = function
        self.origins = origins
        self.lives = lives
        self.waves = waves
        self.limits = limits
        self.devices = devices
        self.log = log
        self.storage = Storage()
        self.arena = 0

    def run(self, items: list[Item]) -> Storage:
        arguments, updates = self.function.body.arguments, self.function.updates
        own = _kernels(items)
        for number, argument in enumerate(arguments):
            self._fixed(argument, "input", number)
        for number, value in enumerate(self.function.results_returned):
            if number in updates:
                self._update(own, value, arguments[updates[number]])
            else:
                self._fixed(self.origins[value], "output", number)
        self._items(items)
        return self.storage

    def _update(self, own: set[Op], value: Value, argument: Value) -> None:
        """Write a result over the argument whose place it takes, as it is computed or at the end."""
        end = self.waves - 1
        if self._written_directly(own, -1, end, value, argument):
            self.storage.homes[self.origins[value]] = self.storage.homes[argument]
            self.log.did("update in place", value, over=argument.name or "an input")
        else:
            self.storage.copies.setdefault(end, []).append((value, argument))
            self.lives.last[self.origins[value]] = end

    def _fixed(self, value: Value, kind: str, number: int) -> None:
        self.storage.homes[value] = self._memory(kind, number, value, 0, self.waves)

    def _memory(self, kind: str, number: int, value: Value, first: int, last: int) -> Home:
        type = kernel.array_type(value)
        size = upper_bound(type.size, self.limits) * type.dtype.bytes
        device = self.devices.get(value, HOST) if kind == "arena" else HOST
        self.storage.memories.append(Memory(kind, number, size, first, last, device))
        return Home(len(self.storage.memories) - 1)

    def _in_arena(self, value: Value, first: int, last: int) -> Home:
        home = self._memory("arena", self.arena, value, first, last)
        self.arena += 1
        return home

    def _home(self, value: Value) -> Home | None:
        """Where a value is; None for constants and weights."""
        return self.storage.home(value, self.origins)

    def _items(self, items: list[Item]) -> None:
        for item in items:
            match item:
                case Wave():
                    self._wave(item)
                case Loop():
                    self._loop(item)
                case Choice():
                    self._choice(item)

    def _wave(self, wave: Wave) -> None:
        readers = Counter(
            home.memory
            for op in wave.kernels
            for home in {self._home(value) for value in self.lives.reads_of(op)}
            if home is not None
        )
        for op in wave.kernels:
            for result in op.results:
                if self._in_whole(result, wave.number) or result in self.storage.homes:
                    continue
                last = self.lives.last.get(result, wave.number)
                donor = self._donor(op, result, wave.number, readers)
                if donor is None:
                    self.storage.homes[result] = self._in_arena(result, wave.number, last)
                    continue
                home = self.storage.homes[donor]
                self.storage.homes[result] = home
                self.storage.memories[home.memory].last = last
                self.log.did("write in place", result, over=donor.name or "an input")

    def _in_whole(self, value: Value, number: int) -> bool:
        """Whether an array is a piece of a whole; then it has its place there."""
        join = whole_of(value)
        if join is None:
            return False
        whole, homes = join.result, self.storage.homes
        if not self._in_whole(whole, number) and whole not in homes:
            homes[whole] = self._in_arena(whole, number, self.lives.last[whole])
        homes[value] = homes[whole].piece(value, join)
        return True

    def _donor(
        self, op: kernel.Kernel, result: Value, number: int, readers: Counter[int]
    ) -> Value | None:
        """A value in the arena that dies with `op` and that the result may overwrite."""
        for position in replaceable(op):
            operand = op.operands[position]
            origin = self.origins[operand]
            home = self._home(operand)
            if self.lives.reads_of.is_count(origin):
                continue
            if home is None or home.memory == FIXED:
                continue
            if home != Home(home.memory) or readers[home.memory] != 1:
                continue
            memory = self.storage.memories[home.memory]
            if (
                memory.kind == "arena"
                and memory.device == self.devices.get(result, HOST)
                and memory.last == number
                and self.lives.written.get(origin, -1) >= 0
                and kernel.array_type(operand) is kernel.array_type(result)
                and sum(self.origins[other] is origin for other in op.operands) == 1
            ):
                return origin
        return None

    # Loops and branches.

    def _loop(self, item: Loop) -> None:
        op = item.op
        carried = len(op.initial)
        lead = 1 if isinstance(op, flow.Scan) else 0
        self.storage.copies[item.enter] = []
        self.storage.copies[item.leave] = []
        for result in op.results:
            if result not in self.storage.homes:
                last = max(item.leave, self.lives.last.get(result, item.leave))
                self.storage.homes[result] = self._in_arena(result, item.enter, last)
        following = op.body.terminator.operands
        own = _kernels(item.body)
        for k, value in enumerate(op.initial):
            argument = op.body.arguments[lead + k]
            self.storage.copies[item.enter].append((value, argument))
            if self._written_directly(own, item.enter, item.leave, following[k], argument):
                self.storage.homes[self.origins[following[k]]] = self.storage.homes[op.results[k]]
            else:
                self.storage.copies[item.leave].append((following[k], argument))
        if isinstance(op, flow.Scan):
            self._slices(item, op, carried)
        self._items(item.test)
        self._items(item.body)

    def _slices(self, item: Loop, op: flow.Scan, carried: int) -> None:
        for k, (source, axis) in enumerate(zip(op.xs, op.x_axes, strict=True)):
            home = self._home(source) or Home(FIXED)
            argument = op.body.arguments[1 + carried + k]
            self.storage.homes[argument] = home.slice(
                source, axis, item.counter, op.length, op.reverse
            )
        stacks = zip(
            op.results[carried:], op.body.terminator.operands[carried:], op.y_axes, strict=True
        )
        for stack, value, axis in stacks:
            home = self.storage.homes[stack]
            self.storage.homes[self.origins[value]] = home.slice(
                stack, axis, item.counter, op.length, op.reverse
            )

    def _written_directly(
        self, own: set[Op], enter: int, leave: int, value: Value, argument: Value
    ) -> bool:
        """Whether `value`, computed by one of `own`, may be written over `argument` as it is computed.

        Nothing between the waves `enter` and `leave` may read the argument any more, but for a kernel
        that reads each element just before it writes it.
        """
        origin = self.origins[value]
        producer = origin.op
        written = self.lives.written.get(origin, -1)
        if not isinstance(producer, kernel.Kernel) or producer not in own:
            return False
        if origin in self.storage.homes:
            return False
        for number, reader in self.lives.reads.get(self.origins[argument], []):
            if not enter < number < leave or number < written:
                continue
            is_own = reader is producer and self._reads_own(producer, argument, origin)
            if number != written or not is_own:
                return False
        return True

    def _reads_own(self, op: kernel.Kernel, argument: Value, result: Value) -> bool:
        places = replaceable(op)
        return all(
            position in places and kernel.array_type(operand) is kernel.array_type(result)
            for position, operand in enumerate(op.operands)
            if self.origins[operand] is self.origins[argument]
        )

    def _choice(self, item: Choice) -> None:
        for k, result in enumerate(item.op.results):
            if result not in self.storage.homes:
                last = max(item.last, self.lives.last.get(result, item.last))
                self.storage.homes[result] = self._in_arena(result, item.first, last)
            for region in item.op.regions:
                value = region.terminator.operands[k]
                self.storage.homes[self.origins[value]] = self.storage.homes[result]
        self._items(item.then)
        self._items(item.otherwise)


def _kernels(items: list[Item]) -> set[Op]:
    """The kernels of these items, but for those in loops and branches."""
    return {op for wave in items if isinstance(wave, Wave) for op in wave.kernels}


def replaceable(op: kernel.Kernel) -> list[int]:
    """The operands over which a result may be written, element by element or part by part."""
    match op:
        case kernel.Generic() if not _has_rows(op):
            return _own_elements(op)
        case Gemm(schedule=Packed() | PackInline()) | Conv(schedule=Packed()):
            return _own_elements(op)
        case kernel.Scatter() | kernel.Update():
            return [0]
        case _:
            return []


def may_lie_over(op: kernel.Kernel) -> list[int]:
    """The operands of a kernel in destination form that a result of it may be written over."""
    types = [kernel.array_type(target) for target in op.targets]
    return [k for k in replaceable(op) if kernel.array_type(op.operands[k]) in types]


def _has_rows(op: kernel.Generic) -> bool:
    """Whether it writes whole rows before it is done with what it reads."""
    return any(isinstance(value.op, kernel.Stage) for value in op.body.terminator.operands)


def _own_elements(op: kernel.Generic | Product) -> list[int]:
    """The operands that the formula reads where it writes, and nowhere else."""
    reads = op.segments[-2]
    first = len(op.operands) - reads - op.segments[-1]
    arguments = op.formula.arguments[len(op.formula.arguments) - reads :] if reads else []
    return [
        first + k for k, argument in enumerate(arguments) if reads_only_own_element(op, argument)
    ]


def reads_only_own_element(op: kernel.Generic | Product, argument: Value) -> bool:
    """Whether every load of an input is at the index of the element that is being computed."""
    indices = op.formula.arguments[: len(op.domain)]
    return all(
        isinstance(use, kernel.Load) and list(use.indices) == indices and use.parent is op.formula
        for use in argument.uses
    )
