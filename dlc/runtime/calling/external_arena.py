"""External arenas: working memory that the caller lends to a call, and its checks.

>>> from dlc.runtime.system.buffers import aligned_bytes
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

import os
import threading
from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.calling.aliasing import shares_memory
from dlc.runtime.system.buffers import ALIGNMENT, address

Array = NDArray[np.generic]

_FITS = 0x1 | 0x400
"""NumPy's flags C_CONTIGUOUS and WRITEABLE."""


class _Loans:
    """The external arenas in use by calls of all models in the process: end address by start address."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        self.lock = threading.Lock()


_LOANS = _Loans()


def lend(entry: str, start: int, length: int) -> None:
    """Reserve the memory at an address for a call, until `give_back`.

    Raises CallError (D0819) while another call works in any of it.
    """
    end = start + length
    with _LOANS.lock:
        for other, other_end in _LOANS.ends.items():
            if other < end and start < other_end:
                raise CallError(
                    f"{entry}: arena= is the memory that another call works in",
                    code="D0819",
                    help="lend each of the calls that run at once memory of its own",
                )
        _LOANS.ends[start] = end


def give_back(start: int) -> None:
    """End the reservation of the memory at this address."""
    with _LOANS.lock:
        del _LOANS.ends[start]


if hasattr(os, "register_at_fork"):
    # No call runs in a forked child, and a lock held during the fork would never be released there.
    os.register_at_fork(after_in_child=_LOANS.__init__)


def lent_address(entry: str, arena: object, needed: int, arrays: Sequence[Array]) -> int:
    """Check an external arena, and return its address; `arrays` are those of the call.

    Raises CallError (D0817) if it is not an array of u8, is too small, read-only, not contiguous or not
    64-byte aligned, or overlaps an array of the call.
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
