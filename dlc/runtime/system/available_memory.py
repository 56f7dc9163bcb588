"""How much memory this process may have, so that what cannot fit is refused before work begins.

Linux promises more memory than there is: without this, a size with a few zeros too many would not fail
but drive the machine into swapping, or end another process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from dlc.errors import Unsupported
from dlc.runtime.system import cgroups

GIB = 1 << 30
NOTABLE = 256 << 20
"""Bytes below which nobody looks how much is free."""
ADDRESSABLE = 1 << 47
"""Bytes that a process can address on the processors of today; nothing larger is compiled."""
MEMINFO = Path("/proc/meminfo")

_FILES = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""Where control groups of version 2 and of version 1 say their limit, and how much is in use."""
_CACHED = ("inactive_file", "active_file")
"""What of that is only remembered from files, and goes when it is in the way."""


def machine_memory(groups: Path = cgroups.GROUPS, membership: Path = cgroups.MEMBERSHIP) -> int:
    """Bytes of memory that the machine has, or fewer if a control group's limit says so."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([found, *[limit for _, limit, _ in _limits(groups, membership)]])


def free_memory(
    groups: Path = cgroups.GROUPS,
    membership: Path = cgroups.MEMBERSHIP,
    meminfo: Path = MEMINFO,
) -> int:
    """Bytes that this process may still take: what the machine has available, and its control groups.

    Where the system does not say, all that there is.
    """
    found = machine_memory(groups, membership)
    for line in cgroups.read(meminfo).splitlines():
        if line.startswith("MemAvailable:"):
            found = min(found, int(line.split()[1]) << 10)
    for group, limit, usage in _limits(groups, membership):
        used = cgroups.read(group / usage).strip()
        if used.isdigit():
            found = min(found, max(0, limit - int(used) + _cached(group)))
    return found


def _limits(groups: Path, membership: Path) -> Iterator[tuple[Path, int, str]]:
    """Each group that has a limit, the limit, and the file that tells how much of it is in use."""
    for group in cgroups.own_groups("memory", groups, membership):
        for limit, usage in _FILES:
            text = cgroups.read(group / limit).strip()
            if text.isdigit():
                yield group, int(text), usage


def _cached(group: Path) -> int:
    """Bytes in use of a group that are given up when others are needed."""
    pairs = (line.split() for line in cgroups.read(group / "memory.stat").splitlines())
    return sum(int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] in _CACHED)


@cache
def _all_memory() -> int:
    """Looked up once: every call by name asks."""
    return machine_memory()


def check_fits(what: str, needed: int) -> None:
    """Raises Unsupported (D0705) if so many bytes are more than the machine has."""
    have = _all_memory()
    if needed > have:
        raise _too_large(what, needed, f"this machine has {have / GIB:,.1f}")


def check_free(what: str, needed: int) -> None:
    """Raises Unsupported (D0705) if so many bytes, which are about to be taken, are more than are free."""
    check_fits(what, needed)
    if needed >= NOTABLE:
        free = free_memory()
        if needed > free:
            raise _too_large(what, needed, f"{free / GIB:,.1f} are free on this machine")


def _too_large(what: str, needed: int, instead: str) -> Unsupported:
    return Unsupported(
        f"{what} needs {needed / GIB:,.1f} GiB of memory, and {instead}",
        code="D0705",
        help="use smaller sizes, or a machine with more memory",
    )
