"""How many threads a call uses by default, and the state of the one pool they come from.

The pool itself is in the engine (`dlc.codegen.engine.assemble`): compiled code that starts, wakes and parks
threads. Here is only its memory, which outlives every artifact.
"""

from __future__ import annotations

import ctypes
import math
import os
from pathlib import Path

from dlc.errors import UsageError
from dlc.runtime.abi import MAX_THREADS, POOL_BYTES
from dlc.runtime.system import cgroups
from dlc.runtime.system.pages import Pages


def default_threads() -> int:
    """Threads that this process may keep busy: its CPUs, or fewer if a control group's quota says so.

    A quota of two and a half CPUs makes two threads: three would be stopped in the middle of a step.
    """
    cpus = len(os.sched_getaffinity(0))
    return max(1, math.floor(min(cpus, MAX_THREADS, cpu_quota())))


def check_threads(threads: object) -> int:
    """So many threads, or the default for None. Raises UsageError for a number that cannot be had."""
    if threads is None:
        return default_threads()
    if not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
        raise UsageError(
            f"threads is {threads!r}, outside 1..{MAX_THREADS}",
            code="D0918",
            help=f"this process may keep {default_threads()} busy, which is the default",
        )
    return threads


def cpu_quota(groups: Path = cgroups.GROUPS, membership: Path = cgroups.MEMBERSHIP) -> float:
    """CPUs' worth of time that control groups (version 1 or 2) allow; infinity without a limit."""
    return min(
        (_limit(group) for group in cgroups.own_groups("cpu", groups, membership)), default=math.inf
    )


def _limit(group: Path) -> float:
    quota, _, period = cgroups.read(group / "cpu.max").strip().partition(" ")
    if not quota:
        quota = cgroups.read(group / "cpu.cfs_quota_us").strip()
        period = cgroups.read(group / "cpu.cfs_period_us").strip()
    if not (quota.isdigit() and period.isdigit() and int(period) > 0):
        return math.inf  # no file, "max", or -1
    return int(quota) / int(period)


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
