"""Writing a file so that other processes see the old one or the whole new one, never a part."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from dlc.errors import UsageError

_LEFTOVER_AGE = 600.0
"""Seconds after which what an ended process left is removed; one on another machine may be alive."""

_attempt = count()


def write_file(
    path: str | os.PathLike[str],
    pieces: Iterable[bytes | memoryview],
    *,
    durable: bool = True,
    mode: int = 0o666,
) -> None:
    """Write the pieces one after another: to a new file beside `path`, to disk, then renamed over it.

    A link is followed, so that it stays one. A device or a pipe, such as `/dev/stdout`, takes the pieces
    as they come. Without `durable` nobody waits for the disk: after a power cut the file may be empty.
    The permissions are `mode`, cut down by the caller's umask as for any file that a program makes.
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
    try:
        target = Path(os.path.realpath(target))
        temporary, handle = _create_beside(target, mode)
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise _cannot(target, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                file.write(piece)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _cannot(target, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(target.parent)


def _create_beside(target: Path, mode: int) -> tuple[Path, int]:
    """A file that did not exist, in the same folder: a rename works within one file system only."""
    while True:
        temporary = target.with_name(f"{_prefix(target)}{os.getpid()}-{next(_attempt)}.tmp")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            return temporary, os.open(temporary, flags, mode)
        except FileExistsError:
            continue


def _prefix(target: Path) -> str:
    """How temporary names begin; cut, so that with the rest they are not longer than a name may be."""
    return f".{target.name[:60]}."


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove what processes left that were killed while they wrote `path`, ten minutes ago or earlier.

    What cannot be removed stays: it is in nobody's way.
    """
    try:
        target = Path(os.path.realpath(path))
        left = re.compile(rf"{re.escape(_prefix(target))}([0-9]{{1,9}})-[0-9]+\.tmp")
        with os.scandir(target.parent) as entries:
            found = [(entry, name) for entry in entries if (name := left.fullmatch(entry.name))]
        for entry, name in found:
            old = time.time() - entry.stat(follow_symlinks=False).st_mtime > _LEFTOVER_AGE
            if old and not _runs(int(name[1])):
                Path(entry.path).unlink()
    except (OSError, ValueError):  # ValueError: a null character in the name
        return


def _runs(process: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
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
