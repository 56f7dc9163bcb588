"""When Python's collector of cyclic garbage may rest.

It looks at everything that lives each time enough new objects have come: where thousands are made and
kept, as IR and the tables of an artifact are, that is a tenth of the time, and none of them is garbage.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["without_collections"]


@contextmanager
def without_collections() -> Generator[None]:
    """Let the collector rest; what is really garbage goes after that, or when its last reference does."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
