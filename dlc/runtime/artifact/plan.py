"""A memory plan in numbers, at one tuple of sizes: what `dlc.runtime.artifact.plan_check` checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """A root: a block of the arena, live from wave `first` to wave `last`, both included."""

    name: str
    offset: int
    bytes: int
    first: int
    last: int

    @property
    def end(self) -> int:
        return self.offset + self.bytes

    def __str__(self) -> str:
        return f"{self.name} (bytes {self.offset} to {self.end})"


class Extent(NamedTuple):
    """A view: a byte range inside the root of index `root`."""

    name: str
    root: int
    offset: int
    bytes: int


class Use(NamedTuple):
    """A call: its wave, and the addresses in the arena that it reads and writes.

    `loop`: the indices of the first and the last call of the outermost loop around it, if there is one.
    """

    wave: int
    reads: Sequence[int]
    writes: Sequence[int]
    loop: tuple[int, int] | None = None


class Plan(NamedTuple):
    """The offsets of all roots and views, with bounds on peak memory; all sizes are bytes.

    `order_bound` is the peak for this order of the calls. `any_order_bound` is a lower bound for every
    order: that many bytes are live while one of the `witnesses`, calls by index, runs.
    """

    arena: int
    order_bound: int
    any_order_bound: int
    witnesses: Sequence[int]
    roots: Sequence[Span]
    views: Sequence[Extent]
