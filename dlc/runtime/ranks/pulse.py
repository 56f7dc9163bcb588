"""The heartbeat of a rank: it tells its watchers that it is alive, and how far it has come.

Each rank has a file of words of 64 bits, followed by the name of its host. It maps the file and changes a
word before and after each call with collectives, which takes a microsecond; a thread counts beats, and for
other hosts brings the file to the disk that they share. The rank holds a lock on its file, which the
system releases when the process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
import struct
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

INTERVAL = 0.5
"""Seconds between two beats."""
RUNNING, ENDED, FAILED = range(3)
_WORDS = struct.Struct("<7q")
_BEATS, _STEP, _ENTERED, _LEFT, _BUSY, _STATE, _PROCESS = range(7)
_BYTES = 512
_HOST_BYTES = _BYTES - _WORDS.size


class Pulse(NamedTuple):
    """What a file says of its rank."""

    beats: int
    step: int
    """The number of finished steps; -1 before the training."""
    entered: int
    """How many calls with collectives the rank has begun."""
    left: int
    """How many of them it has finished."""
    busy: int
    """Whether it does what takes long on this rank alone, as compiling and writing checkpoints."""
    state: int
    process: int
    host: str

    @property
    def progress(self) -> tuple[int, int, int]:
        """What changes where the rank comes forward."""
        return self.entered, self.left, self.busy


def exit_path(folder: Path, rank: int) -> Path:
    """The file that is there as soon as a rank has ended with another exit code than 0."""
    return folder / f"exit{rank}"


def exit_code(folder: Path, rank: int) -> int | None:
    """With which exit code other than 0 a rank has ended; None if it has not."""
    try:
        return int(exit_path(folder, rank).read_text() or 0) or None
    except OSError:
        return None


def path_of(folder: Path, rank: int) -> Path:
    """The file of a rank."""
    return folder / f"rank{rank}"


def read_pulse(path: Path) -> Pulse | None:
    """What a file says; None where it is not there yet."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if len(data) < _BYTES:
        return None
    host = data[_WORDS.size :].rstrip(b"\0").decode("utf-8", "replace")
    beats, step, entered, left, busy, state, process = _WORDS.unpack_from(data)
    return Pulse(beats, step, entered, left, busy, state, process, host)


def is_held(path: Path) -> bool:
    """Whether the file is there and the process that made it lives, or the file system has no locks."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def hold(path: Path, content: bytes = b"") -> int:
    """Make a file that `is_held` as long as the returned descriptor is open."""
    new = path.with_name(f"{path.name}.new")
    handle = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with suppress(OSError):  # without locks there are still the beats
        fcntl.flock(handle, fcntl.LOCK_EX)
    os.pwrite(handle, content, 0)
    new.rename(path)
    return handle


class OwnPulse:
    """The file of this rank; with `synced` other hosts are to see it."""

    def __init__(self, folder: Path, rank: int, *, synced: bool = False) -> None:
        host = platform.node().encode()[:_HOST_BYTES].ljust(_HOST_BYTES, b"\0")
        words = [0, -1, 0, 0, 1, RUNNING, os.getpid()]
        self._file = hold(path_of(folder, rank), _WORDS.pack(*words) + host)
        self._map = mmap.mmap(self._file, _BYTES)
        self._words = memoryview(self._map)[: _WORDS.size].cast("q")
        self._synced = synced
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def beat(self, on_beat: Callable[[], None]) -> None:
        """Count beats from now on, and do this at each one, in a thread of its own."""

        def work() -> None:
            while not self._stopped.wait(INTERVAL):
                self.count_beat()
                on_beat()

        self._thread = threading.Thread(target=work, name="dlc pulse", daemon=True)
        self._thread.start()

    def count_beat(self) -> None:
        """Say that this process lives."""
        self._words[_BEATS] += 1
        if self._synced:
            self._map.flush()

    @property
    def step(self) -> int | None:
        """The number of finished steps; None before the training."""
        step = self._words[_STEP]
        return None if step < 0 else step

    @contextmanager
    def call(self) -> Generator[None]:
        """While inside, this rank may wait for the others."""
        self._words[_ENTERED] += 1
        yield
        self._words[_LEFT] += 1

    @contextmanager
    def busy(self) -> Generator[None]:
        """While inside, the others may have to wait long for this rank."""
        self._words[_BUSY] += 1
        try:
            yield
        finally:
            self._words[_BUSY] -= 1

    def begin(self, step: int) -> None:
        """The training begins after this step: what took long is over."""
        self._words[_STEP], self._words[_BUSY] = step, 0

    def finish_step(self, step: int) -> None:
        """Note that `step` steps are finished."""
        self._words[_STEP] = step

    def end_steps(self) -> None:
        """What follows the training may take long."""
        self._words[_BUSY] = 1

    def end(self, state: int) -> None:
        """Say how it ended: `ENDED`, or `FAILED` where this rank has told why."""
        self._words[_STATE] = state
        self._stopped.set()
        with suppress(OSError):
            self._map.flush()
