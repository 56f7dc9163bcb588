"""A cache of object files, some of which further processes are making."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dlc.codegen.llvm.background import Background, Job
from dlc.codegen.llvm.object_code import Machine


class ObjectCache(Protocol):
    """Keeps object files by the hash of what they were made from."""

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, data: bytes) -> None: ...


class BegunObjects:
    """Object files of a cache, and others that were begun: who gets one waits for it, and it is kept."""

    def __init__(self, cache: ObjectCache | None, background: Background) -> None:
        self._cache = cache
        self._background = background
        self._begun: dict[str, bytes | Job] = {}

    def begin(self, key: str, text: Callable[[], str], machine: Machine) -> None:
        """Begin with the object file of a text, unless it was begun or is in the cache."""
        if key in self._begun:
            return
        found = None if self._cache is None else self._cache.get(key)
        self._begun[key] = self._background.add(text(), machine) if found is None else found

    def get(self, key: str) -> bytes | None:
        """The object file, when it is made. Raises `InternalError` if LLVM refuses its text."""
        begun = self._begun.get(key)
        if begun is None:
            return None if self._cache is None else self._cache.get(key)
        if isinstance(begun, Job):
            begun = self._background.result(begun)
            self.put(key, begun)
        return begun

    def put(self, key: str, data: bytes) -> None:
        """Keep an object file."""
        self._begun[key] = data
        if self._cache is not None:
            self._cache.put(key, data)
