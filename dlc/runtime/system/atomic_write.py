"""Writing a file so that other processes see the old one or the whole new one, never a part."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

from dlc.errors import UsageError

_TOKEN_BYTES = 8
"""Of the random number in a temporary name."""


def write_file(
    path: str | os.PathLike[str],
    pieces: Iterable[bytes | memoryview],
    *,
    durable: bool = True,
    mode: int = 0o666,
) -> None:
    """Write the pieces one after another: to a new file beside `path`, to disk, then renamed over it.

    What killed writers of the same file left there is removed. A link is followed, so that it stays one. A
    device or a pipe, such as `/dev/stdout`, takes the pieces as they come. Without `durable` nobody waits
    for the disk: after a power cut the file may be empty. The permissions are `mode`, cut down by the
    caller's umask as for any file that a program makes.
    Raises UsageError (D0502) where it cannot be written; an old file is then as it was.
    """
    target = Path(path)
    if is_stream(target):
        _write_into(target, pieces)
    else:
        _replace(target, pieces, durable, mode)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Before long work: raises UsageError (D0502) where `write_file` would find no place for the file."""
    target = Path(path)
    try:
        if is_stream(target):
            return
        target = Path(os.path.realpath(target))
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        if not target.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, f"there is no folder {Path(path).parent}")
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"nothing can be made in {Path(path).parent}")
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise _cannot(Path(path), error) from error


def is_stream(target: Path) -> bool:
    """Whether something is there that is neither a file nor a folder: it must not be renamed over."""
    try:
        mode = target.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _write_into(target: Path, pieces: Iterable[bytes | memoryview]) -> None:
    try:
        with target.open("wb", buffering=0) as stream:
            for piece in pieces:
                rest = memoryview(piece).cast("B")
                while rest:
                    rest = rest[stream.write(rest) :]
    except OSError as error:
        raise _cannot(target, error) from error


def _replace(target: Path, pieces: Iterable[bytes | memoryview], durable: bool, mode: int) -> None:
    if "\0" in str(target):
        raise _cannot(target, ValueError("embedded null character"))
    target = Path(os.path.realpath(target))
    try:
        _remove_leftovers(target)
        with _created_beside(target, mode) as (temporary, file):
            for piece in pieces:
                file.write(piece)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            temporary.replace(target)  # while it is locked: nobody takes it for a leftover
    except OSError as error:
        raise _cannot(target, error) from error
    if durable:
        _sync_folder(target.parent)


# A writer holds a lock on its temporary file, which the system takes away when the writer ends, however
# it ends. So a file whose lock can be had is nobody's any more. Names are never used twice.


@contextmanager
def _created_beside(target: Path, mode: int) -> Generator[tuple[Path, IO[bytes]]]:
    """A file that did not exist, locked, in the same folder: a rename works within one file system only.

    What has not been renamed at the end is removed.
    """
    while True:
        temporary = target.with_name(f"{_prefix(target)}{secrets.token_hex(_TOKEN_BYTES)}.tmp")
        try:
            with open(temporary, "xb", opener=partial(os.open, mode=mode)) as file:
                _lock(file.fileno(), fcntl.LOCK_EX)
                if os.fstat(file.fileno()).st_nlink:
                    yield temporary, file
                    return
                # Taken for a leftover in the moment before it was locked: another one, then.
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _prefix(target: Path) -> str:
    """How temporary names begin; cut, so that with the rest they are not longer than a name may be."""
    return f".{target.name[:60]}."


def _remove_leftovers(target: Path) -> None:
    """Remove what writers of this target left that were killed while they wrote.

    What cannot be removed, and all where the file system has no locks, stays: it is in nobody's way.
    """
    name = re.compile(rf"{re.escape(_prefix(target))}[0-9a-f]{{{2 * _TOKEN_BYTES}}}\.tmp")
    try:
        with os.scandir(target.parent) as entries:
            found = [entry.path for entry in entries if name.fullmatch(entry.name)]
    except OSError:
        return
    for path in found:
        with suppress(OSError):
            _remove_leftover(path)


def _remove_leftover(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if _lock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB):
            os.unlink(path)
    finally:
        os.close(handle)


def _lock(handle: int, operation: int) -> bool:
    """Whether the file is locked now: not, where another has the lock or the file system has none."""
    try:
        fcntl.flock(handle, operation)
    except OSError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system lets a folder be synced."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        # Some network file systems refuse; the contents are on disk all the same.
        return
    finally:
        os.close(handle)


def _cannot(target: Path, error: OSError | ValueError) -> UsageError:
    why = (isinstance(error, OSError) and error.strerror) or str(error)
    return UsageError(
        f"cannot write {target}: {why[:1].lower()}{why[1:]}",
        code="D0502",
        help="name a file in a folder that exists and can be written",
    )
