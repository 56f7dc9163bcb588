"""How one kernel runs on a GPU: what a thread of a block does, and how the threads work together.

The code of a thread is that of the loop level: `loop`, `scalar` and `vec`, one element or a few
neighbours at a time. Operations here concern the block: memory that its threads share, barriers, copies
that go on while threads compute, and what the threads of one warp do together: they hand each other
values, and multiply matrices of which each of them holds a part. A warp is 32 threads that run together.

Between two barriers a thread must not touch memory that another thread of its block writes, and in one
launch no block may touch what another one writes: `dlc.evaluation.gpu.warps` evaluates kernels and finds
both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.ir.core import Array, Block, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand, operands, region
from dlc.ir.types import BF16, BOOL, F16, F32, POINTER, DType, Type, VectorType
from dlc.runtime.abi import MAX_BLOCK, WARP

__all__ = [
    "WARP",
    "WIDE",
    "Barrier",
    "Commit",
    "Copy",
    "Func",
    "Join",
    "Load",
    "LoadMatrix",
    "Mma",
    "Shared",
    "ShuffleXor",
    "Store",
    "Wait",
    "register_of",
]

WIDE = 16
"""Bytes that a thread moves at once, at most; their address is a multiple of that."""


@op("simt.func")
class Func(Op):
    """A kernel: its arguments are the number of the tile, that of the thread, then pointers and sizes.

    Each tile is the work of one block of `threads` threads, whole warps. Tiles are independent. A core
    of the processor is to have registers for so many `blocks` at once.
    """

    body: Block = region()
    sym_name: str = attribute()
    threads: int = attribute()
    blocks: int = attribute(default=1)

    pure = False
    isolated = True

    def infer(self) -> tuple[Type, ...]:
        if self.threads % WARP or not 0 < self.threads <= MAX_BLOCK:
            raise self.fail(f"{self.name} has {self.threads} threads; use 32, 64, ... 1024")
        return ()


@op("simt.shared")
class Shared(Op):
    """Room for a fixed number of elements that the threads of a block share, 16-byte aligned."""

    elements: int = attribute()
    dtype: DType = attribute()

    pure = False

    def infer(self) -> Type:
        return POINTER


@op("simt.barrier")
class Barrier(Op):
    """Wait until all threads of the block are here; each then sees what the others have written."""

    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("simt.shuffle_xor")
class ShuffleXor(Op):
    """The value of the thread of the warp whose number differs from this one's in the bits of `distance`.

    All threads of the warp must be here.
    """

    value: Value = operand()
    distance: int = attribute()

    pure = False

    def infer(self) -> Type:
        if self.distance not in (1, 2, 4, 8, 16):
            raise self.fail(f"threads of a warp are 1, 2, 4, 8 or 16 apart, not {self.distance}")
        return self.value.type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return inputs[0][np.arange(WARP) ^ self.distance]


# Several elements at once.


@op("simt.load")
class Load(Op):
    """`count` neighbouring elements from `pointer[index]` on, of 4, 8 or 16 bytes together.

    Their address is a multiple of these bytes.
    """

    pointer: Value = operand()
    index: Value = operand()
    dtype: DType = attribute()
    count: int = attribute()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        refuse_width(self, self.dtype, self.count)
        return (self.dtype,) * self.count


@op("simt.store")
class Store(Op):
    """Write values to neighbouring places from `pointer[index]` on, 4, 8 or 16 bytes together.

    Their address is a multiple of these bytes.
    """

    pointer: Value = operand()
    index: Value = operand()
    values: Sequence[Value] = operands()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        (dtype,) = {value.type for value in self.values}
        assert isinstance(dtype, DType)
        refuse_width(self, dtype, len(self.values))
        return ()


def refuse_width(op: Op, dtype: DType, count: int) -> None:
    """Fail where so many elements are not 4, 8 or 16 bytes."""
    if dtype is BOOL or dtype.bytes * count not in (4, 8, WIDE):
        raise op.fail(f"{op.name} of {count} {dtype}: together they must have 4, 8 or {WIDE} bytes")


# Copies that go on while threads compute.


@op("simt.copy")
class Copy(Op):
    """Start an asynchronous copy of `count` elements from global to shared memory (`cp.async`).

    It copies `source[source_index]` and its neighbours to `target[target_index]` and on. The elements have
    4, 8 or 16 bytes together, and both addresses are multiples of that. Where `predicate` is false, zeros
    are written and nothing is read. No thread may touch the target before this one has waited for the copy
    (`simt.wait`), and other threads not before a barrier after that.
    """

    source: Value = operand()
    source_index: Value = operand()
    target: Value = operand()
    target_index: Value = operand()
    predicate: Value = operand()
    dtype: DType = attribute()
    count: int = attribute()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        refuse_width(self, self.dtype, self.count)
        if self.predicate.type is not BOOL:
            raise self.fail(f"whether {self.name} reads is a bool, not a {self.predicate.type}")
        return ()


@op("simt.commit")
class Commit(Op):
    """The copies that this thread has started since its last `simt.commit` become a group."""

    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("simt.wait")
class Wait(Op):
    """Wait until all groups of this thread's copies are done, but for the `pending` last ones."""

    pending: int = attribute()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        if self.pending < 0:
            raise self.fail(f"there are no {self.pending} groups of copies")
        return ()


# Matrices of which each thread of a warp has a part. Thread t is in row t // 4 of a matrix of 8 x 8
# numbers of 16 bits and has two neighbours of it, those from column 2 * (t % 4) on.


def register_of(dtype: DType) -> Type:
    """What a thread holds of a matrix in 32 bits: a number of f32, two of f16 or bf16."""
    return dtype if dtype is F32 else VectorType(dtype, 2)


@op("simt.load_matrix")
class LoadMatrix(Op):
    """Four matrices from shared memory, of 8 rows that have 16 bytes: eight f16 or bf16, or four f32.

    Thread t says where row t % 8 of matrix t // 8 is: at `pointer[index]`, 16-byte aligned. It gets of
    each matrix the two numbers from 2 * (t % 4) on in row t // 4, or number t % 4 of f32; of a matrix
    that is to be `transposed`, those in column t // 4. All threads of the warp must be here.
    """

    pointer: Value = operand()
    index: Value = operand()
    dtype: DType = attribute()
    transposed: bool = attribute(default=False)

    pure = False

    def infer(self) -> tuple[Type, ...]:
        if self.dtype not in (F16, BF16) and (self.dtype is not F32 or self.transposed):
            raise self.fail(f"{self.name} takes f16 and bf16, and f32 as it lies, not {self.dtype}")
        return (register_of(self.dtype),) * 4


@op("simt.mma")
class Mma(Op):
    """`sums + lhs @ rhs` of matrices that a warp has together: [16, k] by [k, 8], sums [16, 8] in f32.

    k is 16 for f16 and bf16. For f32 it is 8, and both factors are rounded to the 10 bits of mantissa of
    tf32 (to nearest, ties away from zero). Products are exact; how they are added up is the processor's
    business, in about the precision of f32.

    Thread t, with g = t // 4 and p = t % 4, has of lhs rows g and g + 8 at the first half of k, then both
    at the second half; of rhs column g at both halves of k: in each case the numbers that `load_matrix`
    gives. Of the sums it has row g in columns 2 p and 2 p + 1, then row g + 8. All threads must be here.
    """

    lhs: Sequence[Value] = operands()
    rhs: Sequence[Value] = operands()
    sums: Sequence[Value] = operands()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        factors = {value.type for value in (*self.lhs, *self.rhs)}
        known = any(factors == {register_of(dtype)} for dtype in (F16, BF16, F32))
        counts = len(self.lhs), len(self.rhs), len(self.sums)
        if not known or counts != (4, 2, 4) or {value.type for value in self.sums} != {F32}:
            raise self.fail(
                f"{self.name} takes 4 and 2 registers of f16, bf16 or f32, and 4 sums in f32"
            )
        return (F32,) * 4


@op("simt.join")
class Join(Op):
    """Two numbers of 16 bits as the register that `simt.mma` takes."""

    first: Value = operand()
    second: Value = operand()

    def infer(self) -> Type:
        dtype = self.first.type
        if dtype not in (F16, BF16) or self.second.type is not dtype:
            raise self.fail(f"{self.name} takes two f16 or two bf16")
        assert isinstance(dtype, DType)
        return VectorType(dtype, 2)
