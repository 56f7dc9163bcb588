"""How many threads a call uses by default, and the state of the one pool they come from.

The pool itself is in the engine (`dlc.codegen.engine`): compiled code that starts, wakes and parks
threads. Here is only its memory, which outlives every artifact.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterator
from pathlib import Path

from dlc.runtime.abi import MAX_THREADS, POOL_BYTES
from dlc.runtime.pages import Pages

_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def default_threads() -> int:
    """Threads that this process may keep busy: its CPUs, or fewer if a control group's quota says so.

    A quota of two and a half CPUs makes two threads: three would be stopped in the middle of a step.
    """
    cpus = len(os.sched_getaffinity(0))
    return max(1, math.floor(min(cpus, MAX_THREADS, cpu_quota())))


def cpu_quota(groups: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> float:
    """CPUs' worth of time that control groups (version 1 or 2) allow; infinity without a limit."""
    return min((_limit(group) for group in _own_groups(groups, membership)), default=math.inf)


def _own_groups(groups: Path, membership: Path) -> Iterator[Path]:
    """The folders of the groups that this process is in, each with the ones around it.

    In a container the path in `membership` may be one that only the host sees; then the mount itself
    is the group.
    """
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = groups / controllers if controllers else groups
        if controllers and not mount.is_dir():
            mount = groups / "cpu"
        group = mount / path.lstrip("/")
        yield mount
        for folder in (group, *group.parents):
            if not folder.is_relative_to(mount) or folder == mount:
                break
            yield folder


def _limit(group: Path) -> float:
    quota, _, period = _read(group / "cpu.max").strip().partition(" ")
    if not quota:
        quota = _read(group / "cpu.cfs_quota_us").strip()
        period = _read(group / "cpu.cfs_period_us").strip()
    if not (quota.isdigit() and period.isdigit() and int(period) > 0):
        return math.inf  # no file, "max", or -1
    return int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _new_pool() -> int:
    pages = Pages(POOL_BYTES)
    pages.keep()
    if not pages.wipe_on_fork():
        # Older kernels: at least forks made by Python start afresh.
        address, size = pages.address, pages.size
        os.register_at_fork(after_in_child=lambda: ctypes.memset(address, 0, size))
    return pages.address


POOL = _new_pool()
"""Address of the pool's state (`CallWord.POOL`): one for the process, zero again in a forked child."""
