"""Ranks that are threads of one process: what a mesh computes, without MPI.

A collective is an exchange: every rank hands over its array and takes those of the others, between two
barriers. So evaluation at any level, and machine code, runs on a mesh in one process; a test of a
collective or of its derivative needs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier, BrokenBarrierError, Condition, Thread
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from dlc.runtime.ranks.mesh import Mesh

T = TypeVar("T")

_LOOK = 0.05
"""Seconds after which a rank that waits looks whether another has failed."""


class Mail:
    """What ranks that are threads send to one another, until it is received."""

    def __init__(self) -> None:
        self._sent: dict[tuple[int, int, int], list[NDArray[Any]]] = {}
        self._changed = Condition()

    def put(self, source: int, target: int, tag: int, array: NDArray[Any]) -> None:
        """Send an array."""
        with self._changed:
            self._sent.setdefault((source, target, tag), []).append(array)
            self._changed.notify_all()

    def take(self, source: int, target: int, tag: int, barrier: Barrier) -> NDArray[Any]:
        """Wait for an array. Raises BrokenBarrierError where another rank has failed."""
        key = (source, target, tag)
        with self._changed:
            while not self._sent.get(key):
                if barrier.broken:
                    raise BrokenBarrierError
                self._changed.wait(_LOOK)
            return self._sent[key].pop(0)


class Meeting:
    """Where the threads of a mesh meet: all of them, and those that a collective along an axis joins."""

    def __init__(self, mesh: Mesh) -> None:
        self.table: list[Any] = [None] * mesh.size
        """What each rank hands over."""
        self.mail = Mail()
        self.barrier = Barrier(mesh.size)
        groups = {tuple(mesh.along(k, axis)) for k in range(mesh.size) for axis in mesh.axes}
        self._barriers = {group: Barrier(len(group)) for group in groups}

    def barrier_of(self, ranks: list[int]) -> Barrier:
        """That of the ranks which a collective joins."""
        return self._barriers[tuple(ranks)]

    def abort(self) -> None:
        """End what all ranks wait for."""
        for barrier in (self.barrier, *self._barriers.values()):
            barrier.abort()


class SimulatedRanks:
    """The place of one rank in a mesh of threads."""

    def __init__(self, mesh: Mesh, rank: int, meeting: Meeting) -> None:
        self.mesh, self.rank = mesh, rank
        self._meeting, self._table = meeting, meeting.table
        self._coordinates = mesh.coordinates(rank)
        self.error: BaseException | None = None
        """What failed in a collective that machine code called."""

    def fail(self, error: BaseException) -> None:
        """Note an error, and end the collectives of all ranks."""
        self.error = self.error or error
        self._meeting.abort()

    def coordinate(self, axis: str) -> int:
        """This rank's coordinate along an axis."""
        return self._coordinates[axis]

    def exchange(self, axis: str, array: NDArray[Any]) -> list[NDArray[Any]]:
        """What every rank along the axis hands over, by coordinate."""
        ranks = self.mesh.along(self.rank, axis)
        barrier = self._meeting.barrier_of(ranks)
        # A copy: the result may take the place of the array while others still read it.
        self._table[self.rank] = array.copy()
        barrier.wait()
        found = [self._table[other] for other in ranks]
        # Nobody hands over the next array before all have taken this one.
        barrier.wait()
        return found

    def send(self, target: int, tag: int, array: NDArray[Any]) -> None:
        """Send an array to another rank; returns at once."""
        self._meeting.mail.put(self.rank, target, tag, array.copy())

    def receive(self, source: int, tag: int) -> NDArray[Any]:
        """The next array that another rank sends with this tag."""
        return self._meeting.mail.take(source, self.rank, tag, self._meeting.barrier)

    def allgather(self, sendobj: object) -> list[Any]:
        """What every rank of the mesh hands over, by rank."""
        barrier = self._meeting.barrier
        self._table[self.rank] = sendobj
        barrier.wait()
        found = list(self._table)
        barrier.wait()
        return found

    def gather(self, sendobj: object, root: int = 0) -> list[Any] | None:
        """The same on the rank `root`; None on the others."""
        found = self.allgather(sendobj)
        return found if self.rank == root else None


class _Outcome(Generic[T]):
    """What the function returned or raised on one rank."""

    value: T
    error: BaseException | None = None


def run_simulated(mesh: Mesh, function: Callable[[SimulatedRanks], T]) -> list[T]:
    """Run a function once for each rank, each in a thread; what it returned, by rank.

    If it raises on a rank, the collectives of the others end, and the error of the lowest rank that
    failed by itself is raised.
    """
    meeting = Meeting(mesh)
    outcomes = [_Outcome[T]() for _ in range(mesh.size)]

    def work(rank: int) -> None:
        ranks = SimulatedRanks(mesh, rank, meeting)
        try:
            outcomes[rank].value = function(ranks)
            if ranks.error is not None:
                raise ranks.error
        except BaseException as error:  # noqa: BLE001 - raised below
            outcomes[rank].error = error
            meeting.abort()

    threads = [Thread(target=work, args=(rank,)) for rank in range(mesh.size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if errors:
        own = [error for error in errors if not isinstance(error, BrokenBarrierError)]
        raise (own or errors)[0]
    return [outcome.value for outcome in outcomes]
