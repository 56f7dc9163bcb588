"""The amount of GPU memory that dlc has allocated, and a limit on it."""

from __future__ import annotations

from operator import index
from typing import SupportsIndex

import numpy as np

from dlc.errors import UsageError
from dlc.errors.boundary import without_frames
from dlc.runtime.cuda.devices import driver_of
from dlc.runtime.cuda.memory_use import GpuMemory


@without_frames
def gpu_memory(device: str = "cuda") -> GpuMemory:
    """How much memory of a GPU dlc has, in bytes. Raises Unsupported (D0702) where there is no such GPU."""
    return driver_of(device).memory_use.shown()


@without_frames
def limit_gpu_memory(most: SupportsIndex | None, device: str = "cuda") -> None:
    """Limit the bytes of a GPU's memory that dlc allocates; None removes the limit.

    What is in use stays; later calls, weights and arrays beyond it raise CallError (D0613). Raises
    UsageError (D0901) for what is no number of bytes, Unsupported (D0702) where there is no such GPU.
    """
    limit = None if most is None else _number_of_bytes(most)
    driver_of(device).memory_use.limit(limit)


def _number_of_bytes(most: object) -> int:
    """A whole number, perhaps one of NumPy's."""
    if isinstance(most, SupportsIndex) and not isinstance(most, bool | np.bool_):
        count = index(most)
        if count >= 0:
            return count
    raise UsageError(
        f"a limit of memory is a number of bytes from 0 on, found {most!r}",
        code="D0901",
        help="dlc.limit_gpu_memory(8 << 30) allows 8 GiB, None takes the limit away",
    )
