"""The best rates of the GPUs of an architecture, by data sheet: the roof of a profile.

Of an architecture the chip counts that has the most: shares of the roof are too low on smaller ones, never
too high. Products by matrix instructions are dense, with sums in f32. Where no bandwidth of a second-level
cache is published it is that of an A100, 5120 bytes in a cycle ("NVIDIA A100 Tensor Core GPU Architecture",
"L2 cache"), at the chip's own clock.
"""

from __future__ import annotations

from typing import NamedTuple

from dlc.ir.types import BF16, F16, F32, DType

MIB = 1 << 20


class Peak(NamedTuple):
    """The best rates: operations, or bytes, in a nanosecond (GFLOP/s, GB/s)."""

    fma: int
    """Of f32 without matrix instructions."""
    tf32: int
    """Of f32 by matrix instructions, rounded to tf32."""
    half: int
    """Of f16 and bf16 by matrix instructions."""
    memory: int
    cache_bytes: int
    """Of the second-level cache."""
    cache: int

    def matrices(self, dtype: DType) -> int:
        """Of matrix instructions on numbers of a dtype; 0 where there are none.

        >>> A100.matrices(BF16), A100.matrices(F32)
        (312000, 156000)
        """
        return {F16: self.half, BF16: self.half, F32: self.tf32}.get(dtype, 0)


A100 = Peak(19_500, 156_000, 312_000, 2_039, 40 * MIB, 7_200)
"""A100 SXM 80 GB, data sheet of 2021."""
A6000 = Peak(38_700, 77_400, 154_800, 768, 6 * MIB, 9_200)
"""RTX A6000, data sheet; "NVIDIA Ampere GA102 GPU Architecture"."""
ADA_6000 = Peak(91_100, 182_100, 364_200, 960, 96 * MIB, 12_800)
"""RTX 6000 Ada, data sheet; "NVIDIA Ada GPU Architecture"."""
H200 = Peak(66_900, 494_700, 989_400, 4_800, 50 * MIB, 9_300)
"""H200 SXM, data sheet; arithmetic as of the H100 SXM5, "NVIDIA H100 Tensor Core GPU Architecture"."""
B200 = Peak(75_000, 1_125_000, 2_250_000, 8_000, 126 * MIB, 10_000)
"""A GPU of HGX B200, data sheet."""
RTX_5090 = Peak(104_800, 104_800, 209_500, 1_792, 96 * MIB, 12_300)
"""GeForce RTX 5090, "NVIDIA RTX Blackwell GPU Architecture"."""
