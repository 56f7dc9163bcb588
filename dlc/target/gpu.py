"""GPUs of NVIDIA's: what each architecture has, as passes, lowerings and LLVM ask it.

Limits are those of the CUDA C++ Programming Guide, "Compute Capabilities", table of
technical specifications.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dlc.errors import UsageError
from dlc.errors.options import option
from dlc.ir.types import BF16, F16, F32, DType
from dlc.target.cpu import CpuTarget
from dlc.target.gpu_costs import USUAL_COSTS, GpuCosts
from dlc.target.gpu_peaks import A100, A6000, ADA_6000, B200, H200, RTX_5090, Peak
from dlc.target.products import AVX2

KIB = 1024
TRIPLE = "nvptx64-nvidia-cuda"
RESERVED = 1 * KIB
"""Of the shared memory of a block, what CUDA keeps for itself."""
ACCESS = 16
"""The most bytes that a thread moves by one instruction. Whole arrays begin at multiples of it."""
SECTOR = 32
"""Bytes that memory moves together: neighbouring threads read as many, at least."""
THREAD = CpuTarget(
    "thread",
    (),
    vector_bytes=ACCESS,
    vector_registers=16,
    fma=True,
    converts_half=True,
    converts_brain=True,
    rounds=True,
    triple=TRIPLE,
    products=AVX2,
)
"""A thread as a processor that runs the tiles of a loop."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How much work keeps a GPU busy, and what is too little."""

    blocks: int = 128
    """Blocks of a product that keep a GPU busy."""
    wide_tiles: int = 96
    """Wide tiles of a product that do: about as many as there are multiprocessors."""
    scatter_blocks: int = 264
    """Stretches of a scatter that do: each reads all indices."""
    light_blocks: int = 1 << 10
    """Blocks of little work that a GPU has room for at a time."""
    idle_threads: int = 8192
    """So few threads leave most of a GPU idle."""
    threads: int = 1 << 16
    """Threads that fill a GPU, where each has an element or a few neighbours."""
    fold_threads: int = 1 << 18
    """Folds that keep a GPU busy when each is a thread's; fewer are not worth doing side by side in one."""
    split_elements: int = 1 << 18
    """Elements that are folded, below which a second launch takes longer than it saves."""
    matrix_steps: int = 1024
    """Steps of a part of a product along k, at least, where matrix instructions multiply."""
    fma_steps: int = 256
    """The same without."""
    update_bytes: int = 1 << 20
    """A small weight: it, and its moments, are moved in less time than a launch takes."""
    row_bytes: int = 32 * KIB
    """Shared memory for the rows of a block: with more, a multiprocessor has room for fewer blocks."""
    vector_rows: int = 4
    """Rows that a thread multiplies with what it has read, at most: fewer make a product of vectors."""


USUAL_OCCUPANCY = Occupancy()


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """An architecture that code is made for.

    >>> GpuTarget.named("sm_90").shared_bytes
    232448
    """

    name: str
    """As `ptxas -arch` spells it."""
    ptx: int
    """The version of PTX, in tenths, that code is written in."""
    multiprocessors: int
    """Of the largest chip; code does not depend on it."""
    shared_bytes: int
    """Of shared memory that a block may have, at most."""
    warp: int = 32
    block_threads: int = 1024
    """Threads of a block, at most."""
    matrix_dtypes: frozenset[DType] = frozenset({F16, BF16, F32})
    """What `mma` multiplies; f32 as tf32."""
    copies_async: bool = True
    """Whether `cp.async` brings elements to shared memory while others are multiplied."""
    thread: CpuTarget = THREAD
    occupancy: Occupancy = USUAL_OCCUPANCY
    costs: GpuCosts = USUAL_COSTS
    peak: Peak = A100
    """What it reaches at best; code does not depend on it."""

    def __str__(self) -> str:
        """What it has, for people.

        >>> print(GpuTarget.named("sm_80"))
        108 multiprocessors, 163 KiB shared by a block, mma of bf16, f16 and f32, cp.async
        """
        dtypes = sorted(map(str, self.matrix_dtypes))
        facts = [
            f"{self.multiprocessors} multiprocessors",
            f"{self.shared_bytes // KIB} KiB shared by a block",
            *([f"mma of {', '.join(dtypes[:-1])} and {dtypes[-1]}"] if dtypes[1:] else []),
            *(["cp.async"] if self.copies_async else []),
        ]
        return ", ".join(facts)

    @classmethod
    def named(cls, name: str) -> GpuTarget:
        """The one of a name such as `sm_80`, the oldest for an empty name. Raises UsageError (D0920)."""
        if name and name not in GPUS:
            kinds = f"there are {', '.join(GPUS)}"
            which = f"; {option('device', f'cuda:{name}')} says which GPU of a machine it is"
            help = kinds + which if name.isdecimal() else kinds
            raise UsageError(f"no GPU is called {name!r}", code="D0920", help=help)
        return GPUS[name or next(iter(GPUS))]

    def has_room_for(self, blocks: int, shared: int) -> bool:
        """Whether a multiprocessor has room for `blocks` blocks with `shared` bytes of shared memory each.

        It has 1 KiB more than a block may have, and keeps 1 KiB of each block for itself.

        >>> [GpuTarget.named(name).has_room_for(2, 96 * KIB) for name in ("sm_80", "sm_90")]
        [False, True]
        """
        whole = self.shared_bytes + RESERVED
        return shared <= self.shared_bytes and blocks * (shared + RESERVED) <= whole

    def has_matrix_instructions(self, dtype: DType, precision: str) -> bool:
        """Whether matrix instructions multiply numbers of a dtype.

        `precision` is `--matmul-precision`: f32 is multiplied so only where it may be rounded to tf32.
        """
        return dtype in self.matrix_dtypes and (dtype is not F32 or precision == "tf32")


def _architecture(
    name: str,
    multiprocessors: int,
    shared_bytes: int,
    memory_byte: float,
    cpu_threads: int,
    peak: Peak,
    ptx: int = 80,
) -> GpuTarget:
    costs = GpuCosts(memory_byte=memory_byte, cpu_threads=cpu_threads)
    return GpuTarget(name, ptx, multiprocessors, shared_bytes, costs=costs, peak=peak)


GPUS: Mapping[str, GpuTarget] = MappingProxyType(
    {
        gpu.name: gpu
        for gpu in (
            _architecture("sm_80", 108, 163 * KIB, memory_byte=0.7, cpu_threads=120, peak=A100),
            _architecture("sm_86", 84, 99 * KIB, memory_byte=1.5, cpu_threads=100, peak=A6000),
            _architecture("sm_89", 142, 99 * KIB, memory_byte=1.2, cpu_threads=150, peak=ADA_6000),
            _architecture("sm_90", 132, 227 * KIB, memory_byte=0.35, cpu_threads=300, peak=H200),
            _architecture("sm_90a", 132, 227 * KIB, memory_byte=0.35, cpu_threads=300, peak=H200),
            # PTX knows these since 8.6 and 8.7, "PTX ISA Notes", table of targets of `.target`.
            _architecture(
                "sm_100", 148, 227 * KIB, memory_byte=0.2, cpu_threads=350, peak=B200, ptx=86
            ),
            _architecture(
                "sm_100a", 148, 227 * KIB, memory_byte=0.2, cpu_threads=350, peak=B200, ptx=86
            ),
            _architecture(
                "sm_120", 170, 99 * KIB, memory_byte=0.9, cpu_threads=190, peak=RTX_5090, ptx=87
            ),
        )
    }
)
"""By architecture, the oldest first."""
