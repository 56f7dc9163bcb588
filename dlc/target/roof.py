"""The roof of a processor: the least time that arithmetic and traffic can take there (`amounts`).

The numbers are what an AVX-512 server of 2024 reaches at best, where `CpuCosts` has what usual code takes:
a share of the roof says how much is left to win, and on a faster machine it may exceed 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.target.cpu import CpuTarget
from dlc.target.table import cost

KIB = 1024
F32_BYTES = 4


@dataclass(frozen=True, slots=True)
class RoofCosts:
    """The best rates of a thread; those of the third level and of memory are shared by all threads."""

    cycle: int = cost(262, "ps", "a cycle at the clock of vector code")
    units: int = cost(2, "", "multiply-adds of registers in a cycle")
    l1_byte: int = cost(2, "ps/byte", "a byte from or to the first-level cache")
    l2_byte: int = cost(4, "ps/byte", "a byte from or to the second-level cache")
    l3_byte: int = cost(8, "ps/byte", "a byte from or to the third-level cache")
    memory_byte: int = cost(40, "ps/byte", "a byte from or to memory")
    l3_bytes: int = cost(32 * KIB * KIB, "bytes", "the third-level cache")


USUAL_ROOF = RoofCosts()


def operation_femtoseconds(cpu: CpuTarget, costs: RoofCosts = USUAL_ROOF) -> int:
    """An operation on f32 where all registers multiply and add in every cycle.

    >>> operation_femtoseconds(CpuTarget.named("x86-64-v4"))
    4093
    """
    lanes = cpu.vector_bytes // F32_BYTES
    return 1000 * costs.cycle // (lanes * costs.units * (2 if cpu.fma else 1))


def levels(cpu: CpuTarget, costs: RoofCosts = USUAL_ROOF) -> tuple[tuple[int, int], ...]:
    """The caches from the first level on: how many bytes each holds, and picoseconds for a byte.

    The last is memory, which holds everything: 0 bytes.
    """
    return (
        (cpu.l1_bytes, costs.l1_byte),
        (cpu.l2_bytes, costs.l2_byte),
        (costs.l3_bytes, costs.l3_byte),
        (0, costs.memory_byte),
    )
