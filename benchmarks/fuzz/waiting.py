"""How long processes have waited for a processor, which is no time that they took."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

NANOSECONDS = 1e-9


def queued(pid: int) -> float:
    """Seconds that a process and those that it started were ready to run while others ran.

    It is the sum of all threads that have not ended; 0 where the system does not tell (Linux does).
    """
    waited = 0.0
    for process in _family(pid):
        with suppress(OSError):  # it has just ended
            for thread in Path("/proc", str(process), "task").iterdir():
                waited += _waited(thread)
    return waited


def _waited(thread: Path) -> float:
    """What a thread waited: the second number, after the time that it ran (proc(5), `schedstat`)."""
    with suppress(OSError, ValueError):
        return int((thread / "schedstat").read_text().split()[1]) * NANOSECONDS
    return 0.0


def _family(pid: int) -> Iterator[int]:
    """A process and all that it started, directly or not."""
    yield pid
    with suppress(OSError):
        for thread in Path("/proc", str(pid), "task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from _family(int(child))
