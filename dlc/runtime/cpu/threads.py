"""The default number of threads of a call, and the state of the thread pool.

The pool itself is compiled code in the engine (`dlc.codegen.engine.pool`), which starts, wakes and parks
threads; they steal work as `dlc.codegen.engine.work_stealing` says. This module owns its memory, which
outlives every artifact.
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
    """The number of threads that this process may keep busy: its CPUs, limited by the quota of its cgroup.

    A quota of two and a half CPUs gives two threads: three would be throttled in the middle of a step.
    """
    cpus = len(os.sched_getaffinity(0))
    return max(1, math.floor(min(cpus, MAX_THREADS, cpu_quota())))


def check_threads(threads: object) -> int:
    """The checked number of threads; the default for None. Raises UsageError (D0918) if out of range."""
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
    """The CPU quota of the control groups (version 1 or 2), in CPUs; infinity without a limit."""
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
        # On older kernels at least forks made by Python reset the pool.
        address, size = pages.address, pages.size
        os.register_at_fork(after_in_child=lambda: ctypes.memset(address, 0, size))
    return pages.address


POOL = _new_pool()
"""Address of the state of the pool (`CallWord.POOL`): one for the process, zeroed in a forked child."""
