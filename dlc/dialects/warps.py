"""Evaluating a `simt` kernel as a GPU runs it: warps of 32 threads that take turns at barriers.

A value is an array with a row for each thread of the warp. Where threads part ways, a mask says which of
them go on; what an operation would give the others is poison. A warp is a generator that stops at each
barrier, and the block goes on when all its warps are there. Every access to memory is looked up in the
shadow (`dlc.dialects.shadow`), so that a race is found however the warps happen to be run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import loop, scalar, simt, vec
from dlc.dialects.machine import POISON, Enough, Memory, Stretch
from dlc.dialects.scalar import COMBINERS, element
from dlc.dialects.shadow import Moment, Numbers, Race, Shadow
from dlc.dialects.simt import WARP
from dlc.ir.core import Block, Op, Value
from dlc.ir.evaluation import Array, Evaluation
from dlc.ir.types import DType, Type, VectorType

Mask = NDArray[np.bool_]
NOWHERE = -1
"""A pointer that points into no stretch."""
Turns = Generator[simt.Barrier, None, tuple[Array, ...]]
"""A warp at work: it stops at each barrier, and in the end gives what its block of code hands on."""


@dataclass(frozen=True, slots=True)
class Active:
    """Which threads of a warp run an operation."""

    mask: Mask
    rows: Numbers
    all: bool


def active(mask: Mask) -> Active:
    """The threads that the mask names."""
    rows = np.flatnonzero(mask)
    return Active(mask, rows, rows.size == WARP)


class Divergence(Exception):
    """Not all threads come to where all must be."""


class Launch:
    """One launch of a kernel: the memory that all its blocks see, and its shadow."""

    def __init__(
        self,
        function: simt.Func,
        views: Sequence[Stretch],
        sizes: Sequence[int],
        scratch: int = 0,
        steps: float = float("inf"),
    ) -> None:
        """Views, sizes and, if there is any, bytes of scratch are what the kernel is given.

        After so many `steps`, operations that a warp ran, it raises Enough.
        """
        memory = Memory()
        given = [*[memory.add(view) for view in views], *sizes]
        if scratch:
            given.append(memory.add(Stretch("scratch", np.full(scratch, POISON, np.uint8))))
        self._begin(function, memory, given, steps)

    @classmethod
    def given(cls, function: simt.Func, memory: Memory, words: Sequence[int]) -> Launch:
        """A launch with pointers into a memory and numbers, in the order of the kernel's arguments."""
        launch = cls.__new__(cls)
        launch._begin(function, memory, words, float("inf"))
        return launch

    def _begin(
        self, function: simt.Func, memory: Memory, given: Sequence[int], steps: float
    ) -> None:
        self.function = function
        self.steps = steps
        self.memory = memory
        self._shadows: dict[int, tuple[Array, Shadow]] = {}
        self._places: dict[int, tuple[Stretch, Shadow, int]] = {}
        self._constants: dict[Op, Array] = {}
        self.arguments = [np.full(WARP, number, np.int64) for number in given]

    def run(self, tile: int) -> None:
        """Run the block of one tile.

        Raises CallError where the kernel notes that the call failed, BadAccess where it reaches memory
        that is not its own, Race and Divergence.
        """
        with np.errstate(all="ignore"):
            _Block(self, tile).run()

    def count_step(self) -> None:
        """An operation is run. Raises Enough."""
        self.steps -= 1
        if self.steps < 0:
            raise Enough

    def shadow(self, stretch: Stretch) -> tuple[Shadow, int]:
        """The shadow of the memory that a stretch is in, and where in it the stretch begins."""
        found = self._places.get(id(stretch))
        if found is None:
            whole: Array = stretch.data
            while isinstance(whole.base, np.ndarray):
                whole = whole.base
            # Arrays and stretches are kept, so that no other one gets the address.
            _, shadow = self._shadows.setdefault(id(whole), (whole, Shadow(whole.nbytes)))
            start = stretch.data.ctypes.data - whole.ctypes.data
            found = self._places[id(stretch)] = stretch, shadow, start
        return found[1:]

    def constant(self, op: scalar.Constant, at: Evaluation) -> Array:
        """A constant in every thread of a warp."""
        if op not in self._constants:
            shape = _poison(op.type).shape
            self._constants[op] = np.broadcast_to(op.evaluate(at), shape)
        return self._constants[op]


class _Block:
    """The threads that work on one tile."""

    def __init__(self, launch: Launch, tile: int) -> None:
        self.launch = launch
        self.tile = tile
        self.threads = launch.function.threads
        self.epoch = 0
        self._shared: dict[Op, int] = {}

    def run(self) -> None:
        warps = [self._start(number) for number in range(self.threads // WARP)]
        while True:
            stops = [next(warp, None) for warp in warps]
            waiting = [stop for stop in stops if stop is not None]
            if not waiting:
                return
            if None in stops:
                raise Divergence(
                    f"warp {stops.index(None)} of tile {self.tile} ends while others wait at the "
                    f"{waiting[0].name} at {waiting[0].location.place}"
                )
            self.epoch += 1

    def _start(self, number: int) -> Turns:
        warp = _Warp(self, number)
        tile = np.full(WARP, self.tile, np.int64)
        arguments = [tile, warp.threads, *self.launch.arguments]
        return warp.steps(self.launch.function.body, arguments, active(np.ones(WARP, np.bool_)))

    def shared(self, op: simt.Shared) -> int:
        """A pointer to the room that an operation gives the whole block."""
        if op not in self._shared:
            data = np.full(op.elements * op.dtype.bytes, POISON, np.uint8)
            self._shared[op] = self.launch.memory.add(Stretch("shared memory", data))
        return self._shared[op]


class _Warp(Evaluation):
    """Threads that run the same operation at the same time."""

    __slots__ = ("_buffers", "_known", "block", "threads")

    def __init__(self, block: _Block, number: int) -> None:
        super().__init__()
        self.block = block
        self.threads = np.arange(number * WARP, (number + 1) * WARP, dtype=np.int64)
        self._known: dict[Value, Array] = {}
        self._buffers: dict[Op, Array] = {}

    # Control.

    def steps(self, block: Block, arguments: Sequence[Array], here: Active) -> Turns:
        """Run a block of code with some of the threads."""
        known = self._known
        known.update(zip(block.arguments, arguments, strict=True))
        for op in block:
            if op.terminator:
                return tuple([known[operand] for operand in op.operands])
            self.block.launch.count_step()
            inputs = [known[operand] for operand in op.operands]
            match op:
                case simt.Barrier():
                    self.refuse_absence(op, here)
                    yield op
                    results: tuple[Array, ...] = ()
                case loop.For():
                    results = yield from self._for(op, inputs, here)
                case loop.While():
                    results = yield from self._while(op, inputs, here)
                case loop.If():
                    results = yield from self._if(op, inputs[0].astype(np.bool_), here)
                case _:
                    results = self._compute(op, inputs, here)
            known.update(zip(op.results, results, strict=True))
        raise AssertionError("the block has no terminator")

    def _for(self, op: loop.For, inputs: Sequence[Array], here: Active) -> Turns:
        position, upper, step = [array.astype(np.int64) for array in inputs[:3]]
        carried = list(inputs[3:])
        going = active(here.mask & (position < upper))
        while going.rows.size:
            following = yield from self.steps(op.body, [position, *carried], going)
            carried = [_choose(going, *two) for two in zip(following, carried, strict=True)]
            position = np.where(going.mask, position + step, position)
            going = active(going.mask & (position < upper))
        return tuple(carried)

    def _while(self, op: loop.While, inputs: Sequence[Array], here: Active) -> Turns:
        carried, going = list(inputs), here
        while True:
            (test,) = yield from self.steps(op.condition, carried, going)
            going = active(going.mask & test.astype(np.bool_))
            if not going.rows.size:
                return tuple(carried)
            following = yield from self.steps(op.body, carried, going)
            carried = [_choose(going, *two) for two in zip(following, carried, strict=True)]

    def _if(self, op: loop.If, condition: Mask, here: Active) -> Turns:
        results = tuple([_poison(value.type) for value in op.results])
        for branch, mask in ((op.then, condition), (op.otherwise, ~condition)):
            taken = active(here.mask & mask)
            if taken.rows.size:
                found = yield from self.steps(branch, (), taken)
                results = tuple([_choose(taken, *two) for two in zip(found, results, strict=True)])
        return results

    def refuse_absence(self, op: Op, here: Active) -> None:
        """Raises Divergence where a thread of the warp is missing."""
        if not here.all:
            missing = self.threads[~here.mask][0]
            raise Divergence(
                f"thread {missing} of tile {self.block.tile} does not come to the {op.name} at "
                f"{op.location.place}, where all must be"
            )

    # Operations.

    def _compute(self, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
        """An operation in the threads that are here; the others get poison."""
        handler = HANDLERS.get(type(op))
        if handler is not None:
            return handler(self, op, inputs, here)
        compute = REGISTERS.get(type(op)) or _evaluate
        if here.all:
            return (compute(self, op, *inputs),)
        # What the other threads hold may be nothing that the operation is defined for.
        result = _poison(op.results[0].type)
        result[here.mask] = compute(self, op, *[array[here.mask] for array in inputs])
        return (result,)

    # Memory.

    def buffer(self, op: loop.Buffer) -> Array:
        """For each thread a pointer to room of its own."""
        if op not in self._buffers:
            size, memory = op.elements * op.dtype.bytes, self.block.launch.memory
            rooms = [Stretch(op.name, np.full(size, POISON, np.uint8)) for _ in range(WARP)]
            self._buffers[op] = np.array([memory.add(room) for room in rooms], np.int64)
        return self._buffers[op]

    def read(self, op: Op, addresses: Numbers, dtype: DType, count: int, here: Active) -> Array:
        """`count` neighbouring elements at each address, a row for each thread."""
        result = np.full((WARP, count * dtype.bytes), POISON, np.uint8)
        for stretch, rows, places in self._places(op, addresses, count * dtype.bytes, here):
            result[rows] = stretch.data[places]
            self._note(op, stretch, places, rows, wrote=False)
        return result.view(dtype.numpy)

    def write(self, op: Op, addresses: Numbers, values: Array, here: Active) -> None:
        """Write the elements of each row to neighbouring places from the thread's address on."""
        data = np.ascontiguousarray(values).reshape(WARP, -1).view(np.uint8)
        for stretch, rows, places in self._places(op, addresses, data.shape[1], here):
            stretch.refuse_write(op)
            self._note(op, stretch, places, rows, wrote=True)
            stretch.data[places] = data[rows]
            if stretch.written is not None:
                stretch.written[places] = True

    def _places(
        self, op: Op, addresses: Numbers, size: int, here: Active
    ) -> Iterator[tuple[Stretch, Numbers, Numbers]]:
        """The bytes at the addresses, by the stretch that they are in: threads, and places in it."""
        memory = self.block.launch.memory
        for stretch, rows, starts in memory.at_each(op, addresses[here.rows], size):
            yield stretch, here.rows[rows], starts[:, None] + np.arange(size)

    def _note(
        self, op: Op, stretch: Stretch, places: Numbers, rows: Numbers, *, wrote: bool
    ) -> None:
        """Tell the shadow. Raises Race."""
        block = self.block
        shadow, start = block.launch.shadow(stretch)
        who = block.tile * block.threads + self.threads[rows]
        now = Moment(who, block.tile, block.threads, block.epoch)
        clash = (shadow.write if wrote else shadow.read)(places + start, now)
        if clash is not None:
            tile, thread = divmod(clash.other, block.threads)
            raise Race(
                f"{op.name} at {op.location.place} in thread {self.threads[rows[clash.row]]} of tile "
                f"{block.tile} {'writes' if wrote else 'reads'} byte {clash.byte - start} of "
                f"{stretch.name}, which thread {thread} of tile {tile} "
                f"{'writes' if clash.other_wrote else 'reads'} with no barrier between"
            )


def _choose(here: Active, new: Array, old: Array) -> Array:
    """What the threads that are here have now, and the others had."""
    if here.all:
        return new
    return np.where(here.mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)


def _poison(type: Type) -> Array:
    """Nothing yet, for each thread of a warp."""
    match type:
        case DType() as dtype:
            shape: tuple[int, ...] = (WARP,)
        case VectorType(dtype, lanes):
            shape = (WARP, lanes)
        case _:
            return np.full(WARP, NOWHERE, np.int64)
    return np.full((*shape, dtype.bytes), POISON, np.uint8).view(dtype.numpy).reshape(shape)


# Operations that know of memory, of the block, or of several elements in a thread.

Handler = Callable[[_Warp, Op, Sequence[Array], Active], tuple[Array, ...]]


def _elements(pointer: Array, index: Array, dtype: DType) -> Numbers:
    """The addresses of elements."""
    return pointer.astype(np.int64) + index.astype(np.int64) * dtype.bytes


def _offset(warp: _Warp, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    assert isinstance(op, loop.Offset)
    pointer, index = inputs
    return (_elements(pointer, index, op.dtype),)


def _load(warp: _Warp, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    assert isinstance(op, loop.Load)
    pointer, index = inputs
    return (warp.read(op, _elements(pointer, index, op.dtype), op.dtype, 1, here)[:, 0],)


def _load_register(warp: _Warp, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    assert isinstance(op, vec.Load)
    (pointer, index), dtype = inputs, op.type.dtype
    return (warp.read(op, _elements(pointer, index, dtype), dtype, op.type.lanes, here),)


def _store(warp: _Warp, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    value, pointer, index = inputs
    dtype = element(op.operands[0].type)
    warp.write(op, _elements(pointer, index, dtype), value, here)
    return ()


def _gather(warp: _Warp, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    assert isinstance(op, vec.Gather)
    (pointer, indices), dtype = inputs, op.type.dtype
    lanes = [
        warp.read(op, _elements(pointer, index, dtype), dtype, 1, here)[:, 0] for index in indices.T
    ]
    return (np.stack(lanes, axis=1),)


def _scatter(warp: _Warp, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    values, pointer, indices = inputs
    dtype = element(op.operands[0].type)
    for value, index in zip(values.T, indices.T, strict=True):
        warp.write(op, _elements(pointer, index, dtype), value, here)
    return ()


def _buffer(warp: _Warp, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    assert isinstance(op, loop.Buffer)
    return (warp.buffer(op),)


def _shared(warp: _Warp, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    assert isinstance(op, simt.Shared)
    return (np.full(WARP, warp.block.shared(op), np.int64),)


def _fail(warp: _Warp, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    return op.evaluate(warp, *[array[here.mask][0] for array in inputs])  # pyright: ignore[reportReturnType]


def _exchange(warp: _Warp, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    warp.refuse_absence(op, here)
    result = op.evaluate(warp, *inputs)
    assert not isinstance(result, tuple)
    return (result,)


def _constant(warp: _Warp, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    assert isinstance(op, scalar.Constant)
    return (warp.block.launch.constant(op, warp),)


HANDLERS: dict[type[Op], Handler] = {
    loop.Offset: _offset,
    loop.Load: _load,
    loop.Store: _store,
    loop.Buffer: _buffer,
    loop.Fail: _fail,
    scalar.Constant: _constant,
    simt.Exchange: _exchange,
    simt.Shared: _shared,
    vec.Load: _load_register,
    vec.Store: _store,
    vec.Gather: _gather,
    vec.Scatter: _scatter,
}


def _evaluate(warp: _Warp, op: Op, *inputs: Array) -> Array:
    """An operation that does to every element the same, and so to every thread."""
    result = op.evaluate(warp, *inputs)
    assert not isinstance(result, tuple)
    return result


def _broadcast(warp: _Warp, op: Op, *inputs: Array) -> Array:
    assert isinstance(op, vec.Broadcast)
    return np.repeat(inputs[0][:, None], op.lanes, axis=1)


def _ramp(warp: _Warp, op: Op, *inputs: Array) -> Array:
    assert isinstance(op, vec.Ramp)
    return inputs[0].astype(np.int64)[:, None] + np.arange(op.lanes, dtype=np.int64)


def _reduce(warp: _Warp, op: Op, *inputs: Array) -> Array:
    assert isinstance(op, vec.Reduce)
    (lanes,) = inputs
    combine = COMBINERS[op.combine].function
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = combine(lanes[:, :half], lanes[:, half:])
    return lanes[:, 0]


REGISTERS: dict[type[Op], Callable[..., Array]] = {
    vec.Broadcast: _broadcast,
    vec.Ramp: _ramp,
    vec.Reduce: _reduce,
}
