"""A call on a GPU: arrays go there, kernels are launched one after the other, results come back.

The host walks the table of steps as `dlc.runtime.abi` says it is to be walked. One stream keeps the
order, so waves need no barriers; where a step depends on what a kernel wrote, the host waits for it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np

from dlc.errors import CallError
from dlc.runtime.abi import (
    ARG_WORDS,
    HEADER_WORDS,
    MAX_COUNTERS,
    STEP_WORDS,
    ArgKind,
    CallWord,
    FaultWord,
    Opcode,
    Root,
    Status,
    StepWord,
    TraceWord,
)
from dlc.runtime.buffers import Bytes, address
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.cuda.gpu import Gpu
from dlc.runtime.frames import Sized, Words


class GpuFrame:
    """A call of one program, with the interface of `dlc.runtime.frames.Frame`."""

    def __init__(
        self, gpu: Gpu, program: Bytes, fixed: tuple[int, int], inputs: int, tensors: int
    ) -> None:
        """`fixed` are the device addresses of WEIGHTS and SOURCES; `tensors` counts inputs and outputs."""
        self._gpu = gpu
        words: Words = program.view(np.dtype("<i8"))
        end = HEADER_WORDS + int(words[0]) * STEP_WORDS
        self._steps: list[list[int]] = words[HEADER_WORDS:end].reshape(-1, STEP_WORDS).tolist()
        self._arguments: list[list[int]] = words[end:].reshape(-1, ARG_WORDS).tolist()
        self._inputs = inputs
        self._fixed = fixed
        self._cancelled = False
        self._blocks: list[_Block] = [_Block(gpu.driver) for _ in range(tensors + 3)]
        self._status = [0] * CallWord.COUNT
        # The addresses of the caller's arrays on the host, from INPUTS on.
        self.roots = (ctypes.c_int64 * (Root.INPUTS + tensors))()

    @property
    def room(self) -> int:
        """Bytes of working memory that it has."""
        return self._blocks[0].size + self._blocks[1].size

    def run(self, sized: Sized, arena: int = 0) -> int:
        """Run the program at these sizes and give its status. Raises CallError (D0817) for an arena."""
        if arena:
            raise CallError(
                "arena= lends memory of the host, and this call works on a GPU",
                code="D0817",
                help="leave it out",
            )
        roots = self._on_device(sized)
        calls = sum(step[StepWord.OPCODE] == Opcode.CALL for step in self._steps)
        faults = self._blocks[2].of(8 * FaultWord.COUNT * max(1, calls))
        self._gpu.driver.clear(faults, 8 * FaultWord.COUNT * calls)
        walk = Walk(self._gpu, self._steps, self._arguments, sized.sizes.tolist(), roots, faults)
        self._status = walk.run(lambda: self._cancelled)
        if self._status[CallWord.STATUS] == Status.OK:
            self._bring_back(sized, roots)
        return self._status[CallWord.STATUS]

    def _on_device(self, sized: Sized) -> list[int]:
        """The roots on the device, with the inputs in theirs.

        An output that lies where an input does is written over it, there as here.
        """
        arena, scratch = self._blocks[0].of(sized.arena), self._blocks[1].of(sized.scratch)
        roots = [arena, *self._fixed, scratch, self._gpu.constants]
        known: dict[int, int] = {}
        for number, size in enumerate(sized.tensors):
            host = self.roots[Root.INPUTS + number]
            place = known.get(host)
            if place is None:
                place = self._blocks[3 + number].of(size)
                if size:
                    known[host] = place
                if number < self._inputs:
                    self._gpu.driver.upload(place, host, size)
            roots.append(place)
        return roots

    def _bring_back(self, sized: Sized, roots: Sequence[int]) -> None:
        for number in range(self._inputs, len(sized.tensors)):
            host, place = self.roots[Root.INPUTS + number], roots[Root.INPUTS + number]
            self._gpu.driver.download(host, place, sized.tensors[number])

    def run_traced(self, sized: Sized, capacity: int) -> tuple[int, Words]:
        """The same; nothing is recorded on a GPU yet."""
        return self.run(sized), np.zeros((0, TraceWord.COUNT), np.int64)

    def status_words(self) -> list[int]:
        """The words that say how the last call ended, as `CallWord` names them."""
        return self._status

    def cancel(self) -> None:
        """Ask the call that this frame is running to end before its next step."""
        self._cancelled = True

    def reset(self) -> None:
        """Forget a request to cancel, before the frame serves another call."""
        self._cancelled = False


class _Block:
    """Memory on a device that grows as it is needed."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._address = 0
        self.size = 0

    def of(self, size: int) -> int:
        """The address of so many bytes; what was there before may be lost."""
        if size > self.size or not self._address:
            self.close()
            self._address = self._driver.allocate(size)
            self.size = size
        return self._address

    def close(self) -> None:
        """Give the memory back."""
        if self._address:
            self._driver.free(self._address)
        self._address = self.size = 0

    def __del__(self) -> None:
        self.close()


class Walk:
    """One walk through a table of steps."""

    def __init__(
        self,
        gpu: Gpu,
        steps: Sequence[Sequence[int]],
        arguments: Sequence[Sequence[int]],
        sizes: Sequence[int],
        roots: Sequence[int],
        faults: int,
    ) -> None:
        """`faults` is where on the device the words of failing kernels go, those of each CALL apart."""
        self._gpu = gpu
        self._steps = steps
        self._arguments = arguments
        self._sizes = sizes
        self._roots = roots
        self._faults = faults
        self._counters = [0] * MAX_COUNTERS
        self._trips = [0] * MAX_COUNTERS
        calls = [k for k, step in enumerate(steps) if step[StepWord.OPCODE] == Opcode.CALL]
        self._calls = calls
        self._slots = {step: slot for slot, step in enumerate(calls)}

    def run(self, cancelled: Callable[[], bool]) -> list[int]:
        """Walk to the end, and what the words of the call say then (`CallWord`)."""
        place: int | None = 0
        while place is not None:
            if cancelled():
                return _ended(Status.CANCELLED)
            step = self._steps[place]
            if step[StepWord.OPCODE] == Opcode.LIMIT and self._is_over(step):
                limit = self._sizes[step[StepWord.B]]
                return _ended(Status.LIMIT, step[StepWord.C], 0, limit)
            place = self._next(place, step)
        return self._outcome()

    def _next(self, place: int, step: Sequence[int]) -> int | None:
        """Do a step; where to go on, None at the end."""
        a, b, c, d, e = step[StepWord.A : StepWord.F]
        counters = self._counters
        match step[StepWord.OPCODE]:
            case Opcode.END:
                return None
            case Opcode.CALL:
                self._call(place, step)
            case Opcode.LOOP:
                counters[a], self._trips[a] = 0, self._value(b)
                return place + 1 if self._trips[a] > 0 else c
            case Opcode.NEXT:
                counters[a] += 1
                return c if counters[a] < self._trips[a] else place + 1
            case Opcode.BRANCH:
                return c if self._read(self._value(a), 1) else b
            case Opcode.LIMIT:
                counters[a] += 1
            case Opcode.ZERO:
                counters[a] = 0
            case Opcode.COMBINE:
                counters[a] = counters[b] * self._sizes[c] + counters[d] * self._sizes[e]
            case Opcode.JUMP:
                return a
            case _:
                pass  # a wave: one stream keeps the order
        return place + 1

    def _is_over(self, step: Sequence[int]) -> bool:
        return self._counters[step[StepWord.A]] >= self._sizes[step[StepWord.B]]

    def _call(self, place: int, step: Sequence[int]) -> None:
        tiles = self._sizes[step[StepWord.D]]
        if tiles <= 0:
            return
        first, count = step[StepWord.B], step[StepWord.C]
        words = [self._value(k) for k in range(first, first + count)]
        fault = self._faults + 8 * FaultWord.COUNT * self._slots[place]
        kernel = self._gpu.kernels[step[StepWord.A]]
        self._gpu.driver.launch(kernel.function, tiles, kernel.threads, [*words, fault])

    def _value(self, argument: int) -> int:
        """The value of an argument."""
        kind, root, offset, counter, stride = self._arguments[argument]
        if kind == ArgKind.SIZE:
            return self._sizes[offset]
        if kind == ArgKind.COUNTER:
            return self._counters[counter]
        address = self._roots[root] + self._sizes[offset]
        if 0 <= counter < MAX_COUNTERS:  # there are no threads of the host: scratch has one part
            address += self._counters[counter] * self._sizes[stride]
        return self._read(address, 8) if kind == ArgKind.LOADED else address

    def _read(self, address: int, count: int) -> int:
        """A number on the device, once all that was launched is done."""
        word = ctypes.c_int64(0)
        self._gpu.driver.download(ctypes.addressof(word), address, count)
        return word.value

    def _outcome(self) -> list[int]:
        """The first failure in the order of the program, if a kernel noted one."""
        found = np.zeros((len(self._calls), FaultWord.COUNT), np.int64)
        self._gpu.driver.download(address(found), self._faults, found.nbytes)
        failed = np.flatnonzero(found[:, FaultWord.STATUS])
        if not len(failed):
            return _ended(Status.OK)
        first = int(failed[0])
        words: list[int] = found[first].tolist()
        op = self._steps[self._calls[first]][StepWord.F]
        return _ended(
            words[FaultWord.STATUS],
            op,
            words[FaultWord.TILE],
            words[FaultWord.A],
            words[FaultWord.B],
        )


def _ended(status: int, op: int = 0, tile: int = 0, a: int = 0, b: int = 0) -> list[int]:
    words = [0] * CallWord.COUNT
    words[CallWord.STATUS], words[CallWord.STATUS_STEP] = int(status), op
    words[CallWord.STATUS_TILE], words[CallWord.STATUS_A], words[CallWord.STATUS_B] = tile, a, b
    return words
