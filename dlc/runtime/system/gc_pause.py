"""Pausing Python's cyclic garbage collector.

The collector traverses all live objects each time enough new ones were allocated. While thousands of
objects are made and kept, such as IR and the tables of an artifact, this takes a tenth of the time and
finds no garbage.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["without_collections"]

FEW = 10_000
"""New objects that are traversed in less time than it may take to ask whether any are frozen."""
MANY = 500_000
"""New objects that are worth a traversal of all there are. As garbage they take about 70 MB."""
_uncollected: list[int] = []
"""The numbers of objects that pauses have left to a later collection."""


@contextmanager
def without_collections() -> Generator[None]:
    """Disable the cyclic garbage collector inside a `with` block.

    New objects are not traversed at its end either, while most of them are still used, but before a later
    block, when there are many, or when Python next collects the oldest objects: a process that compiles
    one model and ends never does.
    """
    collecting = gc.isenabled()
    if collecting and sum(_uncollected) > MANY:
        _uncollected.clear()
        gc.collect()
    gc.disable()
    before, *_ = gc.get_count()
    try:
        yield
    finally:
        if collecting:
            young, *_ = gc.get_count()
            _leave_uncollected(young - before)
            gc.enable()


def _leave_uncollected(new: int) -> None:
    """Count new objects among the oldest, unless the caller has frozen some: these would thaw.

    To ask that after few would take longer than what made them: Python walks along all frozen ones.
    """
    if new > FEW and gc.get_freeze_count() == 0:
        gc.freeze()
        gc.unfreeze()
        _uncollected.append(new)
