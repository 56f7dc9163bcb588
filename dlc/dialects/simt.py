"""GPU kernels in the SIMT model: the code of one thread, and how the threads of a block cooperate.

A thread runs loop-level code: `loop`, `scalar` and `vec`, on one element or a few neighbouring ones at a
time. The operations here are those of a thread block: shared memory, barriers, asynchronous copies, and the
collectives of a warp, which is 32 threads in lockstep: shuffles, and matrix products of which each thread
holds a fragment.

Accesses of different threads of a block to the same memory, one of them a write, race unless a barrier
separates them; no barrier separates the blocks of a launch. `dlc.evaluation.gpu.warps` evaluates kernels
and finds races of both kinds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.ir.core import Array, Block, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand, operands, region
from dlc.ir.types import BF16, BOOL, F16, F32, POINTER, DType, Type, VectorType
from dlc.runtime.abi import MAX_BLOCK, STATIC_SHARED, WARP

__all__ = [
    "WARP",
    "WIDE",
    "Barrier",
    "Commit",
    "Copy",
    "Divide",
    "Exp2",
    "Func",
    "Join",
    "Load",
    "LoadMatrix",
    "Mma",
    "Rsqrt",
    "Shared",
    "ShuffleXor",
    "Sqrt",
    "Store",
    "Wait",
    "register_of",
]

WIDE = 16
"""The most bytes that a thread loads or stores at once; their address is a multiple of it."""


@op("simt.func")
class Func(Op):
    """A GPU kernel. Its arguments are the index of the tile, that of the thread, then pointers and sizes.

    One thread block of `threads` threads, whole warps, computes each tile. Tiles are independent. Registers
    are allocated such that `blocks` blocks fit on a multiprocessor at once (PTX: `.minnctapersm`).
    `narrow` are the positions, among pointers and sizes, of sizes that are computed with in 32 bits: no
    launch may have larger ones.
    """

    body: Block = region()
    sym_name: str = attribute()
    threads: int = attribute()
    blocks: int = attribute(default=1)
    narrow: tuple[int, ...] = attribute(default=())

    pure = False
    isolated = True

    def infer(self) -> tuple[Type, ...]:
        if self.threads % WARP or not 0 < self.threads <= MAX_BLOCK:
            raise self.fail(f"{self.name} has {self.threads} threads; use 32, 64, ... 1024")
        return ()

    def shared(self) -> dict[Shared, int]:
        """Where in the shared memory of a block each buffer begins, in bytes."""
        places: dict[Shared, int] = {}
        end = 0
        for buffer in self.walk():
            if isinstance(buffer, Shared):
                places[buffer] = end
                end += buffer.room
        return places

    @property
    def shared_bytes(self) -> int:
        """The bytes of shared memory that a block has."""
        return sum(buffer.room for buffer in self.shared())

    @property
    def dynamic_bytes(self) -> int:
        """The bytes of it that a launch asks for: all, where they are more than a kernel declares."""
        return self.shared_bytes if self.shared_bytes > STATIC_SHARED else 0


@op("simt.shared")
class Shared(Op):
    """A buffer of `elements` elements in the shared memory of a block, 16-byte aligned."""

    elements: int = attribute()
    dtype: DType = attribute()

    pure = False

    def infer(self) -> Type:
        return POINTER

    @property
    def room(self) -> int:
        """The bytes that it takes, with those up to where the next buffer may begin."""
        return -(-self.elements * self.dtype.bytes // WIDE) * WIDE


@op("simt.barrier")
class Barrier(Op):
    """Wait for all threads of the block; each then sees what the others have written (`__syncthreads`)."""

    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("simt.shuffle_xor")
class ShuffleXor(Op):
    """The value that thread `t ^ distance` of the warp holds, in thread t (`__shfl_xor_sync`).

    All threads of the warp must execute it.
    """

    value: Value = operand()
    distance: int = attribute()

    pure = False

    def infer(self) -> Type:
        if self.distance not in (1, 2, 4, 8, 16):
            raise self.fail(f"the distance of a shuffle is 1, 2, 4, 8 or 16, not {self.distance}")
        return self.value.type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return inputs[0][np.arange(WARP) ^ self.distance]


class Approximation(Op):
    """A function of f32 by the special function unit, of numbers or registers of them."""

    def infer(self) -> Type:
        (type,) = {operand.type for operand in self.operands}
        if (type.dtype if isinstance(type, VectorType) else type) is not F32:
            raise self.fail(f"{self.name} takes f32, not {type}")
        return type


@op("simt.exp2")
class Exp2(Approximation):
    """2 to the power of an f32: `ex2.approx.ftz.f32`.

    Its relative error is at most 2**-22 (PTX ISA, "ex2"); results below 2**-126 are 0.
    """

    value: Value = operand()

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        powers = np.exp2(inputs[0])
        return np.where(powers < np.float32(2**-126), np.float32(0), powers)


@op("simt.divide")
class Divide(Approximation):
    """The quotient of two f32: `div.full.f32`, which is off by two units in the last place at most."""

    lhs: Value = operand()
    rhs: Value = operand()

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.divide(*inputs)


@op("simt.sqrt")
class Sqrt(Approximation):
    """The square root of an f32: `sqrt.approx.f32`, with a relative error of 2**-23 at most."""

    value: Value = operand()

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.sqrt(inputs[0])


@op("simt.rsqrt")
class Rsqrt(Approximation):
    """One over the square root of an f32: `rsqrt.approx.f32`, with a relative error below 2**-22."""

    value: Value = operand()

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.reciprocal(np.sqrt(inputs[0]))


# Vectorized accesses.


@op("simt.load")
class Load(Op):
    """A vectorized load of `count` neighbouring elements, 4, 8 or 16 bytes, from `pointer[index]` on.

    Their address is a multiple of their size in bytes.
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
    """A vectorized store of neighbouring elements, 4, 8 or 16 bytes, from `pointer[index]` on.

    Their address is a multiple of their size in bytes.
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
    """Fail unless `count` elements have 4, 8 or 16 bytes together."""
    if dtype is BOOL or dtype.bytes * count not in (4, 8, WIDE):
        raise op.fail(f"{op.name} of {count} {dtype}: together they must have 4, 8 or {WIDE} bytes")


# Asynchronous copies.


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
            raise self.fail(f"the predicate of {self.name} is a bool, not a {self.predicate.type}")
        return ()


@op("simt.commit")
class Commit(Op):
    """Make a group of the copies that this thread has started since its last `simt.commit`."""

    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("simt.wait")
class Wait(Op):
    """Wait until at most the last `pending` groups of this thread's copies are unfinished."""

    pending: int = attribute()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        if self.pending < 0:
            raise self.fail(f"{self.name} cannot leave {self.pending} groups of copies pending")
        return ()


# Matrix fragments: of an 8 x 8 matrix of 16-bit elements, thread t of the warp holds the two elements of
# row t // 4 in columns 2 * (t % 4) and 2 * (t % 4) + 1.


def register_of(dtype: DType) -> Type:
    """The type of a 32-bit fragment register: one f32, or two f16 or bf16."""
    return dtype if dtype is F32 else VectorType(dtype, 2)


@op("simt.load_matrix")
class LoadMatrix(Op):
    """Load four matrices from shared memory into fragments (PTX: `ldmatrix.x4`).

    A matrix has 8 rows of 16 bytes: eight f16 or bf16, or four f32. Thread t gives the address of row t % 8
    of matrix t // 8, `pointer[index]`, 16-byte aligned. Of each matrix it receives the elements 2 * (t % 4)
    and 2 * (t % 4) + 1 of row t // 4, or element t % 4 of f32; with `transposed`, of column t // 4. All
    threads of the warp must execute it.
    """

    pointer: Value = operand()
    index: Value = operand()
    dtype: DType = attribute()
    transposed: bool = attribute(default=False)

    pure = False

    def infer(self) -> tuple[Type, ...]:
        if self.dtype not in (F16, BF16) and (self.dtype is not F32 or self.transposed):
            raise self.fail(f"{self.name} takes f16, bf16, or f32 not transposed, not {self.dtype}")
        return (register_of(self.dtype),) * 4


@op("simt.mma")
class Mma(Op):
    """Tensor-core product `sums + lhs @ rhs` of fragments: [16, k] by [k, 8], sums [16, 8] in f32.

    k is 16 for f16 and bf16 (PTX: `mma.m16n8k16`). For f32 it is 8 (`mma.m16n8k8`), and both factors are
    rounded to tf32, 10 bits of mantissa, to nearest, ties away from zero. Products are exact; the order and
    rounding of the additions are up to the hardware, in about the precision of f32.

    Thread t, with g = t // 4 and p = t % 4, holds of lhs rows g and g + 8 in the first half of k, then both
    in the second half; of rhs column g in both halves of k: in each case the elements that `load_matrix`
    gives. Of the sums it holds row g in columns 2 p and 2 p + 1, then row g + 8. All threads of the warp
    must execute it.
    """

    lhs: Sequence[Value] = operands()
    rhs: Sequence[Value] = operands()
    sums: Sequence[Value] = operands()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        factors = {value.type for value in (*self.lhs, *self.rhs)}
        supported = any(factors == {register_of(dtype)} for dtype in (F16, BF16, F32))
        counts = len(self.lhs), len(self.rhs), len(self.sums)
        if not supported or counts != (4, 2, 4) or {value.type for value in self.sums} != {F32}:
            raise self.fail(
                f"{self.name} takes 4 and 2 registers of f16, bf16 or f32, and 4 sums in f32"
            )
        return (F32,) * 4


@op("simt.join")
class Join(Op):
    """Pack two 16-bit elements into a register, as `simt.mma` takes it."""

    first: Value = operand()
    second: Value = operand()

    def infer(self) -> Type:
        dtype = self.first.type
        if dtype not in (F16, BF16) or self.second.type is not dtype:
            raise self.fail(f"{self.name} takes two f16 or two bf16")
        assert isinstance(dtype, DType)
        return VectorType(dtype, 2)
