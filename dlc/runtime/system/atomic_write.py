"""Atomic writing: other processes see the old file or the complete new one, never a part of it."""

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
"""Length of the random number in a temporary name."""
_ENDING = re.compile(rf"[0-9a-f]{{{2 * _TOKEN_BYTES}}}\.tmp")
"""What follows the prefix in a temporary name."""
OF_OTHERS = (".dlm", ".dlir", ".dlc", ".onnx", ".safetensors", ".npz", ".npy")
"""Endings of files that somebody may have worked for."""


def make_folder(folder: Path) -> None:
    """Make a folder, and those that it is in. Raises UsageError (D0502) where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"the folder {folder} cannot be made: {_reason(error)}",
            code="D0502",
            help="name another, in a folder that can be written",
        ) from None


def write_file(
    path: str | os.PathLike[str],
    pieces: Iterable[bytes | memoryview],
    *,
    durable: bool = True,
    mode: int = 0o666,
) -> None:
    """Write the pieces to a temporary file beside `path`, sync it to disk, and rename it to `path`.

    Temporary files of killed writers of the same path are removed. A symbolic link is followed, so it
    stays a link. A device or a pipe, such as `/dev/stdout`, is written directly. Without `durable` the
    file is not synced: after a power cut it may be empty. The permissions are `mode`, reduced by the
    umask of the process. Raises UsageError (D0502) if the file cannot be written; an old file is then
    unchanged.
    """
    target = Path(path)
    if is_stream(target):
        _write_into(target, pieces)
    else:
        _replace(target, pieces, durable, mode)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise UsageError (D0502) if `write_file` could not create the file; to call before long work."""
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


def check_ending(path: str | os.PathLike[str], *endings: str) -> None:
    """Refuse to write a file under a name that nothing would read it by; a device may be called anything.

    Raises UsageError: D0924 for a name that ends like files of another kind, D0901 for one that has none of
    these endings.
    """
    out = Path(path)
    if out.name.endswith(endings) and out.name not in endings:
        return
    if is_stream(out):
        return
    known = " or ".join(endings)
    if out.name in endings:
        raise UsageError(
            f"{out} has nothing before its ending",
            code="D0901",
            help=f"write {out.with_name('model' + out.name)}",
        )
    if out.suffix in OF_OTHERS:
        raise UsageError(
            f"{out} would be overwritten by what ends in {known}",
            code="D0924",
            help=f"name the new file, such as {out.with_suffix(endings[0])}",
        )
    raise UsageError(
        f"{out} does not end in {known}", code="D0901", help=f"write {out.with_suffix(endings[0])}"
    )


def is_stream(target: Path) -> bool:
    """Whether the path is a device or a pipe, which must not be replaced by a file."""
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
            temporary.replace(target)  # still locked, so that no writer removes it as a leftover
    except OSError as error:
        raise _cannot(target, error) from error
    if durable:
        _sync_folder(target.parent)


# A writer holds a lock on its temporary file, which the system releases when the writer ends, however it
# ends. So an unlocked temporary file is a leftover of a killed writer. Names are never used twice.


@contextmanager
def _created_beside(target: Path, mode: int) -> Generator[tuple[Path, IO[bytes]]]:
    """A new locked file in the folder of the target, since a rename works within one file system only.

    The file is removed at the end unless it was renamed.
    """
    while True:
        temporary = target.with_name(f"{_prefix(target)}{secrets.token_hex(_TOKEN_BYTES)}.tmp")
        try:
            with open(temporary, "xb", opener=partial(os.open, mode=mode)) as file:
                _lock(file.fileno(), fcntl.LOCK_EX)
                if os.fstat(file.fileno()).st_nlink:
                    yield temporary, file
                    return
                # Another writer removed it as a leftover before it was locked: try again.
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _prefix(target: Path) -> str:
    """The prefix of temporary names, cut so that the names are not longer than file systems allow."""
    return f".{target.name[:60]}."


def _remove_leftovers(target: Path) -> None:
    """Remove temporary files of writers of this target that were killed.

    A file that cannot be removed stays, and so do all of them if the file system has no locks.
    """
    prefix = _prefix(target)
    try:
        with os.scandir(target.parent) as entries:
            leftovers = [
                entry.path
                for entry in entries
                if entry.name.startswith(prefix) and _ENDING.fullmatch(entry.name, len(prefix))
            ]
    except OSError:
        return
    for path in leftovers:
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
    """Try to lock a file; False if another process holds the lock or the file system has no locks."""
    try:
        fcntl.flock(handle, operation)
    except OSError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    """Make the rename durable, if the system can sync a folder."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        # Some network file systems refuse; the contents of the file are on disk nevertheless.
        return
    finally:
        os.close(handle)


def _cannot(target: Path, error: OSError | ValueError) -> UsageError:
    return UsageError(
        f"cannot write {target}: {_reason(error)}",
        code="D0502",
        help="name a file in a folder that exists and can be written",
    )


def _reason(error: OSError | ValueError) -> str:
    """What the system says, as a part of a sentence."""
    why = (isinstance(error, OSError) and error.strerror) or str(error)
    return f"{why[:1].lower()}{why[1:]}"
