"""Writing a file so that other processes see the old one or the whole new one, never a part."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from dlc.errors import UsageError

_attempt = count()


def write_file(path: str | os.PathLike[str], pieces: Iterable[bytes | memoryview]) -> None:
    """Write the pieces one after another: to a new file beside `path`, to disk, then renamed over it.

    Raises UsageError where the folder cannot be written; the old file is then as it was.
    """
    target = Path(path)
    try:
        temporary, handle = _create_beside(target)
    except OSError as error:
        raise _cannot(target, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _cannot(target, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _create_beside(target: Path) -> tuple[Path, int]:
    """A file that did not exist, in the same folder: a rename works within one file system only."""
    while True:
        temporary = target.with_name(f".{target.name}.{os.getpid()}-{next(_attempt)}.tmp")
        try:
            # 0o666 is cut down by the caller's umask, as for any file a program makes.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            return temporary, os.open(temporary, flags, 0o666)
        except FileExistsError:
            continue


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


def _cannot(target: Path, error: OSError) -> UsageError:
    return UsageError(
        f"cannot write {target}: {(error.strerror or str(error)).lower()}",
        code="D0502",
        help="name a file in a folder that exists and can be written",
    )
