"""`GridWriter`: writes the function of a GPU kernel, as each thread of a tile's block runs it."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, loop, mem, simt
from dlc.dialects.expr import Expr, Index, Pointer, combine, exprs, index, values
from dlc.dialects.measured import upper_bound
from dlc.dialects.simt import WARP
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Size, known_multiple
from dlc.ir.intervals import interval
from dlc.ir.types import INDEX, U32, DType
from dlc.lowering.kernel_code.alignment import align_registers, start_of
from dlc.lowering.kernel_code.tidy import tidy
from dlc.lowering.kernel_code.words import empty, unravel, when
from dlc.lowering.kernel_code.writer import NARROW, KernelWriter, Lowered
from dlc.lowering.math import special_functions
from dlc.runtime.abi import MOST_NUMBERED
from dlc.target.gpu import ACCESS


class GridWriter(KernelWriter):
    """Writes a kernel with blocks of `threads` threads; a multiprocessor is to hold `blocks` of them."""

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
        exists = self.tile < Expr(self.emit, count)
        self.emit.place(loop.If(exists.value, work, empty(self.emit)))

    def function(self) -> simt.Func:
        first = len(self.lead)
        narrow = [
            argument.index - first
            for role, (argument, _) in self._sizes.items()
            if role[:1] == NARROW
        ]
        return simt.Func(self.block, "kernel", self.threads, self.blocks, tuple(narrow))

    def unravel(self, number: Expr, extents: Sequence[Expr], count: Size) -> list[Expr]:
        """The index along each axis of one of `count` elements.

        It is computed in 32 bits, since 64-bit division is several times slower, unless every call has
        more. Where the bounds of the dims allow both, a call with more elements is refused.
        """
        if len(extents) < 2:
            return [number] if extents else []
        least, most = self._interval(count)
        if least is not None and least > MOST_NUMBERED:
            return unravel(number, extents)
        if most is None or most > MOST_NUMBERED:
            self._narrow(count)
        return _unravel_small(number, extents, U32)

    def _narrow(self, count: Size) -> None:
        """Refuse calls with more elements than 32 bits number."""
        program = mem.program_of(self.op)
        count = count if program is None else upper_bound(count, program.limit_of)
        known = [size for role, (_, size) in self._sizes.items() if role[:1] == NARROW]
        if count not in known:
            self.size(count, *NARROW, len(known))

    def unravel_tile(self, extents: Sequence[Index], dtype: DType = U32) -> list[Expr]:
        """The index along each axis of the block's tile, in 32 bits: no launch has 2**31 tiles."""
        return _unravel_small(self.tile, extents, dtype) if extents else []

    def fits(self, size: Size, most: int) -> bool:
        """Whether a size is at most `most` in every call, as far as its bounds say."""
        _, largest = self._interval(size)
        return largest is not None and largest <= most

    def _interval(self, size: Size) -> tuple[int | None, int | None]:
        """The values that a size can take, a measured one its limit; None is infinity."""
        program = mem.program_of(self.op)
        if program is None:
            return interval(size, {})
        return interval(upper_bound(size, program.limit_of), program.bounds)

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

    def once(self) -> Expr:
        """Whether this is the first thread of the block."""
        return self.thread.equals(0)

    # Shared memory.

    def shared(self, elements: int, dtype: DType) -> Pointer:
        """A buffer in shared memory."""
        return Pointer(self.emit, self.emit(simt.Shared(elements, dtype)), dtype)

    def barrier(self) -> None:
        """Wait until all threads of the block have reached this barrier (`__syncthreads`)."""
        self.emit.place(simt.Barrier())

    def commit(self) -> None:
        """Close a group of asynchronous copies to shared memory (`cp.async.commit_group`)."""
        self.emit.place(simt.Commit())

    def wait(self, pending: int = 0) -> None:
        """Wait until all but the last `pending` groups of copies are done (`cp.async.wait_group`)."""
        self.emit.place(simt.Wait(pending))

    # Reductions over threads.

    def warp_reduce(self, name: str, value: Expr, threads: int = WARP) -> Expr:
        """The values of neighbouring threads, combined in a fixed butterfly; all get the result."""
        while threads > 1:
            threads //= 2
            value = combine(name, value, shuffle_xor(value, threads))
        return value

    def block_reduce(self, name: str, value: Expr) -> Expr:
        """The values of all threads of the block, combined in a fixed tree; all get the result."""
        value = self.warp_reduce(name, value)
        warps = self.threads // WARP
        if warps == 1:
            return value
        partial = self.shared(warps, value.dtype)
        warp = self.thread // WARP
        # All threads of a warp have the same value: the first one writes it.
        with when(self.thread.equals(warp * WARP)):
            partial[warp] = value
        self.barrier()
        parts = [partial[k] for k in range(warps)]
        while len(parts) > 1:
            half = -(-len(parts) // 2)
            pairs = zip(parts, parts[half:], strict=False)
            parts = [*[combine(name, *two) for two in pairs], *parts[len(parts) - half : half]]
        return parts[0]


def _unravel_small(number: Expr, extents: Sequence[Index], dtype: DType) -> list[Expr]:
    """`unravel` in 32 bits."""
    sizes = [size.cast(dtype) if isinstance(size, Expr) else size for size in extents]
    return [place.cast(INDEX) for place in unravel(number.cast(dtype), sizes)]


def shuffle_xor(value: Expr, distance: int) -> Expr:
    """The value of the thread of the warp whose number is this one's XORed with `distance`."""
    return value.apply(simt.ShuffleXor(value.value, distance))


def exponential(value: Expr, rounded_to: DType) -> Expr:
    """The exponential of an f32 whose results are rounded to a dtype.

    Where 16 bits are left of them, the approximate instruction is exact enough: it and the product with
    log2(e) are off by less than 2**-16 where the exponential is above 2**-64; below 2**-126 it is 0.
    """
    if rounded_to.bits > 16:
        return value.exp()
    return special_functions.exponential(value)


def load_several(source: Pointer, offset: Index, count: int) -> list[Expr]:
    """A vector load: neighbouring elements of 4, 8 or 16 bytes together, aligned."""
    emit = source.emit
    load = simt.Load(source.value, index(emit, offset).value, source.dtype, count)
    return exprs(emit, emit.all(load))


def store_several(target: Pointer, offset: Index, elements: Sequence[Expr]) -> None:
    """A vector store: neighbouring elements of 4, 8 or 16 bytes together, aligned."""
    emit = target.emit
    emit.place(simt.Store(target.value, index(emit, offset).value, values(elements)))


def multiply_add(left: Sequence[Expr], right: Sequence[Expr], sums: Sequence[Expr]) -> list[Expr]:
    """`left @ right + sums` by a matrix instruction, of fragments that the threads of a warp hold."""
    emit = sums[0].emit
    return exprs(emit, emit.all(simt.Mma(values(left), values(right), values(sums))))


def threads_for(count: Size, each: int, most: int) -> int:
    """Threads of a block that loops over `count` elements, `each` per thread at a time; at most `most`."""
    threads = WARP
    while threads < most and not (isinstance(count, int) and threads * each >= count):
        threads *= 2
    return threads
