"""What a traced call gives besides its result."""

from __future__ import annotations

from typing import NamedTuple

from dlc.runtime.artifact.manifest import Op
from dlc.runtime.calling.specialization import Specialization


class TraceRecord(NamedTuple):
    """The work of a thread on an op in a traced call, from `start` to `end` in processor cycles."""

    op: Op
    thread: int
    start: int
    end: int


class Traced(NamedTuple):
    """A traced call: its result, how many records there were to write, and when the compiled code ran.

    Times are nanoseconds of `time.perf_counter_ns`.
    """

    result: object
    specialization: Specialization
    recorded: int
    begun: int
    ended: int
