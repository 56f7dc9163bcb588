"""The contract between compiled code and everything that calls it, version 1.

A compiled model is three read-only things: *kernels* (machine code in one image), a *program* for each
entry point (a table of steps), and *sizes* (the numbers the steps use: bytes, extents, strides, tile
counts; evaluated from the dims once for each tuple of sizes and cached). One small native *engine*,
the same in every artifact of a target, walks a program on every thread of a call.

The engine has one entry, `int32 dlc_enter(dlc_call *)`; it returns the status code (0 is success).

**Call**: an array of 64-bit words, `CallWord` names them. Pointers are stored as words.

**Kernel**: `void kernel(const int64 *args, int64 first, int64 last, dlc_call *call)` computes tiles
`first <= t < last` of one op. Which tiles exist depends on sizes only, never on the thread count, and
each output element belongs to one tile: so the bits are the same for any number of threads.
A kernel that fails calls no one: it writes the status words (lowest step, then lowest tile wins) and
returns; the engine notices at the end of the wave, and all threads leave together.

**Program**: 64-bit little-endian words. `program[0]` is the number of steps, `program[1]` the word
offset of the argument table, `program[2]` is 1 if any wave is worth more than one thread, then the
steps, `STEP_WORDS` words each, as `StepWord` names them. The meaning of the fields by `Opcode`:

- `WAVE` a = number of CALL steps that follow and belong to it, b = 1 if a barrier ends it,
  c = 1 if thread 0 does all of it. Ops of a wave are independent; threads share their tiles by cost.
- `CALL` a = byte offset of the kernel in the image, b = first argument (index into the argument
  table), c = number of arguments, d = size index of the tile count, e = size index of the cost of one
  tile (in nanoseconds, at least 1), f = op id (for status, trace and probes).
- `LOOP` a = counter, b = *argument* index that gives the trip count, c = step to go to when it is 0.
  Sets the counter to 0.
- `NEXT` a = counter, b = argument index of the trip count, c = first step of the body.
  Adds one to the counter and goes to c while it is below the count.
- `BRANCH` a = argument index of a pointer to a bool byte, b = step to go to when it is false,
  c = step to go to when it is true. All threads read it between two barriers.
- `LIMIT` a = counter, b = size index of the limit, c = op id. Adds one to the counter; at the limit
  the call fails with `Status.LIMIT`.
- `ZERO` a = counter. Sets it to 0.
- `JUMP` a = step. `END` ends the program.

**Argument**: `ARG_WORDS` words, `ArgWord`. Its value is, by `ArgKind`:
`SIZE` sizes[offset]; `POINTER` roots[root] + sizes[offset] + counter * sizes[stride] (no counter: -1;
`THREAD` as counter means the thread number: per-thread scratch); `LOADED` the int64 found at that
pointer; `COUNTER` the counter's value itself.

**Roots**: pointers; `Root` names the fixed ones, then come the inputs, then the outputs.
"""

from __future__ import annotations

from enum import IntEnum

ABI_VERSION = 1

STEP_WORDS = 8
ARG_WORDS = 5
HEADER_WORDS = 3

MAX_ARGS = 64
"""Arguments of one kernel call."""
MAX_COUNTERS = 16
"""Loop counters of one program: the nesting depth of loops plus `while` limits."""
MAX_THREADS = 256
THREAD = 1000
"""As an argument's counter: the number of the thread that runs the step."""


class CallWord(IntEnum):
    """The 64-bit words of a `dlc_call`."""

    VERSION = 0
    THREADS = 1
    POOL = 2  # the pool's state block, or 0 to run on the caller alone
    CODE = 3  # where the kernel image was mapped
    PROGRAM = 4
    SIZES = 5
    ROOTS = 6
    CANCEL = 7  # pointer to an int32 that another thread may set to 1, or 0
    STOP_AFTER = 8  # op id after whose wave the call ends early with Status.STOPPED, or -1
    TRACE = 9  # pointer to trace records (4 words: op id, thread, start, end in cycles), or 0
    TRACE_CAPACITY = 10  # in records
    TRACE_COUNT = 11  # written by the engine
    STATUS = 12  # what dlc_enter returns
    STATUS_STEP = 13  # op id
    STATUS_TILE = 14
    STATUS_A = 15  # what the kernel says about it: for INDEX the index and the extent
    STATUS_B = 16
    LOCK = 17  # guards the status words while kernels write them; 0 on entry
    RESERVED = 18
    COUNT = 19


class Status(IntEnum):
    """Why a call ended."""

    OK = 0
    INDEX = 1  # an index out of range: A the index, B the extent
    LIMIT = 2  # a `while` ran past its limit: A the limit
    CANCELLED = 3
    STOPPED = 4  # at STOP_AFTER, as asked
    BOUND = 5  # a data-dependent size exceeded its bound: A the size, B the bound
    VERSION = 6  # the call struct is of another ABI version


class Opcode(IntEnum):
    """Kinds of program steps."""

    END = 0
    WAVE = 1
    CALL = 2
    LOOP = 3
    NEXT = 4
    BRANCH = 5
    LIMIT = 6
    ZERO = 7
    JUMP = 8


class StepWord(IntEnum):
    """The words of one step."""

    OPCODE = 0
    A = 1
    B = 2
    C = 3
    D = 4
    E = 5
    F = 6
    G = 7


class ArgKind(IntEnum):
    """How an argument's value is found."""

    SIZE = 0
    POINTER = 1
    LOADED = 2
    COUNTER = 3


class ArgWord(IntEnum):
    """The words of one argument."""

    KIND = 0
    ROOT = 1
    OFFSET = 2  # size index
    COUNTER = 3  # counter number, THREAD, or -1
    STRIDE = 4  # size index, or -1


class Root(IntEnum):
    """The fixed roots; input k is `INPUTS + k`, output k follows the last input."""

    ARENA = 0
    WEIGHTS = 1  # prepared weights
    SOURCES = 2  # weights as they come from the file (for `prepare`)
    SCRATCH = 3  # per-thread scratch
    CONSTANTS = 4  # read-only data of the artifact
    INPUTS = 5


IMPORTS = (
    "memcpy",
    "memmove",
    "memset",
    "pthread_create",
    "pthread_detach",
    "pthread_self",
    "syscall",
    "sched_yield",
    "sgemm_",
    "dgemm_",
    "sgemv_",
    "dgemv_",
    "openblas_set_num_threads_local",
)
"""The outside functions that code in an artifact may call; anything else is refused."""
