"""How one kernel runs on a GPU: what a thread of a block does, and how the threads work together.

The code of a thread is that of the loop level: `loop`, `scalar` and `vec`, one element or a few
neighbours at a time. Operations here concern the block: memory that its threads share, barriers, and
values that threads of one warp hand each other. A warp is 32 threads that run together.

Between two barriers a thread must not touch memory that another thread of its block writes, and in one
launch no block may touch what another one writes: `dlc.dialects.warps` evaluates kernels and finds both.
"""

from __future__ import annotations

import numpy as np

from dlc.ir.core import Block, Op, Value
from dlc.ir.define import attribute, op, operand, region
from dlc.ir.evaluation import Array, Evaluation
from dlc.ir.types import POINTER, DType, Type
from dlc.runtime.abi import MAX_BLOCK, WARP

__all__ = ["WARP", "Barrier", "Exchange", "Func", "Shared"]


@op("simt.func")
class Func(Op):
    """A kernel: its arguments are the number of the tile, that of the thread, then pointers and sizes.

    Each tile is the work of one block of `threads` threads, whole warps. Tiles are independent.
    """

    body: Block = region()
    sym_name: str = attribute()
    threads: int = attribute()

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


@op("simt.exchange")
class Exchange(Op):
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
