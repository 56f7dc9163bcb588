"""How long a kernel takes on a GPU, and a transfer to or from it, roughly: what `--target auto` weighs.

As in `estimate`, numbers come from the kernel and the kind of the GPU alone, in picoseconds; nothing is
timed. A kernel takes as long as its arithmetic or its memory, whichever is longer, and a launch on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dlc.dialects import kernel
from dlc.lowering.estimate import bytes_of, work_of

LAUNCH = 4_000_000
"""One launch, until the next kernel may begin."""
LATENCY = 10_000_000
"""A transfer of nothing."""
BYTE_SENT = 83
"""One byte between the memories of host and device: 12 GB in a second."""


class Rates(NamedTuple):
    """What a GPU does: picoseconds for a byte of memory, and how many threads of a processor it equals."""

    byte: float
    threads: int


RATES = {
    "sm_80": Rates(0.7, 120),
    "sm_86": Rates(1.5, 100),
    "sm_89": Rates(1.2, 150),
    "sm_90": Rates(0.35, 300),
    "sm_90a": Rates(0.35, 300),
}
"""By architecture: data sheets, and about 60 % of what they promise."""


def gpu_picoseconds(op: kernel.Kernel, sizes: Mapping[str, int], architecture: str) -> int:
    """How long a kernel takes on a GPU at these sizes."""
    rates = RATES[architecture]
    busy = max(bytes_of(op, sizes) * rates.byte, work_of(op, sizes) / rates.threads)
    return LAUNCH + round(busy)


def transfer_picoseconds(count: int) -> int:
    """How long so many bytes take from one memory to the other."""
    return LATENCY + BYTE_SENT * count
