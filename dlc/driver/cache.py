"""The cache of object files on disk, shared by all models of a user.

Files are named by the hash of everything that they depend on, so none is ever out of date; a cache that
cannot be read or written is like none. `DLC_CACHE` names another folder; empty, it switches the cache off.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from dlc.errors import DlcError
from dlc.runtime.atomic import write_file

VARIABLE = "DLC_CACHE"
_DIGEST_BYTES = 32


class DiskCache:
    """Object files by key. Each file begins with the digest of its contents and is checked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hits = 0
        self.misses = 0

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.o"

    def check(self) -> None:
        """Raises OSError or UsageError where nothing can be kept."""
        self.folder.mkdir(parents=True, exist_ok=True)
        probe = self.folder / "probe"
        write_file(probe, [b"dlc"])
        probe.unlink(missing_ok=True)

    def get(self, key: str) -> bytes | None:
        """The object file for a key, if it is there and whole."""
        try:
            data = self._path(key).read_bytes()
        except OSError:
            data = b""
        digest, contents = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if not contents or hashlib.sha256(contents).digest() != digest:
            self.misses += 1
            return None
        self.hits += 1
        return contents

    def put(self, key: str, data: bytes) -> None:
        """Keep an object file; a disk that is full or read-only is no error.

        Compiling does not wait for the disk: a file that a power cut emptied is none, says its digest.
        """
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, [hashlib.sha256(data).digest(), data], durable=False)
        except (OSError, DlcError):
            return


def open_cache() -> DiskCache | None:
    """The cache that the environment asks for."""
    given = os.environ.get(VARIABLE)
    if given == "":
        return None
    if given is not None:
        return DiskCache(Path(given))
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # not set; a relative one is to be ignored, says its specification
        try:
            base = Path.home() / ".cache"
        except RuntimeError:  # a user without a home
            return None
    return DiskCache(base / "dlc" / "objects")
