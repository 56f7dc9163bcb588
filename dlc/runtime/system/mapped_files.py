"""Files mapped as read-only memory: files that the user names, and files that a model text names.

A text may come from an untrusted source, so a path in it may only lead to a regular file in the folder of
the text or below it. The path is opened folder by folder and never through a symbolic link, so nothing
can be exchanged between the check and the opening (no time-of-check to time-of-use race).
"""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

from dlc.errors import UsageError
from dlc.runtime.system.available_memory import check_free
from dlc.runtime.system.buffers import aligned_bytes

_OPEN_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_OPEN_FOLDER = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY


def check_path(wanted: str, path: object) -> None:
    """Raise UsageError (D0902) for a value that is not a path; the message begins with `wanted`."""
    if not isinstance(path, str | os.PathLike):
        raise UsageError(
            f"{wanted}, found {path!r}", code="D0902", help="pass a str or a pathlib.Path"
        )


def map_file(path: str | os.PathLike[str], *, copy: bool = False) -> memoryview:
    """The bytes of a file that the user named, in any folder.

    Pages are read on access, so a large file costs nothing until it is used. With `copy` the file is read
    completely now, so later changes have no effect; if another program truncates a mapped file, access to
    it ends the process (SIGBUS). Raises UsageError (D0501) if the file does not exist or is not a regular
    one, Unsupported (D0705) for a copy that does not fit into memory.
    """
    name = os.fspath(path)
    try:
        handle = os.open(name, _OPEN_FILE)
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from None
    return _mapped(handle, name, copy=copy)


def map_inside(folder: str | os.PathLike[str], path: str) -> memoryview:
    """The bytes of a file that a text in `folder` names; the module docstring says which paths are refused.

    Raises UsageError: D0506 if the path leads, or could lead, out of the folder; D0501 if the file does
    not exist or is not a regular one.
    """
    name = str(Path(folder, path))
    *parents, last = _parts(path)
    try:
        handle = os.open(folder, _OPEN_FOLDER)
    except OSError as error:
        raise _unreadable(os.fspath(folder), error) from None
    for parent in parents:
        handle = _step(handle, parent, _OPEN_FOLDER, name)
    handle = _step(handle, last, _OPEN_FILE, name)
    if os.fstat(handle).st_nlink > 1 and stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _escapes(name, "the file has a second hard link, which may lie anywhere")
    return _mapped(handle, name)


def check_inside(path: str) -> None:
    """Raise UsageError (D0506) for a path of a model's text that could lead out of its folder."""
    _parts(path)


def _parts(path: str) -> list[str]:
    """The components of a path, without `.`. Raises UsageError (D0506) unless it leads downwards."""
    if path.startswith("/"):
        raise _escapes(path, "it is absolute")
    if "\\" in path or "\0" in path:
        raise _escapes(path, "it has a backslash or a null character in it")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _escapes(path, "it has '..' in it")
    if not parts:
        raise _escapes(path, "it names a folder")
    return parts


def _step(folder: int, name: str, flags: int, whole: str) -> int:
    """Open `name` in an open folder, and close the folder."""
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if _is_link(folder, name):
            raise _escapes(whole, f"{name} is a symbolic link") from None
        raise _unreadable(whole, error) from None
    finally:
        os.close(folder)


def _is_link(folder: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _mapped(handle: int, name: str, *, copy: bool = False) -> memoryview:
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise _unreadable(name, "is a folder")
        if not stat.S_ISREG(status.st_mode):
            raise _unreadable(name, "is not a plain file")
        if status.st_size == 0:
            return memoryview(b"")
        if copy:
            return _copied(handle, status.st_size, name)
        return memoryview(mmap.mmap(handle, status.st_size, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from None
    finally:
        os.close(handle)


def _copied(handle: int, size: int, name: str) -> memoryview:
    """A read-only copy of a file: fewer than `size` bytes if the file is truncated meanwhile."""
    check_free(f"a copy of {name}", size)
    block = aligned_bytes(size)
    with open(handle, "rb", buffering=0, closefd=False) as file:
        count = 0
        while count < size and (more := file.readinto(block[count:].data)):
            count += more
    block.flags.writeable = False
    return block[:count].data


def _unreadable(name: str, why: Exception | str) -> UsageError:
    if isinstance(why, OSError):
        why = (why.strerror or str(why)).lower()
    return UsageError(f"cannot read {name}: {why}", code="D0501")


def _escapes(path: str, why: str) -> UsageError:
    return UsageError(
        f"the path {path!r} may lead out of the model's folder: {why}",
        code="D0506",
        help="put the file into the folder, or name it on the command line",
    )


def release_pages(data: memoryview, start: int, end: int) -> None:
    """Let the system take back the memory of a part of a mapped file; it is read again when it is used."""
    owner = data.obj
    first, last = -(-start // mmap.PAGESIZE), end // mmap.PAGESIZE
    if isinstance(owner, mmap.mmap) and first < last:
        owner.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)
