"""The memory that a call takes: working memory, scratch of each thread, results, weights.

The arrays that it is given are the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlc.runtime.abi import MAX_THREADS
from dlc.runtime.artifact import manifest
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.weight_splits import held_bytes
from dlc.runtime.calling.specialization import Specialization
from dlc.runtime.loaded_code import Loaded

WORDS = {
    "given": "weights, state and batch",
    "weights": "weights",
    "results": "results",
    "arena": "values on the way",
    "scratch": "scratch",
    "preparation": "what prepares the weights",
}
"""The name of each part in reports."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The bytes that one thread takes besides the weights, and each further one."""

    fixed: int
    scratch: int

    @property
    def least(self) -> int:
        return self.fixed + self.scratch

    def threads_within(self, room: int) -> int:
        """How many threads there may be."""
        return (
            min(MAX_THREADS, (room - self.fixed) // self.scratch) if self.scratch else MAX_THREADS
        )


@dataclass(frozen=True, slots=True)
class Need:
    """The bytes that an entry point takes at these sizes; `weights` with what is prepared of them.

    `prepared` is that part: matrices in panels and the like, beside the weights as they are stored.
    """

    entry: manifest.Entry
    dims: Mapping[str, int]
    weights: int
    prepared: int
    given: int
    """Of the arrays that it is given, which `least` leaves out."""
    results: int
    call: Taken
    prepare: Taken
    """The first call prepares the weights before it does anything else."""

    @property
    def least(self) -> int:
        """All of it on one thread."""
        return self.weights + max(self.call.least, self.prepare.least)

    @property
    def parts(self) -> dict[str, int]:
        """The bytes that one thread takes, by kind; they add up to `least`."""
        more = max(0, self.prepare.least - self.call.least)
        return {
            "weights": self.weights,
            "results": self.results,
            "arena": self.call.fixed - self.results,
            "scratch": self.call.scratch,
            "preparation": more,
        }

    def threads_within(self, most: int) -> int:
        """How many threads there may be."""
        room = most - self.weights
        return min(self.call.threads_within(room), self.prepare.threads_within(room))


def need_of(artifact: Artifact, loaded: Loaded, entry: manifest.Entry, at: Specialization) -> Need:
    """The memory needs of an entry point at the sizes of a binding."""
    weights, prepared = held_bytes(artifact, entry.name), 0
    prepare = Taken(0, 0)
    if loaded.prepare is not None and loaded.target.prepare is not None:
        prepared = loaded.target.prepare.bytes
        sized = loaded.prepare.at({}, ())
        prepare = Taken(sized.arena, sized.scratch)
    call = Taken(at.result_bytes + at.sized.arena, at.sized.scratch)
    weights += prepared
    return Need(entry, at.dims, weights, prepared, at.input_bytes, at.result_bytes, call, prepare)
