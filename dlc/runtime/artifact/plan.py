"""A memory plan in numbers, at one tuple of sizes: what `dlc.runtime.artifact.plan_check` checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """A stretch of the arena, in use from wave `first` to wave `last`, both included."""

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
    """A view: bytes inside root number `root`."""

    name: str
    root: int
    offset: int
    bytes: int


class Use(NamedTuple):
    """A call in a wave, and the addresses in the arena that it reads and writes.

    `loop` has the numbers of the first and the last call of the outermost loop that it is in, if it is.
    """

    wave: int
    reads: Sequence[int]
    writes: Sequence[int]
    loop: tuple[int, int] | None = None


class Plan(NamedTuple):
    """Where everything lies; `order_bound` and `any_order_bound` are bytes, as `arena` is.

    The `witnesses` are calls, by number: beside one of them `any_order_bound` bytes are held in any order.
    """

    arena: int
    order_bound: int
    any_order_bound: int
    witnesses: Sequence[int]
    roots: Sequence[Span]
    views: Sequence[Extent]
