"""Working memory that a caller lends to a call: what it must be, and why other memory is refused.

>>> from dlc.runtime.buffers import aligned_bytes
>>> block = aligned_bytes(256)
>>> lent_address("f", block, 256, []) == address(block)
True
>>> lent_address("f", block[:128], 256, [])
Traceback (most recent call last):
    ...
dlc.errors.CallError: error[D0817]: f: arena= has 128 bytes, the call works in 256
   = help: new_arena(...) of the entry point makes one for these sizes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.buffers import ALIGNMENT, address
from dlc.runtime.results import shares_memory

Array = NDArray[np.generic]

_FITS = 0x1 | 0x400
"""NumPy's flags C_CONTIGUOUS and WRITEABLE."""


def lent_address(entry: str, arena: object, needed: int, arrays: Sequence[Array]) -> int:
    """Where the memory that is lent begins, once it is known to fit; `arrays` are those of the call.

    Raises CallError (D0817) for what is no array of u8, is too small, read-only or not contiguous, begins
    at no multiple of 64, or overlaps an array of the call.
    """
    if not isinstance(arena, np.ndarray):
        raise _refused(
            entry,
            f"arena= is a {type(arena).__name__}, and no array",
            "np.frombuffer(..., np.uint8) makes an array of what has bytes",
        )
    block = cast("Array", arena)
    if block.dtype != np.uint8:
        raise _refused(
            entry, f"arena= has the dtype {block.dtype}, not uint8", "lend arena.view(np.uint8)"
        )
    way_out = "new_arena(...) of the entry point makes one for these sizes"
    if block.flags.num & _FITS != _FITS:
        raise _refused(entry, "arena= is read-only, or not contiguous", way_out)
    if block.nbytes < needed:
        raise _refused(
            entry, f"arena= has {block.nbytes} bytes, the call works in {needed}", way_out
        )
    start = address(block)
    if start % ALIGNMENT:
        raise _refused(
            entry, f"arena= begins {start % ALIGNMENT} bytes behind a multiple of 64", way_out
        )
    if shares_memory(block, arrays):
        raise _refused(entry, "arena= shares memory with an input or output", way_out)
    return start


def _refused(entry: str, message: str, help: str) -> CallError:
    return CallError(f"{entry}: {message}", code="D0817", help=help)
