"""The cache of object files on disk, shared by all models of a user.

Files are named by the hash of everything that they depend on, so none is ever out of date; a cache that
cannot be read or written is like none. `DLC_CACHE` names another folder; empty, it switches the cache off.

What is kept is run as machine code, so it must come from the user: a folder or a file that somebody else
owns or may write is not used. Root may do anything anyway, and what it owns is.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from dlc.errors import DlcError, UsageError
from dlc.errors.warn import warn_once
from dlc.runtime.system.atomic_write import write_file

VARIABLE = "DLC_CACHE"
_DIGEST_BYTES = 32
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ROOT = 0


class DiskCache:
    """Object files by key. Each begins with the digest of its key and contents, which is checked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hits = 0
        self.misses = 0

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.o"

    def check(self) -> None:
        """Raises OSError or UsageError where nothing can be kept."""
        if why := self.distrust():
            raise UsageError(why, code="D0502", help=_WAY_OUT)
        self.folder.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
        probe = self.folder / "probe"
        write_file(probe, [b"dlc"])
        probe.unlink(missing_ok=True)

    def distrust(self) -> str | None:
        """Why its files may be somebody else's; None for a folder of the user's own, or none yet."""
        try:
            why = _distrust(self.folder.stat())
        except (OSError, ValueError):  # ValueError: a null character in the name
            return None
        return why and f"the cache folder {self.folder} is not used: {why}"

    def get(self, key: str) -> bytes | None:
        """The object file for a key, if it is there, whole, and the user's own."""
        try:
            data = read_own(self._path(key))
        except (OSError, ValueError):
            data = b""
        digest, contents = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if not contents or _digest(key, contents) != digest:
            self.misses += 1
            return None
        self.hits += 1
        return contents

    def put(self, key: str, data: bytes) -> None:
        """Keep an object file; a disk that is full or read-only is not an error.

        Compiling does not wait for the disk: a file that a power cut emptied is none, says its digest.
        """
        path = self._path(key)
        try:
            for folder in (self.folder, path.parent):
                folder.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
            found = self.status(key)
            if found is not None and not stat.S_ISREG(found.st_mode):
                path.unlink()  # writing would follow a link, and wait for the reader of a pipe
            write_file(path, [_digest(key, data), data], durable=False, mode=_FILE_MODE)
        except (OSError, ValueError, DlcError):
            return

    def entry_keys(self) -> Iterator[str]:
        """The keys of all files, in order; none where the folder cannot be read."""
        try:
            found = sorted(self.folder.glob("[0-9a-f][0-9a-f]/*.o"))
        except OSError:
            return
        for path in found:
            yield path.parent.name + path.stem

    def status(self, key: str) -> os.stat_result | None:
        """The size and the times of a file; None if it is gone."""
        try:
            return self._path(key).lstat()
        except OSError:
            return None

    def drop(self, key: str) -> bool:
        """Remove a file; False if that is impossible."""
        try:
            self._path(key).unlink()
        except OSError:
            return False
        return True


_WAY_OUT = "take it over with chown and chmod go-w, or name another folder: DLC_CACHE=FOLDER"


def _distrust(status: os.stat_result) -> str | None:
    """Why a file or folder may hold what somebody else put there."""
    if status.st_uid not in (os.geteuid(), _ROOT):
        return f"it belongs to another user, number {status.st_uid}"
    if status.st_mode & _OTHERS_WRITE:
        return f"other users may write it (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def read_own(path: Path) -> bytes:
    """The contents of a plain file that nobody else can have written; nothing for any other.

    Raises OSError, ValueError for a name with a null character.
    """
    with open(path, "rb", opener=_open_own) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or _distrust(found):
            return b""
        return file.read()


def _open_own(name: str, flags: int) -> int:
    """Opened without following a link, and without waiting for the writer of a pipe."""
    return os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


def _digest(key: str, contents: bytes) -> bytes:
    """Of the key too: one file in the place of another is damage."""
    digest = hashlib.sha256(f"{len(key)} {key} ".encode())
    digest.update(contents)
    return digest.digest()


def open_cache() -> DiskCache | None:
    """The cache that the environment asks for; none, and a warning, where others may write its folder."""
    found = chosen_cache()
    if found is None:
        return None
    if why := found.distrust():
        warn_once(f"{why}; {_WAY_OUT}")
        return None
    return found


def chosen_cache() -> DiskCache | None:
    """The same, whoever may write it."""
    setting = os.environ.get(VARIABLE)
    if setting == "":
        return None
    if setting is not None:
        return DiskCache(Path(setting))
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # not set; a relative one is to be ignored, says its specification
        try:
            base = Path.home() / ".cache"
        except RuntimeError:  # a user without a home
            return None
    return DiskCache(base / "dlc" / "objects")
