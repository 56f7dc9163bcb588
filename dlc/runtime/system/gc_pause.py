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

MANY = 200_000
"""New objects that take a tenth of a second to traverse."""
_uncollected: list[int] = []
"""The numbers of objects that pauses have left to a later collection."""


@contextmanager
def without_collections() -> Generator[None]:
    """Disable the cyclic garbage collector inside a `with` block.

    Many new objects are not traversed at its end either, but before the next such block, or when Python
    next collects the oldest objects: a process that compiles one model and ends never does.
    """
    collecting = gc.isenabled()
    if collecting and _uncollected:
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
    """Count many new objects among the oldest, unless the caller has frozen some: these would thaw.

    To ask that after few would take longer than what made them: Python walks along all frozen ones.
    """
    if new > MANY and gc.get_freeze_count() == 0:
        gc.freeze()
        gc.unfreeze()
        _uncollected.append(new)
