"""Faults that are planted in kernels for a GPU: what is wrong, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from dlc.dialects.simt import WARP
from tests.evaluation.gpu.threads import Threads, launch, memory

THREADS = 2 * WARP
TILES = 2
ROOM = THREADS * TILES


@dataclass(frozen=True, slots=True)
class Fault:
    """How to plant it, or its good twin instead (`right`), and what is said about it."""

    plant: Callable[[Threads, bool], None]
    kind: type[Exception]
    says: str


def cases(faults: Sequence[Fault]) -> list[ParameterSet]:
    """The faults by the names of what plants them."""
    return [pytest.param(fault, id=fault.plant.__name__) for fault in faults]


def run(fault: Fault, *, right: bool) -> None:
    """Run the kernel of a fault; it is given numbers that it may write, and such that it may not."""
    given = memory(np.zeros(ROOM, np.float32))
    constant = memory(np.zeros(ROOM, np.float32), writable=False)
    launch(lambda at: fault.plant(at, right), THREADS, given, constant, tiles=TILES)


def check(fault: Fault) -> None:
    """A fault is found, and the operation that is to be blamed is named with its place."""
    with pytest.raises(fault.kind, match=fault.says) as caught:
        run(fault, right=False)
    assert "kernel.dlm:7:3" in str(caught.value)
