"""The contract between compiled code and everything that calls it, version 2.

A compiled model is three read-only things: *kernels* (machine code in one image), a *program* for each
entry point (a table of steps), and *sizes* (the numbers the steps use: bytes, extents, strides, tile
counts; evaluated from the dims once for each tuple of sizes and cached). One small native *engine*,
the same in every artifact of a target, walks a program and shares its work with the threads of a pool.

The engine has one entry, `int32 dlc_enter(dlc_call *)`; it returns the status code (0 is success).

**Call**: an array of 64-bit words, `CallWord` names them. Pointers are stored as words. A call struct
belongs to one call at a time. The engine sets the floating-point control state to the default (round
to nearest, denormals kept) and gives the caller's back before it returns.

**Image**: flat position-independent code and constants. It starts with the import table: 8 bytes for
each name in the artifact's list of imports, zero in the file, filled by the loader; the code follows.

**Kernel**: `void kernel(const int64 *args, int64 first, int64 last, int64 *fault)` computes tiles
`first <= t < last` of one op, in that order. Which tiles exist depends on sizes only, never on the
thread count, and each output element belongs to one tile: so the bits are the same for any number of
threads. A kernel that fails calls no one: it writes `FaultWord`s (`fault[STATUS]` is 0 on entry) for
the tile that failed and returns at once. The engine keeps the first failure in program order (wave, then
step, then tile, whatever the thread count) and ends the call with the wave.

**Program**: 64-bit little-endian words: the header, `HeaderWord`, then the steps, `STEP_WORDS` words
each, as `StepWord` names them, then the arguments. Thread 0, the
caller's, walks the steps. The meaning of the fields by `Opcode`:

- `WAVE` a = number of CALL steps that follow and belong to it, b = 1 if thread 0 does all of it, c = 1 if
  an array of the caller may have changed after it: then the call is no longer cancelled.
  Ops of a wave are independent, and all of its tiles are computed before the next step. Threads share
  them by cost: the tiles of a wave in order, laid end to end by cost, are cut into chunks of equal cost,
  which threads take until none is left. A wave employs at most one thread for each `GRAIN` of its cost:
  small waves need no mark, and run on thread 0.
- `CALL` a = byte offset of the kernel in the image, b = first argument (index into the argument
  table), c = number of arguments, d = size index of the tile count, e = size index of the cost of one
  tile (in nanoseconds, at least 1), f = op id (for status, trace and probes), g = how many of its
  arguments, from the first on, point to what it only reads.
- `LOOP` a = counter, b = *argument* index that gives the trip count, c = step to go to when it is 0
  or less. Sets the counter to 0 and remembers the trip count until the counter's next LOOP.
- `NEXT` a = counter, c = first step of the body.
  Adds one to the counter and goes to c while it is below the remembered trip count. From then on, until
  the next NEXT that does so, waves begin with their last tiles instead of the first, or again with the
  first: weights that a round of a loop read last are still in the cache. Waves of b = 1 always begin with
  the first.
- `BRANCH` a = argument index of a pointer to a bool byte, b = step to go to when it is false,
  c = step to go to when it is true.
- `LIMIT` a = counter, b = size index of the limit, c = op id. If the counter has reached the limit the
  call fails with `Status.LIMIT` (A the limit), else adds one to it. It belongs at the start of a body.
- `ZERO` a = counter. Sets it to 0.
- `COMBINE` a = counter, b, d = counters, c, e = size indices:
  counter a = counter b * sizes[c] + counter d * sizes[e]; the place in a nest of loops as one counter.
- `JUMP` a = step. `END` ends the program.

What the compiler guarantees: the sum of tiles * cost over a wave stays below 2**52.

**Time**, in the order of the table, is counted in waves. Memory plans (`dlc.runtime.artifact.plan`) say
from which wave to which a root of the arena is in use.

**Argument**: `ARG_WORDS` words, `ArgWord`. Its value is, by `ArgKind`:
`SIZE` sizes[offset]; `POINTER` roots[root] + sizes[offset] + counter * sizes[stride] (no counter: -1;
`THREAD` as counter means the thread number: per-thread scratch); `LOADED` the int64 found at that
pointer; `COUNTER` the counter's value itself.

**Roots**: pointers; `Root` names the fixed ones, then come the inputs, then the outputs.
"""

from __future__ import annotations

from enum import IntEnum

ABI_VERSION = 2

STEP_WORDS = 8
ARG_WORDS = 5
HEADER_WORDS = 3

MAX_ARGS = 64
"""Arguments of one kernel call."""
MAX_COUNTERS = 16
"""Loop counters of one program: the nesting depth of loops plus `while` limits and combinations."""
MAX_THREADS = 256
WARP = 32
"""Threads of a GPU that run together; a block of threads is made of such."""
MAX_BLOCK = 1024
"""Threads of a block."""
STATIC_SHARED = 48 << 10
"""Bytes of shared memory that a kernel declares, at most; it asks for more when it is launched (CUDA C++
Programming Guide, "Compute Capabilities")."""
MOST_NUMBERED = (1 << 32) - 1
"""The most elements that a kernel numbers in 32 bits."""
GRAIN = 1000
"""Cost of a wave, in nanoseconds, that employs one more thread."""
POOL_BYTES = MAX_THREADS * 256
"""Size of the pool's state: zero to begin with, zero again in a forked child, 64-byte aligned."""
MAX_CPUS = 1024
"""Processors to which workers may be pinned: as many bits as the system's usual sets of them have."""
COPY = 1 << 40
"""In place of a kernel: copy from the first argument to the second as many bytes as the third says, from
the memory of one device to that of another."""
ON_GPU = COPY + 1
"""In programs for a processor and a GPU, what the numbers of kernels on the GPU count from."""
THREAD = 1000
"""As an argument's counter: the number of the thread that runs the step."""


class WorkerWord(IntEnum):
    """The words of a worker's row in the pool that the loader shares with the engine.

    Row k, of 256 bytes, is that of the k-th worker; row 0 is the engine's own.
    """

    CPU = 3  # the processor to which it is pinned, plus 1, or 0; the loader writes it
    SYSTEM_THREAD = 4  # its number in the system, or 0 before it runs; the worker writes it


class CallWord(IntEnum):
    """The 64-bit words of a `dlc_call`. The caller fills in those before `USED`; the engine the others."""

    VERSION = 0
    THREADS = 1  # as many as the call may use
    POOL = 2  # the pool's state, or 0 to run on the caller alone
    CODE = 3  # where the kernel image was mapped
    PROGRAM = 4
    SIZES = 5
    ROOTS = 6
    CANCEL = (
        7  # pointer to an int32 that another thread may set to 1, or 0; read after waves with c = 0
    )
    STOP_AFTER = 8  # op id after whose wave the call ends early with Status.STOPPED, or -1
    TRACE = 9  # pointer to trace records, `TraceWord`, or 0
    TRACE_CAPACITY = 10  # in records
    USED = 11  # threads that took part
    TRACE_COUNT = 12  # records there were to write; those over the capacity were dropped
    STATUS = 13  # what dlc_enter returns
    STATUS_STEP = 14  # op id
    STATUS_TILE = 15
    STATUS_A = 16  # what the kernel says about it: for INDEX the index and the extent
    STATUS_B = 17
    STATUS_ORDER = 18  # where in the order of execution it failed
    LOCK = 19  # guards the status words
    COUNT = 20


class FaultWord(IntEnum):
    """What a failing kernel writes before it returns."""

    STATUS = 0
    TILE = 1
    A = 2
    B = 3
    COUNT = 4


class TraceWord(IntEnum):
    """A trace record: the work of a thread on an op."""

    OP = 0
    THREAD = 1
    START = 2  # in cycles of the time stamp counter
    END = 3
    COUNT = 4


class Status(IntEnum):
    """Why a call ended."""

    OK = 0
    INDEX = 1  # an index out of range: A the index, B the extent
    LIMIT = 2  # a `while` ran past its limit: A the limit
    CANCELLED = 3
    STOPPED = 4  # at STOP_AFTER, as asked
    BOUND = 5  # a data-dependent size exceeded its bound: A the size, B the bound
    VERSION = 6  # the call struct is of another ABI version
    RANGE = 7  # a slice that leaves its axis: A the index where it begins, B the extent


class HeaderWord(IntEnum):
    """The first words of a program."""

    STEPS = 0  # how many steps there are
    ARGUMENTS = 1  # the word at which the table of arguments begins
    IS_SHARED = 2  # 0 if the program is always to run on its caller alone


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
    COMBINE = 9


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
    "pthread_sigmask",
    "syscall",
    "sched_yield",
    "sgemm_",
    "dgemm_",
    "sgemv_",
    "dgemv_",
)
"""The functions that code in an artifact may import; any other is refused.

Those of BLAS have Fortran's interface with 32-bit integers (without the lengths of strings); the caller of
a program that uses them wraps the call in `dlc.runtime.cpu.blas.single_threaded`.
"""

COLLECTIVES = (
    "MPI_Allreduce",
    "MPI_Allgather",
    "MPI_Reduce_scatter_block",
    "MPI_Alltoall",
    "MPI_Bcast",
    "MPI_Sendrecv",
    "MPI_Iallreduce",
    "MPI_Test",
    "MPI_Wait",
)
"""The functions of MPI that code may import too, with its C interface. Counts and handles are passed as
64-bit words, of which an implementation with handles of 32 bits reads the lower half."""

MPI_DATATYPES = {
    "bool": "MPI_UINT8_T",
    "i8": "MPI_INT8_T",
    "i16": "MPI_INT16_T",
    "i32": "MPI_INT32_T",
    "i64": "MPI_INT64_T",
    "u8": "MPI_UINT8_T",
    "u16": "MPI_UINT16_T",
    "u32": "MPI_UINT32_T",
    "u64": "MPI_UINT64_T",
    "f16": "MPI_UINT16_T",
    "bf16": "MPI_UINT16_T",
    "f32": "MPI_FLOAT",
    "f64": "MPI_DOUBLE",
}
"""The handle that stands for each dtype where arrays are sent; nothing is added in 16 bits."""
MPI_OPERATIONS = {"sum": "MPI_SUM", "max": "MPI_MAX", "min": "MPI_MIN"}
COMMUNICATOR = "comm:"
"""What precedes the name of a mesh axis in the import of its communicator."""
COORDINATE = "rank:"
"""The same for this rank's coordinate along the axis."""

COLLECTIVES_ON_GPU = (
    "rank",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "permute",
)
"""What ranks do together with arrays on GPUs: a program calls it like a kernel."""

MPI_WORDS = frozenset(
    {*MPI_DATATYPES.values(), *MPI_OPERATIONS.values(), "MPI_STATUS_IGNORE", "MPI_IN_PLACE"}
)
"""The handles that code may import: words of the table that are not addresses of functions."""


def is_collective(name: str) -> bool:
    """Whether an import belongs to the ranks of a mesh: a function or a handle of MPI, or a coordinate."""
    return name in COLLECTIVES or name in MPI_WORDS or name.startswith((COMMUNICATOR, COORDINATE))
