"""The memory that this process may use, so that requests that cannot fit are refused before work begins.

Linux overcommits memory: without this check, a size with a few zeros too many would not fail, but make
the machine swap, or end another process.
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
"""Requests of fewer bytes are not compared with the free memory."""
ADDRESSABLE = 1 << 47
"""Bytes that a process can address on current processors; nothing larger is compiled."""
MEMINFO = Path("/proc/meminfo")

_FILES = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""The files with the limit and the usage of a control group, of version 2 and of version 1."""
_CACHED = ("inactive_file", "active_file")
"""The parts of the usage that are cached files, which the kernel reclaims on demand."""


def machine_memory(groups: Path = cgroups.GROUPS, membership: Path = cgroups.MEMBERSHIP) -> int:
    """Bytes of the memory of the machine, limited by the control groups of the process."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *[limit for _, limit, _ in _limits(groups, membership)]])


def free_memory(
    groups: Path = cgroups.GROUPS,
    membership: Path = cgroups.MEMBERSHIP,
    meminfo: Path = MEMINFO,
) -> int:
    """Bytes that this process may still allocate, by the available memory and by its control groups.

    If the system does not report them, all memory of the machine.
    """
    free = machine_memory(groups, membership)
    for line in cgroups.read(meminfo).splitlines():
        if line.startswith("MemAvailable:"):
            free = min(free, int(line.split()[1]) << 10)
    for group, limit, usage in _limits(groups, membership):
        used = cgroups.read(group / usage).strip()
        if used.isdigit():
            free = min(free, max(0, limit - int(used) + _cached(group)))
    return free


def _limits(groups: Path, membership: Path) -> Iterator[tuple[Path, int, str]]:
    """Each group that has a limit, the limit, and the name of the file with the usage."""
    for group in cgroups.own_groups("memory", groups, membership):
        for limit, usage in _FILES:
            text = cgroups.read(group / limit).strip()
            if text.isdigit():
                yield group, int(text), usage


def _cached(group: Path) -> int:
    """Bytes of cached files in the usage of a group."""
    pairs = (line.split() for line in cgroups.read(group / "memory.stat").splitlines())
    return sum(int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] in _CACHED)


@cache
def _all_memory() -> int:
    """The memory of the machine, looked up once since every call by name needs it."""
    return machine_memory()


def check_fits(what: str, needed: int) -> None:
    """Raise Unsupported (D0705) if `needed` bytes exceed the memory of the machine."""
    total = _all_memory()
    if needed > total:
        raise _too_large(what, needed, f"this machine has {total / GIB:,.1f}")


def check_free(what: str, needed: int) -> None:
    """Raise Unsupported (D0705) if `needed` bytes, about to be allocated, exceed the free memory."""
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
