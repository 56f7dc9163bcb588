"""Operations in the groups of their modules, so that no two groups need each other.

The operations of a module may stand around others: a backward pass comes back to a module that the forward
pass has left. Such a module becomes several groups.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dlc.driver.report.module_paths import Path, common
from dlc.ir.core import Op, Value


@dataclass(frozen=True, slots=True)
class Group:
    """The operations of a module: all of them, and as they are in groups of its parts.

    `part` numbers the groups of the same module from 1; it is 0 where there is one.
    """

    path: Path
    ops: tuple[Op, ...]
    items: tuple[Op | Group, ...]
    part: int = 0

    def title(self, depth: int) -> str:
        """Its name inside a group whose path has this length."""
        name = " ".join(self.path[depth:])
        return f"{name} ({self.part})" if self.part else name


def grouped(
    ops: Sequence[Op], paths: Mapping[Op, Path], origin: Callable[[Value], Value], depth: int = 0
) -> tuple[Op | Group, ...]:
    """The operations of a block in groups, each item after those that it reads.

    `origin` leads from a value to the one whose operation is among `ops`; groups are those of the parts of
    the paths from `depth` on.
    """
    pending = _Pending(ops, origin)
    clusters = [_cluster(op, paths.get(op, ()), depth) for op in ops]
    runs = pending.runs(clusters)
    counts: dict[Path, int] = {}
    for cluster, run in runs:
        if cluster and len(run) > 1:
            counts[cluster] = counts.get(cluster, 0) + 1
    items: list[Op | Group] = []
    seen: dict[Path, int] = {}
    for cluster, run in runs:
        if not cluster or len(run) == 1:
            items += run
            continue
        seen[cluster] = seen.get(cluster, 0) + 1
        path = common(paths[op] for op in run)
        part = seen[cluster] if counts[cluster] > 1 else 0
        inside = grouped(run, paths, origin, len(path))
        items.append(Group(path, tuple(run), inside, part))
    return tuple(items)


def _cluster(op: Op, path: Path, depth: int) -> Path:
    """The group of an operation, or () where it stands alone."""
    return path[: depth + 1] if len(path) > depth else ()


@dataclass(slots=True)
class _Pending:
    """Operations with those that they read, by number."""

    ops: Sequence[Op]
    origin: Callable[[Value], Value]
    reads: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        numbers = {op: number for number, op in enumerate(self.ops)}
        self.reads = [
            sorted({numbers[o.op] for v in op.operands if (o := self.origin(v)).op in numbers})
            for op in self.ops
        ]

    def runs(self, clusters: Sequence[Path]) -> list[tuple[Path, list[Op]]]:
        """An order of the operations in which those of a cluster stand together as far as possible.

        Each operation is the first in the text that is ready, of the cluster of the one before if there
        is such.
        """
        waits = [len(reads) for reads in self.reads]
        readers: list[list[int]] = [[] for _ in self.ops]
        for number, reads in enumerate(self.reads):
            for read in reads:
                readers[read].append(number)
        ready: dict[Path, list[int]] = {}
        for number, count in enumerate(waits):
            if count == 0:
                heapq.heappush(ready.setdefault(clusters[number], []), number)
        runs: list[tuple[Path, list[Op]]] = []
        current: Path = ()
        while ready:
            if not current or current not in ready:
                current = min(ready, key=lambda cluster: ready[cluster][0])
                runs.append((current, []))
            number = heapq.heappop(ready[current])
            if not ready[current]:
                del ready[current]
            if not current and runs[-1][1]:
                runs.append((current, []))
            runs[-1][1].append(self.ops[number])
            for reader in readers[number]:
                waits[reader] -= 1
                if waits[reader] == 0:
                    heapq.heappush(ready.setdefault(clusters[reader], []), reader)
        return runs
