"""Writing the function of a kernel for a GPU: what each thread of the block of a tile does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.dialects import kernel, loop, mem, scalar, simt
from dlc.dialects.simt import WARP
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import Size, interval, known_multiple
from dlc.ir.types import INDEX, U32, DType
from dlc.lowering.hoist import tidy
from dlc.lowering.lanes import combine
from dlc.lowering.loop_words import index, unravel
from dlc.lowering.loop_writer import KernelWriter, Lowered
from dlc.lowering.multiples import align_registers, start_of
from dlc.target.gpu import ACCESS

MOST_IN_32_BITS = (1 << 32) - 1


class GridWriter(KernelWriter):
    """Writes a kernel of which `threads` threads do each tile; a core is to hold so many `blocks`."""

    def __init__(self, op: kernel.Kernel, threads: int, blocks: int = 1) -> None:
        super().__init__(op, ("tile", "thread"))
        self.op = op
        self.threads = threads
        self.blocks = blocks
        self.thread = self.lead[1]

    def leave_out_tiles(self, start: Builder, count: Value, divider: Op) -> None:
        work = Block()
        while divider.next is not None:
            op = divider.next
            self.block.unlink(op)
            Builder(work, op.location).place(op)
        Builder(work, self.location).place(loop.Yield([]))
        here = self.emit(scalar.Compare(self.tile, count, "lt"))
        self.emit.place(loop.If(here, work, nothing(self.emit)))

    def function(self) -> simt.Func:
        return simt.Func(self.block, "kernel", self.threads, self.blocks)

    def unravel(
        self, emit: Builder, number: Value, extents: Sequence[Value], count: Size
    ) -> list[Value]:
        """The index along each axis of one of `count` elements.

        It is found in 32 bits where no call has more: divisions of 64 bits take several times as long.
        """
        if len(extents) < 2:
            return [number] if extents else []
        program = mem.program_of(self.op)
        _, most = interval(count, {} if program is None else program.bounds)
        if most is None or most > MOST_IN_32_BITS:
            return unravel(emit, number, extents)
        small = [emit(scalar.Cast(value, U32)) for value in (number, *extents)]
        return [emit(scalar.Cast(place, INDEX)) for place in unravel(emit, small[0], small[1:])]

    def finish(
        self, tiles: Size, cost: Size, scratch: Size = 0, last: Sequence[Value] = ()
    ) -> Lowered:
        lowered = super().finish(tiles, cost, scratch, last)
        assert isinstance(lowered.function, simt.Func)
        tidy(lowered.function)
        pointers = [start_of(operand) for operand in self.op.operands]
        sizes = [known_multiple(size) for size in lowered.sizes]
        scratch_start = [ACCESS] * len(last)
        align_registers(lowered.function, [1, 1, *pointers, *sizes, *scratch_start])
        return lowered

    def once(self, emit: Builder) -> Value:
        """Whether this is the first thread of the block, which does what is to be done once."""
        return emit(scalar.Compare(self.thread, index(emit, 0), "eq"))

    def among(self, emit: Builder, name: str, value: Value, threads: int) -> Value:
        """What so many neighbouring threads of a warp have, combined in a fixed tree; each gets it."""
        while threads > 1:
            threads //= 2
            value = combine(emit, name, value, emit(simt.Exchange(value, threads)))
        return value

    def together(self, emit: Builder, name: str, value: Value) -> Value:
        """What all threads of the block have, combined in a fixed tree; each of them gets it."""
        value = self.among(emit, name, value, WARP)
        warps = self.threads // WARP
        if warps == 1:
            return value
        assert isinstance(value.type, DType)
        room = emit(simt.Shared(warps, value.type))
        lane = emit(scalar.RawDivide(self.thread, index(emit, WARP)))
        # Every thread of a warp has the same: the first one writes it.
        first = emit(scalar.Multiply(lane, index(emit, WARP)))
        when(emit, emit(scalar.Compare(self.thread, first, "eq")), loop.Store(value, room, lane))
        emit.place(simt.Barrier())
        parts = [emit(loop.Load(room, index(emit, k), value.type)) for k in range(warps)]
        while len(parts) > 1:
            half = -(-len(parts) // 2)
            pairs = zip(parts, parts[half:], strict=False)
            parts = [
                *[combine(emit, name, *two) for two in pairs],
                *parts[len(parts) - half : half],
            ]
        return parts[0]


def threads_for(count: Size, each: int, most: int) -> int:
    """Threads of a block that goes through so many elements, `each` to a thread at a time."""
    threads = WARP
    while threads < most and not (isinstance(count, int) and threads * each >= count):
        threads *= 2
    return threads


def when(emit: Builder, condition: Value, *ops: Op) -> None:
    """Run operations if a condition holds."""

    def then(inside: Builder) -> None:
        for op in ops:
            inside.place(op)

    either(emit, condition, then)


Write = Callable[[Builder], None]
"""Writes a branch."""


def either(emit: Builder, condition: Value, then: Write, otherwise: Write | None = None) -> None:
    """Do something if a condition holds, and perhaps something else if it does not."""
    yes, no = Block(), Block()
    for block, write in ((yes, then), (no, otherwise)):
        inside = Builder(block, emit.location)
        if write is not None:
            write(inside)
        inside.place(loop.Yield([]))
    emit.place(loop.If(condition, yes, no))


def nothing(emit: Builder) -> Block:
    """The branch of an `if` that does nothing."""
    block = Block()
    Builder(block, emit.location).place(loop.Yield([]))
    return block
