"""How ranks begin a call together: none does where one refuses its arguments, calls another, or ends.

A rank that does not come leaves the others waiting in a collective for ever. Before each call of machine
code they combine three words, which takes as long as a collective of a few bytes.
"""

from __future__ import annotations

import atexit
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError, DlcError
from dlc.runtime.ranks.simulated import SimulatedRanks

if TYPE_CHECKING:
    from mpi4py import MPI

Words: TypeAlias = NDArray[np.int64]
PATIENCE = 20
"""Seconds after which a rank that ended with an error no longer waits for the others to learn of it."""
_LEAST = np.iinfo(np.int64).min
_ENDED = "its program has ended"
"""What a rank tells the others when it comes to its end."""


class Entering:
    """The agreement of the ranks of one model on the calls that they begin."""

    def __init__(
        self,
        rank: int,
        ranks: int,
        maximum: Callable[[Words], None],
        gather: Callable[[str], list[str]],
    ) -> None:
        """`maximum` replaces words by the largest of all ranks, `gather` gives the texts of all."""
        self._rank, self._ranks = rank, ranks
        self._maximum, self._gather = maximum, gather
        self._words = np.empty(3, np.int64)
        self._done = 0
        """How often this rank has begun a call, or refused to."""
        self._gone: int | None = None
        """A rank that has ended, for which nobody may wait any more."""

    @classmethod
    def by_mpi(cls, comm: MPI.Intracomm) -> Entering:
        """That of the ranks of a communicator, which nobody else uses."""
        from mpi4py import MPI

        def maximum(words: Words) -> None:
            comm.Allreduce(MPI.IN_PLACE, words, MPI.MAX)

        def gather(text: str) -> list[str]:
            return [str(each) for each in comm.allgather(text)]

        found = cls(comm.Get_rank(), comm.Get_size(), maximum, gather)

        def end() -> None:
            # With `python -m mpi4py` an error that nobody caught ends all ranks behind this.
            failed = hasattr(sys, "last_value")
            if MPI.Is_finalized() or (failed and "mpi4py.run" in sys.modules):
                return
            if failed and hasattr(signal, "alarm"):
                # The others may wait where they are not told: MPI ends all if this process is ended.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(PATIENCE)
            found.end()
            if failed and hasattr(signal, "alarm"):
                signal.alarm(0)

        atexit.register(end)
        return found

    @classmethod
    def simulated(cls, ranks: SimulatedRanks) -> Entering:
        """That of ranks that are threads."""

        def maximum(words: Words) -> None:
            words[:] = np.max(ranks.allgather(words.copy()), axis=0)

        return cls(ranks.rank, ranks.mesh.size, maximum, ranks.allgather)

    def begin(self, what: str) -> None:
        """Begin a call as all ranks do.

        Raises CallError (D0824) where another rank refuses to, begins something else, or has ended.
        """
        if self._gone is not None:
            raise not_begun(self._gone, _ENDED)
        key = crc32(what.encode())
        refusing = self._combined(0, key, -key)
        if refusing is not None:
            raise not_begun(refusing, self._told(what)[refusing])
        if self._words[1] != -self._words[2]:
            raise _different(self._told(what))

    def refuse(self, error: BaseException) -> None:
        """Tell the other ranks, which are about to begin, that this one does not."""
        self._refuse(text_of(error))

    def end(self) -> None:
        """Tell the other ranks that this one begins nothing any more; returns when all have come."""
        self._refuse(_ENDED)

    def _refuse(self, why: str) -> None:
        if self._gone is None:
            self._combined(self._ranks - self._rank, _LEAST, _LEAST)
            self._told(why)

    def told(self, own: str) -> list[str]:
        """What each rank tells all of them, by rank, within a call."""
        return self._gather(own)

    def _told(self, own: str) -> list[str]:
        """What all ranks say."""
        texts = self._gather(own)
        if _ENDED in texts:
            self._gone = texts.index(_ENDED)
        return texts

    def all_of(self, own: bool) -> bool:
        """Whether this is so on all ranks, which ask together."""
        self._words[:] = not own
        self._maximum(self._words)
        return not self._words[0]

    def _combined(self, refused: int, *key: int) -> int | None:
        """Combine the words of all ranks; the lowest rank that refuses, if any does."""
        self._done += 1
        self._words[:] = refused, *key
        self._maximum(self._words)
        highest = int(self._words[0])
        return self._ranks - highest if highest else None

    @contextmanager
    def preparing(self) -> Generator[None]:
        """While inside, an error before the call has begun is a refusal."""
        before = self._done
        try:
            yield
        except Exception as error:
            if self._done == before:
                self.refuse(error)
            raise


def text_of(error: BaseException) -> str:
    """What other ranks are told of an error."""
    if isinstance(error, DlcError):
        return error.diagnostics[0].message
    return f"{type(error).__name__}: {error}"


def not_begun(rank: int, why: str) -> CallError:
    """The error (D0824) on the ranks that wait for one that does not come."""
    return CallError(
        f"rank {rank} failed, so that no rank goes on: {why}",
        code="D0824",
        help=f"look at rank {rank}: all ranks begin a call together, with arguments that fit",
    )


def _different(calls: list[str]) -> CallError:
    other = next(rank for rank, call in enumerate(calls) if call != calls[0])
    return CallError(
        f"rank 0 calls {calls[0]}, and rank {other} calls {calls[other]}",
        code="D0824",
        help="let all ranks make the same calls in the same order",
    )
