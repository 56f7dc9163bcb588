"""Child processes with a limit of time and memory, so that a crash or a hang of one ends no table."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LIMITED = (
    "import os, resource, sys; most = int(sys.argv[1]); "
    "resource.setrlimit(resource.RLIMIT_AS, (most, most)); os.execv(sys.argv[2], sys.argv[2:])"
)
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for a step of one network, and bytes of address space for each process."""

    seconds: float
    memory: int


@dataclass(frozen=True, slots=True)
class Ended:
    """What a child process left behind; `status` is None if it was ended at the limit of time."""

    status: int | None
    said: str
    seconds: float
    peak_bytes: int


def limited(command: Sequence[str], limits: Limits) -> list[str]:
    """The command in a process with limited memory."""
    return [sys.executable, "-c", LIMITED, str(limits.memory), *command]


def run(command: Sequence[str], limits: Limits, folder: Path) -> Ended:
    """Run to the end, or to the limit; `said` is what it wrote to either stream."""
    said = folder / "said.txt"
    begin = time.perf_counter()
    with said.open("wb") as stream:
        process = subprocess.Popen(
            limited(command, limits), stdout=stream, stderr=stream, start_new_session=True
        )
        status, usage = _waited(process.pid, begin + limits.seconds)
        process.returncode = 0 if status is None else status
    text = said.read_text(encoding="utf-8", errors="replace")
    return Ended(status, text, time.perf_counter() - begin, usage.ru_maxrss * 1024)


def _waited(child: int, end: float) -> tuple[int | None, resource.struct_rusage]:
    """The exit status of a child, or None if it had to be killed, and what it used."""
    while time.perf_counter() < end:
        found, status, usage = os.wait4(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), usage
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    return None, os.wait4(child, 0)[2]
