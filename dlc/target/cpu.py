"""Processors: what each has, as passes, lowerings and LLVM ask it.

`dlc.runtime.cpu.features` has the features of every x86-64 processor with a name, for the loader checks
them, too. Here a processor's features become facts once, and nothing else reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from dlc.errors import UsageError
from dlc.ir.types import F32, DType
from dlc.runtime.cpu.features import LEVELS, NAMED, host_caches, host_features
from dlc.target.cpu_costs import AVX512_COSTS, USUAL_COSTS, CpuCosts
from dlc.target.products import AVX2, AVX512, ProductBlocking

HOST = "host"
"""The name of the processor that the compiler runs on."""
LINE_BYTES = 64
"""Bytes of a cache line, of all x86-64 processors."""
LINE_FLOATS = LINE_BYTES // F32.bytes
"""Elements of f32 in a cache line."""
TARGETS = (HOST, *LEVELS, *NAMED)
"""The names of processors."""
TRIPLE = "x86_64-unknown-linux-gnu"
KIB = 1024
USUAL_CACHES = 32 * KIB, 1024 * KIB
"""Where a processor's are not known."""
CACHES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "haswell": (32 * KIB, 256 * KIB),
        "skylake": (32 * KIB, 256 * KIB),
        "skylake-avx512": (32 * KIB, 1024 * KIB),
        "cascadelake": (32 * KIB, 1024 * KIB),
        "icelake-server": (48 * KIB, 1280 * KIB),
        "sapphirerapids": (48 * KIB, 2048 * KIB),
        "znver1": (32 * KIB, 512 * KIB),
        "znver2": (32 * KIB, 512 * KIB),
        "znver3": (32 * KIB, 512 * KIB),
        "znver4": (32 * KIB, 1024 * KIB),
        "znver5": (48 * KIB, 1024 * KIB),
    }
)
"""Bytes of a core's first-level data cache and second-level cache, by data sheet."""


@dataclass(frozen=True, slots=True)
class CpuTarget:
    """A processor that code is made for.

    `features` is sorted, in LLVM's names, and complete with respect to
    `dlc.runtime.cpu.features.FEATURES`: code for this processor runs on every machine that has them.

    >>> CpuTarget.named("x86-64-v3").vector_bytes
    32
    """

    name: str
    """`host`, or LLVM's name of it."""
    features: tuple[str, ...]
    vector_bytes: int
    """Bytes of a vector register."""
    vector_registers: int
    fma: bool
    """Whether it multiplies and adds in one instruction."""
    converts_half: bool
    """Whether it converts between f16 and f32 in one instruction."""
    rounds: bool
    """Whether it rounds floats to integers in one instruction."""
    converts_brain: bool = False
    """Whether it rounds f32 to bf16, denormal numbers too, in one instruction."""
    dot_pairs: bool = False
    """Whether one instruction multiplies i16 and adds the products in pairs, in the widest register."""
    dot_bf16: bool = False
    """Whether one instruction multiplies bf16 and adds the products in pairs, in the widest register."""
    triple: str = TRIPLE
    l1_bytes: int = USUAL_CACHES[0]
    """Bytes of a core's first-level data cache."""
    l2_bytes: int = USUAL_CACHES[1]
    """Bytes of a core's second-level cache."""
    costs: CpuCosts = USUAL_COSTS
    products: ProductBlocking = AVX2

    def lanes(self, dtype: DType) -> int:
        """Elements of a dtype in a register."""
        return max(1, self.vector_bytes // dtype.bytes)

    def __str__(self) -> str:
        """What it has, for people.

        >>> print(CpuTarget.named("x86-64-v3"))
        16 registers of 32 bytes, fma, f16 conversion, rounding, L1 32 KiB, L2 1024 KiB
        """
        has = ("fma", self.fma), ("f16 conversion", self.converts_half), ("rounding", self.rounds)
        facts = [
            f"{self.vector_registers} registers of {self.vector_bytes} bytes",
            *[name for name, there in has if there],
            f"L1 {self.l1_bytes // KIB} KiB",
            f"L2 {self.l2_bytes // KIB} KiB",
        ]
        return ", ".join(facts)

    @classmethod
    def named(cls, name: str) -> CpuTarget:
        """The processor called `name`: "host", an x86-64 level ("x86-64-v3") or a processor ("znver4").

        Raises UsageError (D0920) for any other name.
        """
        if name == HOST:
            caches, (l1_bytes, l2_bytes) = host_caches(), USUAL_CACHES
            return replace(
                x86_64(name, host_features()),
                l1_bytes=caches.get(1, l1_bytes),
                l2_bytes=caches.get(2, l2_bytes),
            )
        if name not in TARGETS:
            raise UsageError(
                f"no target is called {name!r}",
                code="D0920",
                help=f"there are {', '.join(TARGETS)}",
            )
        return x86_64(name, LEVELS[name] if name in LEVELS else NAMED[name])


def x86_64(name: str, features: Iterable[str]) -> CpuTarget:
    """The description of an x86-64 processor that has these features."""
    has = frozenset(features)
    l1_bytes, l2_bytes = CACHES.get(name, USUAL_CACHES)
    wide = "avx512f" in has
    return CpuTarget(
        name,
        tuple(sorted(has)),
        vector_bytes=64 if wide else 32 if "avx" in has else 16,
        vector_registers=32 if wide else 16,
        fma="fma" in has,
        converts_half="f16c" in has,
        rounds="sse4.1" in has,
        dot_pairs="avx512bw" in has if wide else "avx2" in has or "avx" not in has,
        dot_bf16="avx512bf16" in has,
        l1_bytes=l1_bytes,
        l2_bytes=l2_bytes,
        costs=AVX512_COSTS if wide else USUAL_COSTS,
        products=AVX512 if wide else AVX2,
    )
