"""Frames, the state of one call in flight: the `dlc_call` words, the table of roots, an arena.

Frames are pooled, so a call in the steady state allocates nothing. Any number of threads may call at
once: each uses another frame.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.abi import ABI_VERSION, CallWord, Root, Status
from dlc.runtime.calling.device_partition import Partition
from dlc.runtime.cpu import blas, threads
from dlc.runtime.cpu.native import Native
from dlc.runtime.system.buffers import ALIGNMENT, Bytes, address, aligned_bytes
from dlc.runtime.weights.model_weights import WeightRoots

Words = NDArray[np.int64]

_THREADS = CallWord.THREADS.value
_SIZES = CallWord.SIZES.value
_ARENA, _SCRATCH = Root.ARENA.value, Root.SCRATCH.value


class SizedProgram(NamedTuple):
    """A program at one tuple of sizes: the values of its size expressions, and its memory in bytes."""

    sizes: Words
    sizes_at: int
    arena: int
    scratch: int
    """Bytes for each thread."""
    tensors: tuple[int, ...]
    """Bytes of each input and output."""
    partition: Partition | None = None
    """The partition of the arena between host and GPU, in a heterogeneous program."""
    gpu_scratch: int = 0
    """Bytes for all threads of the GPU."""


def working_bytes(sized: SizedProgram, threads: int) -> int:
    """Bytes of host memory of a call: its arena, and the scratch of each thread."""
    return scratch_at(sized) + sized.scratch * threads


def scratch_at(sized: SizedProgram) -> int:
    """Where in the working memory the scratch of the first thread begins, in bytes."""
    arena = sized.arena if sized.partition is None else sized.partition.start
    return -(-arena // ALIGNMENT) * ALIGNMENT


class CallFrame(Protocol):
    """A call of a program on a machine: set the roots from `Root.INPUTS` on, then `run`."""

    roots: ctypes.Array[ctypes.c_int64]
    """The addresses of its memory: those of `Root`, then the inputs and outputs."""

    @property
    def room(self) -> int:
        """Bytes of its working memory."""
        ...

    def run(self, sized: SizedProgram, arena: int = 0) -> int:
        """Run the program at these sizes and return its status, without the interpreter lock.

        The working memory is `working_bytes` at the address `arena`, or that of the frame.
        """
        ...

    def trace_into(self, records: Words | None, *, alone: bool = False) -> None:
        """Let runs fill `records` with the work of threads on ops (`TraceWord`), as far as it has room.

        `alone` leaves all work to the calling thread. None ends both.
        """
        ...

    @property
    def traced(self) -> int:
        """How many records there were to write in the last run."""
        ...

    def status_words(self) -> list[int]:
        """The current `dlc_call` words."""
        ...

    def cancel(self) -> None:
        """Request the end of the running call."""
        ...

    def reset(self) -> None:
        """Clear a request to cancel, before the next call."""
        ...


class FrameSource(Protocol):
    """Makes frames and result arrays for calls: a machine with a model's code."""

    def new_array(
        self, shape: tuple[int, ...], dtype: np.dtype[np.generic], length: int
    ) -> NDArray[np.generic]:
        """A C-contiguous array of `length` bytes for a result, in memory that the machine writes fast."""
        ...

    def frame(
        self,
        program: Bytes,
        threads: int,
        weights: WeightRoots,
        inputs: int = 0,
        outputs: int = 0,
    ) -> CallFrame:
        """The state of a call in flight of a program. It keeps all memory that it is passed alive."""
        ...


class Frame:
    """A call of a program on the processor of this machine; see `CallFrame`."""

    __slots__ = (
        *(
            "_cancel",
            "_enter",
            "_most_threads",
            "_native",
            "_program",
            "_sized",
            "_threads",
            "_uses_blas",
            "_weights",
            "_words_at",
        ),
        *("_work", "roots", "words"),
    )

    def __init__(
        self, native: Native, program: Bytes, thread_count: int, weights: WeightRoots, tensors: int
    ) -> None:
        """`tensors` counts inputs and outputs."""
        self._enter = native.enter
        self._uses_blas = native.uses_blas
        # Keeps the memory alive that the words point to.
        self._native = native
        self._program = program
        self._weights = weights
        self._threads = self._most_threads = thread_count
        self._sized: SizedProgram | None = None
        self._work = aligned_bytes(0)
        self._cancel = ctypes.c_int32(0)
        self.roots = (ctypes.c_int64 * (Root.INPUTS + tensors))()
        self.roots[Root.WEIGHTS], self.roots[Root.SOURCES] = weights.weights, weights.sources
        self.roots[Root.CONSTANTS] = address(native.constants)
        self.words = (ctypes.c_int64 * CallWord.COUNT)()
        self._words_at = ctypes.addressof(self.words)
        self.words[CallWord.VERSION] = ABI_VERSION
        self.words[CallWord.THREADS] = thread_count
        self.words[CallWord.POOL] = threads.POOL
        self.words[CallWord.CODE] = native.code.base
        self.words[CallWord.PROGRAM] = address(program)
        self.words[CallWord.ROOTS] = ctypes.addressof(self.roots)
        self.words[CallWord.CANCEL] = ctypes.addressof(self._cancel)
        self.words[CallWord.STOP_AFTER] = -1

    @property
    def room(self) -> int:
        return len(self._work)

    @property
    def uses_blas(self) -> bool:
        """Whether the program calls BLAS, which may have threads of its own."""
        return self._uses_blas

    @property
    def enter_address(self) -> int:
        """The address of the engine's function."""
        return self._native.enter_address

    def run(self, sized: SizedProgram, arena: int = 0) -> int:
        if arena:
            self._sized = None  # the next call without an arena returns to the frame's own memory
            self._work_at(arena, sized)
        elif sized is not self._sized:
            self._resize(sized)
        if not self._uses_blas:
            return self._enter(self._words_at)
        with blas.single_threaded as limited:
            self.words[_THREADS] = self._threads if limited else 1
            return self._enter(self._words_at)

    def run_up_to(self, op: int, sized: SizedProgram, arena: int = 0) -> int:
        """`run`, but end with success after the wave of an op; nothing of the rest is done."""
        self.words[CallWord.STOP_AFTER] = op
        try:
            status = self.run(sized, arena)
        finally:
            self.words[CallWord.STOP_AFTER] = -1
        return Status.OK if status == Status.STOPPED else status

    def _resize(self, sized: SizedProgram) -> None:
        needed = working_bytes(sized, self._most_threads)
        if needed > len(self._work):
            self._sized = None
            self._work = aligned_bytes(0)  # free the old block before allocating the new one
            self._work = aligned_bytes(needed)
        self._work_at(address(self._work), sized)
        self._sized = sized

    def _work_at(self, base: int, sized: SizedProgram) -> None:
        self.roots[_ARENA] = base
        self.roots[_SCRATCH] = base + scratch_at(sized)
        self.words[_SIZES] = sized.sizes_at

    def trace_into(self, records: Words | None, *, alone: bool = False) -> None:
        self.words[CallWord.TRACE] = 0 if records is None else address(records)
        self.words[CallWord.TRACE_CAPACITY] = 0 if records is None else len(records)
        self.words[_THREADS] = self._threads = 1 if alone else self._most_threads

    @property
    def traced(self) -> int:
        return self.words[CallWord.TRACE_COUNT]

    def status_words(self) -> list[int]:
        return list(self.words)

    def cancel(self) -> None:
        # The call ends after its current wave.
        self._cancel.value = 1

    def reset(self) -> None:
        self._cancel.value = 0
