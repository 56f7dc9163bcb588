"""Agreement of ranks: checks that all have the same before the first step, and sends what one rank made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Protocol, TypeVar, cast

from dlc.errors import UsageError
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.ranks.entering import not_begun, text_of
from dlc.runtime.ranks.links import ranks_of
from dlc.runtime.ranks.parts import Gathers

T = TypeVar("T")

_ASKING = 0.2
"""Seconds between two times that ranks ask each other whether to end."""
_LOOK = 0.005
"""Seconds between two looks at whether what the first rank makes is there."""


class Request(Protocol):
    """The part of a request of mpi4py that says whether it is done."""

    def Test(self) -> bool: ...


class Communicator(Protocol):
    """The part of a communicator of mpi4py that passes Python objects."""

    def Get_rank(self) -> int: ...
    def Ibarrier(self) -> Request: ...
    def allgather(self, sendobj: object) -> list[Any]: ...
    def bcast(self, obj: object, root: int = 0) -> Any: ...  # noqa: ANN401 - whatever was sent


def made_once(comm: object, make: Callable[[], Artifact]) -> Artifact:
    """What the first rank makes, on all ranks; without a communicator of processes each makes it.

    Raises CallError (D0824) on the others where the first one fails.
    """
    if not hasattr(comm, "bcast"):
        return make()
    ranks = cast("Communicator", comm)
    if ranks.Get_rank():
        _wait(ranks)
        sent = ranks.bcast(None)
        if isinstance(sent, str):
            raise not_begun(0, sent)
        return Artifact.from_bytes(sent)
    try:
        artifact = make()
    except Exception as error:
        _wait(ranks)
        ranks.bcast(text_of(error))
        raise
    _wait(ranks)
    ranks.bcast(artifact.to_bytes())
    return artifact


def _wait(ranks: Communicator) -> None:
    """Wait until all ranks do, without a processor: MPI itself waits in a loop."""
    all_wait = ranks.Ibarrier()
    while not all_wait.Test():
        time.sleep(_LOOK)


def made_by_all(comm: object, make: Callable[[], T]) -> T:
    """What this rank makes, as soon as all have made theirs; `comm` may be None.

    Raises CallError (D0824) where another rank fails to.
    """
    if not hasattr(comm, "allgather"):
        return make()
    ranks_of(comm)  # refuses one that this process is not in
    ranks = cast("Gathers", comm)
    try:
        made = make()
    except Exception as error:
        ranks.allgather(text_of(error))
        raise
    for rank, text in enumerate(ranks.allgather(None)):
        if text is not None:
            raise not_begun(rank, str(text))
    return made


def digest_of(parts: Iterable[str | bytes | memoryview]) -> str:
    """The beginning of the SHA-256 of texts or bytes, one after the other."""
    digest = sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()[:16]


class Agreement:
    """Whether any of the ranks wants to end, which all of them know after the same step.

    They ask each other about every `_ASKING` seconds; after how many steps again, they agree on each time.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self.told: list[object] = []
        """What the ranks told each other the last time."""
        self._steps = self._left = 1
        self._asked = time.monotonic()

    def stops(self, wanted: bool, own: object = None) -> bool:
        """Whether to end after this step; every rank calls it after each one, with what it tells others."""
        self._left -= 1
        if self._left:
            return False
        now = time.monotonic()
        often = now - self._asked < _ASKING / 2
        steps = 2 * self._steps if often else max(1, self._steps // 2)
        of_ranks = self._comm.allgather((wanted, steps, own))
        self._steps = self._left = min(steps for _, steps, _ in of_ranks)
        self._asked = now
        self.told = [each for _, _, each in of_ranks]
        return any(wanted for wanted, _, _ in of_ranks)


def check_same(comm: object, facts: Mapping[str, object]) -> None:
    """Refuse ranks that differ from the first in a fact. Raises UsageError (D0937) on all of them."""
    if not hasattr(comm, "allgather"):
        return
    of_ranks: list[Mapping[str, object]] = cast("Communicator", comm).allgather(dict(facts))
    first = of_ranks[0]
    for rank, own in enumerate(of_ranks):
        for name, value in first.items():
            if own[name] != value:
                raise UsageError(
                    f"rank {rank} has another {name} than rank 0: {own[name]}, not {value}",
                    code="D0937",
                    help="start all ranks with the same command, files and version of dlc",
                )
