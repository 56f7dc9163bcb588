"""How much memory this process may have, so that what cannot fit is refused before work begins.

Linux promises more memory than there is: without this, a size with a few zeros too many would not fail
but drive the machine into swapping, or end another process.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from dlc.errors import Unsupported
from dlc.runtime import cgroups

GIB = 1 << 30


def machine_memory(groups: Path = cgroups.GROUPS, membership: Path = cgroups.MEMBERSHIP) -> int:
    """Bytes of memory that the machine has, or fewer if a control group's limit says so."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([found, *_limits(groups, membership)])


def _limits(groups: Path, membership: Path) -> list[int]:
    texts = [
        cgroups.read(group / file).strip()
        for group in cgroups.own_groups("memory", groups, membership)
        for file in ("memory.max", "memory.limit_in_bytes")
    ]
    return [int(text) for text in texts if text.isdigit()]


ADDRESSABLE = 1 << 47
"""Bytes that a process can address on the processors of today; nothing larger is compiled."""


@cache
def _all_memory() -> int:
    """Looked up once: every call by name asks."""
    return machine_memory()


def check_fits(what: str, needed: int) -> None:
    """Raises Unsupported (D0705) if so many bytes are more than the machine has."""
    have = _all_memory()
    if needed > have:
        raise Unsupported(
            f"{what} needs {needed / GIB:,.1f} GiB of memory, and this machine has {have / GIB:,.1f}",
            code="D0705",
            help="use smaller sizes, or a machine with more memory",
        )
