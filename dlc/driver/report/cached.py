"""`dlc cache`: what the cache on disk holds, what an entry is, and dropping what is no longer used."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from dlc.driver.compile.cache import VARIABLE, DiskCache, chosen_cache
from dlc.driver.compile.compile_cache import recall
from dlc.driver.tables import Table
from dlc.errors import UsageError

__all__ = ["CacheEntry", "cache_text", "entries_text", "entry_of", "list_cache", "prune_cache"]

DAY = 86_400
"""Seconds."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A file of the cache: its key, its bytes, the days since it was last used, and what it holds.

    `kind` is `program` (all that a compilation made but the numbers of the weights), `kernels` (machine
    code that programs share) or `damaged` (what is not used, for it is not whole or another's). Of a
    program there are also the model's file and its entry points.
    """

    key: str
    bytes: int
    days: float
    kind: str
    model: str = ""
    entry_points: tuple[str, ...] = ()

    def data(self) -> dict[str, object]:
        """All of it, for programs."""
        return asdict(self)

    @property
    def text(self) -> str:
        """What it is and what it follows from, for people."""
        lines = [f"{self.key}: {self.bytes:,} bytes, last used {self.days:.1f} days ago"]
        match self.kind:
            case "program":
                points = ", ".join(self.entry_points)
                lines += [
                    f"the compiled {self.model} with the entry points {points}, without its weights",
                    "it is used again for the same graph, options, processor and compiler",
                ]
            case "kernels":
                lines += [
                    "machine code of kernels",
                    "it is used again by every model with the same code for the same processor",
                ]
            case _:
                lines += ["it is not used: not whole, or somebody else's; dlc cache prune drops it"]
        return "\n  ".join(lines)


def list_cache() -> list[CacheEntry]:
    """Every entry, the one last used first."""
    cache, now = _cache(), time.time()
    found = [entry for key in cache.entry_keys() if (entry := _entry(cache, key, now)) is not None]
    return sorted(found, key=lambda entry: entry.days)


def entry_of(begun: str) -> CacheEntry:
    """The entry whose key begins so. Raises UsageError (D0961) for none, and for several."""
    cache = _cache()
    keys = [key for key in cache.entry_keys() if begun and key.startswith(begun)]
    found = _entry(cache, keys[0], time.time()) if len(keys) == 1 else None
    if found is None:
        many = f"{len(keys)} entries of the cache begin" if keys else "no entry of the cache begins"
        raise UsageError(f"{many} with {begun!r}", code="D0961", help="dlc cache ls lists them")
    return found


def prune_cache(days: float) -> list[CacheEntry]:
    """Drop the entries that were not used for `days` days, and all damaged ones; returns them."""
    cache = _cache()
    dropped = [e for e in list_cache() if e.kind == "damaged" or e.days >= days]
    return [entry for entry in dropped if cache.drop(entry.key)]


def entries_text(entries: Sequence[CacheEntry]) -> str:
    """The entries as a table."""
    rows = [
        (e.key[:12], e.bytes, f"{e.days:.1f}", e.kind, e.model, ", ".join(e.entry_points))
        for e in entries
    ]
    head = ("key", "bytes", "days", "kind", "model", "entry points")
    total = sum(entry.bytes for entry in entries)
    title = f"{_cache().folder}: {len(entries):,} entries, {total:,} bytes"
    return Table(title, head, tuple(rows)).text


def cache_text() -> str:
    """Where the cache is and how it works."""
    cache = _cache()
    used = cache.distrust() or f"the cache folder is {cache.folder}; {VARIABLE} names another"
    return "\n".join(
        [
            used,
            "An entry is named by the hash of all that it follows from: the graph as it was read, options,",
            "processor, compiler. So none is out of date, and dropping one costs compiling again.",
            f"{VARIABLE}= switches the cache off.",
        ]
    )


def _cache() -> DiskCache:
    cache = chosen_cache()
    if cache is None:
        raise UsageError(
            f"there is no cache: {VARIABLE} is empty, or there is no home folder",
            code="D0962",
            help=f"name its folder: {VARIABLE}=FOLDER",
        )
    return cache


def _entry(cache: DiskCache, key: str, now: float) -> CacheEntry | None:
    """What a file holds; None if it has gone meanwhile."""
    status = cache.status(key)
    if status is None:
        return None
    days = max(0.0, now - max(status.st_atime, status.st_mtime)) / DAY
    contents = cache.get(key)
    if contents is None:
        return CacheEntry(key, status.st_size, days, "damaged")
    kept = recall(cache, key) if contents.startswith(b"[") else None
    if kept is None:
        kind = "program" if contents.startswith(b"[") else "kernels"
        return CacheEntry(key, status.st_size, days, kind)
    facts = kept.bare.manifest
    points = tuple([entry.name for entry in facts.entries])
    return CacheEntry(key, status.st_size, days, "program", facts.model, points)
