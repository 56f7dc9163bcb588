"""Writing the function of a kernel for a GPU: what each thread of the block of a tile does."""

from __future__ import annotations

from dlc.dialects import kernel, loop, scalar, simt
from dlc.dialects.simt import WARP
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Op, Value
from dlc.ir.types import DType
from dlc.lowering.lanes import combine
from dlc.lowering.loop_words import index
from dlc.lowering.loop_writer import KernelWriter


class GridWriter(KernelWriter):
    """Writes a kernel of which `threads` threads do each tile."""

    def __init__(self, op: kernel.Kernel, threads: int) -> None:
        super().__init__(op, ("tile", "thread"))
        self.threads = threads
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
        return simt.Func(self.block, "kernel", self.threads)

    def once(self, emit: Builder) -> Value:
        """Whether this is the first thread of the block, which does what is to be done once."""
        return emit(scalar.Compare(self.thread, index(emit, 0), "eq"))

    def together(self, emit: Builder, name: str, value: Value) -> Value:
        """What all threads of the block have, combined in a fixed tree; each of them gets it."""
        for distance in (16, 8, 4, 2, 1):
            value = combine(emit, name, value, emit(simt.Exchange(value, distance)))
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


def when(emit: Builder, condition: Value, *ops: Op) -> None:
    """Do something if a condition holds."""
    then = Block()
    inside = Builder(then, emit.location)
    for op in ops:
        inside.place(op)
    inside.place(loop.Yield([]))
    emit.place(loop.If(condition, then, nothing(emit)))


def nothing(emit: Builder) -> Block:
    """The branch of an `if` that does nothing."""
    block = Block()
    Builder(block, emit.location).place(loop.Yield([]))
    return block
