"""Segments of a program for a GPU: what the walk through its step table (`dlc.runtime.abi`) gathers.

Launches that need nothing back from the device are gathered into *segments*. A segment ends where the host
has to read what a kernel computed (a condition, a measured length, an address), or compares a count of
rounds with a limit. It depends on its first step and on the counters that its arguments use, so it is
gathered once and reused: in the next call, and in the next round of a loop.

Where the driver supports conditional graph nodes, a `while` or an `if` becomes part of a segment if the
host has nothing to do inside it: the device reads the condition itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from dlc.runtime.abi import MAX_COUNTERS, ArgKind, Opcode, StepWord
from dlc.runtime.calling.control_flow import Choose, While
from dlc.runtime.gpu.steps import IMMEDIATE, StepTable, Word

MAX_LAUNCHES = 4096
"""The most kernels of a segment; a longer one is split."""
NO_LIMIT = (1 << 63) - 1
"""The limit of a `while` without one."""


class Launch(NamedTuple):
    """A launch of a kernel, by index, with a block for each tile; `op` is its op id.

    Launches of a segment with the same `wave` have no barrier between them.
    """

    kernel: int
    tiles: int
    words: tuple[Word, ...]
    op: int
    wave: int = 0


class WhileNode(NamedTuple):
    """A while loop that the device decides on, as a conditional graph node; alone in its wave.

    `words` are the arguments of the kernel `round` of `dlc.runtime.gpu.conditions`: the addresses of the
    condition and of the count of rounds, the limit, its op id, the address and the number of fault rows.
    """

    words: tuple[Word, ...]
    test: tuple[Item, ...]
    body: tuple[Item, ...]
    wave: int = 0


class IfNode(NamedTuple):
    """An if that the device decides on, as conditional graph nodes; alone in its wave."""

    condition: Word
    then: tuple[Item, ...]
    otherwise: tuple[Item, ...]
    wave: int = 0


Item: TypeAlias = Launch | WhileNode | IfNode


class Segment(NamedTuple):
    """Launches that need nothing back from the device; the step after them, and the counters there."""

    items: tuple[Item, ...]
    end: int
    counters: tuple[int, ...]
    trips: tuple[int, ...]
    is_conditional: bool = False
    """Whether it has conditional nodes."""


class Walk:
    """One walk through a program at one tuple of sizes: an interpreter of its control flow."""

    def __init__(
        self, steps: StepTable, sizes: Sequence[int], read: Callable[[int, int, int], int]
    ) -> None:
        """`read` gives an integer from the device, by root, offset and number of bytes."""
        self._steps = steps
        self._sizes = sizes
        self._read = read
        self._room = 0
        """Launches and nodes that the segment being gathered may still have."""
        self.counters = [0] * MAX_COUNTERS
        self.trips = [0] * MAX_COUNTERS

    # Gathering ------------------------------------------------------------------------------------

    def segment(self, pc: int) -> Segment:
        """Gather the segment from step `pc`; the walk is at its end afterwards."""
        self._room = MAX_LAUNCHES
        items, end = self._gather(pc, None, conditional=False)
        return Segment(items, end, tuple(self.counters), tuple(self.trips))

    def longer_segment(self, pc: int) -> Segment:
        """Gather the segment from step `pc`, with loops and branches as nodes; the walk stays at `pc`."""
        counters, trips = [*self.counters], [*self.trips]
        self._room = MAX_LAUNCHES
        items, end = self._gather(pc, None, conditional=True)
        is_conditional = not all(isinstance(item, Launch) for item in items)
        segment = Segment(items, end, tuple(self.counters), tuple(self.trips), is_conditional)
        self.counters[:], self.trips[:] = counters, trips
        return segment

    def _gather(self, pc: int, end: int | None, conditional: bool) -> tuple[tuple[Item, ...], int]:
        """The items from step `pc` up to `end`, or to a step for the host; and the step reached.

        With an `end` the steps are the body of a block, which a jump would leave.
        """
        items: list[Item] = []
        wave, ended = 0, False  # whether the next launch begins a new wave
        while pc != end:
            block = self._steps.nodes.get(pc) if conditional else None
            node = self._node(block) if block is not None and self._room > 0 else None
            step = self._steps.steps[pc]
            opcode = step[StepWord.OPCODE]
            if block is not None and node is not None:
                wave += 1
                items.append(node._replace(wave=wave))
                pc, ended = block.end, True
            elif self._steps.is_control(pc) or (end is not None and opcode == Opcode.JUMP):
                break
            elif opcode == Opcode.CALL:
                if self._room <= 0:
                    break
                launches = self.launch(pc)
                self._room -= len(launches)
                items += [launch._replace(wave=wave) for launch in launches]
                ended = True  # also where the host has ended the segment before within a wave
                pc += 1
            elif opcode == Opcode.WAVE:
                wave += 1 if ended else 0
                ended = True
                pc = self._move(pc, step)
            else:
                ended = True  # a round of a loop may depend on the one before
                pc = self._move(pc, step)
        return tuple(items), pc

    def _node(self, block: While | Choose) -> WhileNode | IfNode | None:
        """The node of a loop or branch; None if the host has something to do in it."""
        room, counters, trips = self._room, [*self.counters], [*self.trips]
        self._room -= 1
        node = self._while(block) if isinstance(block, While) else self._if(block)
        # No later step uses the counters that it has set.
        self.counters[:], self.trips[:] = counters, trips
        if node is None:
            self._room = room
        return node

    def _while(self, loop: While) -> WhileNode | None:
        steps = self._steps.steps
        test = self._part(*loop.test)
        condition = self.word(steps[loop.branch][StepWord.A])
        body = self._part(*loop.body)
        if test is None or body is None:
            return None
        limit, op = NO_LIMIT, 0
        if loop.limit is not None:
            _, _, size, op, *_ = steps[loop.limit]
            limit = self._sizes[size]
        root, _ = self._steps.end_notes
        numbers = (
            (IMMEDIATE, limit),
            (IMMEDIATE, op),
            (root, 0),
            (IMMEDIATE, self._steps.fault_rows),
        )
        return WhileNode((condition, self._steps.round_counter(loop), *numbers), test, body)

    def _if(self, choice: Choose) -> IfNode | None:
        condition = self.word(self._steps.steps[choice.begin][StepWord.A])
        then = self._part(choice.begin + 1, choice.otherwise - 1)
        otherwise = self._part(choice.otherwise, choice.end)
        if then is None or otherwise is None:
            return None
        return IfNode(condition, then, otherwise)

    def _part(self, pc: int, end: int) -> tuple[Item, ...] | None:
        """The items of steps `pc` to `end`; None if the host has something to do there."""
        items, reached = self._gather(pc, end, conditional=True)
        return items if reached == end else None

    # Walking --------------------------------------------------------------------------------------

    def enter(self, segment: Segment) -> None:
        """Go to the end of a segment that was gathered before."""
        for k, value in enumerate(segment.counters):
            if k not in self._steps.only_counting:
                self.counters[k] = value
        self.trips[:] = segment.trips

    def launch(self, pc: int) -> Sequence[Launch]:
        """The launch of a call; none if it has no tiles."""
        _, kernel, first, count, tiles, _, op, _ = self._steps.steps[pc]
        if self._sizes[tiles] <= 0:
            return ()
        words = [self.word(k) for k in range(first, first + count)]
        words.append(self._steps.fault_slot(pc))
        return (Launch(kernel, self._sizes[tiles], tuple(words), op),)

    def control(self, pc: int) -> int:
        """Do a step between segments, other than END, a call and a limit that is reached; the next step."""
        return self._move(pc, self._steps.steps[pc])

    def limit(self, pc: int) -> int | None:
        """The limit of a LIMIT step that is reached, else None."""
        opcode, counter, size, *_ = self._steps.steps[pc]
        if opcode != Opcode.LIMIT or self.counters[counter] < self._sizes[size]:
            return None
        return self._sizes[size]

    def _move(self, pc: int, step: Sequence[int]) -> int:
        """Do a step that launches nothing; returns the next step."""
        opcode, a, b, c, d, e, *_ = step
        counters = self.counters
        match opcode:
            case Opcode.LOOP:
                counters[a], self.trips[a] = 0, self._number(b)
                return pc + 1 if self.trips[a] > 0 else c
            case Opcode.NEXT:
                counters[a] += 1
                return c if counters[a] < self.trips[a] else pc + 1
            case Opcode.BRANCH:
                root, offset = self.word(a)
                return c if self._read(root, offset, 1) else b
            case Opcode.LIMIT:
                counters[a] += 1
            case Opcode.ZERO:
                counters[a] = 0
            case Opcode.COMBINE:
                counters[a] = counters[b] * self._sizes[c] + counters[d] * self._sizes[e]
            case Opcode.JUMP:
                return a
            case _:
                pass  # a wave: its calls follow
        return pc + 1

    def _number(self, argument: int) -> int:
        root, value = self.word(argument)
        assert root == IMMEDIATE
        return value

    def word(self, argument: int) -> Word:
        """The value of an argument: a number, or a root and an offset in it."""
        kind, root, offset, counter, stride = self._steps.arguments[argument]
        if kind == ArgKind.SIZE:
            return IMMEDIATE, self._sizes[offset]
        if kind == ArgKind.COUNTER:
            return IMMEDIATE, self.counters[counter]
        position = self._sizes[offset]
        if 0 <= counter < MAX_COUNTERS:  # there are no threads of the host: scratch has one part
            position += self.counters[counter] * self._sizes[stride]
        if kind == ArgKind.LOADED:
            return IMMEDIATE, self._read(root, position, 8)
        return root, position
