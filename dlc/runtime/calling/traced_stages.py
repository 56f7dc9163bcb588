"""A call on a stage of a pipeline that notes when its parts run, and when it sends and waits."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Literal, NamedTuple

from dlc.runtime.abi import TraceWord
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.calling.frames import Words
from dlc.runtime.calling.specialization import Specialization
from dlc.runtime.calling.stage_call import Array, Message, Own, Passed, Plan, StageCall
from dlc.runtime.profiling.stages import Span
from dlc.runtime.ranks.links import Channel


class PartCall(NamedTuple):
    """The compiled code of a part: its records from `first` on, when it began and ended by the clock."""

    name: str
    first: int
    recorded: int
    begun: int
    ended: int


class Recording:
    """What one call does on a stage: its spans, and the records of its parts, with the ops of all parts."""

    def __init__(
        self, ranks: Sequence[int], records: Words, first_op: Mapping[str, int], *, alone: bool
    ) -> None:
        """`ranks` are those of the pipeline by stage, `first_op` the number of the first op of each part.

        With `alone` the calling thread does all work, so that there is a record for each run of an op.
        """
        self.ranks, self.alone = ranks, alone
        self._records, self._first_op = records, first_op
        self.spans: list[Span] = []
        self.calls: list[PartCall] = []
        self.sizes: dict[str, Specialization] = {}
        self.used = 0
        """How many records there were to write, also where they had no room."""
        self.began = perf_counter_ns()
        self.ended = self.began

    @property
    def records(self) -> Words:
        """What was recorded."""
        return self._records[: self.used]

    @property
    def fits(self) -> bool:
        """Whether all records had room."""
        return self.used <= len(self._records)

    def call(
        self, name: str, part: EntryPoint, arguments: Sequence[Passed], sizes: Mapping[str, int]
    ) -> object:
        """What a part returns, with a trace."""
        first = min(self.used, len(self._records))
        found = part.traced(self._records[first:], arguments, sizes, alone=self.alone)
        self._records[first : first + found.recorded, TraceWord.OP] += self._first_op[name]
        self.calls.append(PartCall(name, self.used, found.recorded, found.begun, found.ended))
        self.used += found.recorded
        self.sizes[name] = found.specialization
        return found.result

    @contextmanager
    def span(
        self,
        kind: Literal["part", "send", "wait"],
        title: str,
        microbatch: int | None = None,
        what: str = "",
        other: int | None = None,
        arrow: str = "",
    ) -> Generator[None]:
        """Note what happens inside."""
        begun = perf_counter_ns()
        yield
        ended = perf_counter_ns()
        times = begun - self.began, ended - self.began
        self.spans.append(Span(kind, title, *times, microbatch, what, other, arrow))

    def end(self, settle: Callable[[], None]) -> None:
        """End with the wait until all is sent."""
        with self.span("wait", "wait until all is sent"):
            settle()
        self.ended = perf_counter_ns()


class TracedStageCall(StageCall):
    """One call, on one stage, that is recorded."""

    def __init__(
        self,
        plan: Plan,
        entries: Mapping[str, EntryPoint],
        channel: Channel,
        values: dict[str, Passed],
        dims: Mapping[str, int],
        recording: Recording,
    ) -> None:
        super().__init__(plan, entries, channel, values, dims)
        self._recording, self._titles = recording, titles_of(plan)

    def _called(
        self,
        part: Own,
        microbatch: int | None,
        arguments: Sequence[Passed],
        sizes: Mapping[str, int],
    ) -> object:
        title = self._titles[part.name]
        shown = title if microbatch is None else f"{title} {microbatch}"
        with self._recording.span("part", shown, microbatch, part.name):
            return self._recording.call(part.name, self._entries[part.name], arguments, sizes)

    def _send_to(self, target: int, message: Message, array: Array) -> None:
        arrow = self._arrow(self._plan.stage, target, message)
        title = f"send to stage {target}"
        with self._recording.span("send", title, message.microbatch, message.name, target, arrow):
            super()._send_to(target, message, array)

    def _receive_from(self, source: int, message: Message, array: Array) -> None:
        arrow = self._arrow(source, self._plan.stage, message)
        title = f"wait for stage {source}"
        with self._recording.span("wait", title, message.microbatch, message.name, source, arrow):
            super()._receive_from(source, message, array)

    def _arrow(self, source: int, target: int, message: Message) -> str:
        """The same on the rank that sends and the one that waits, and nowhere else."""
        ranks = self._recording.ranks
        return f"{ranks[source]} to {ranks[target]}, {self._tag(message)}"


def titles_of(plan: Plan) -> dict[str, str]:
    """What the parts of a stage are called in pictures, by their names."""
    titles: dict[str, str] = {}
    is_last = plan.stage == plan.staged.stages - 1
    usual = {2: ["forward", "backward"], 1: ["forward and backward" if is_last else "microbatch"]}
    around = [("before", plan.before), ("update", plan.after)] if plan.each else []
    flat = () if plan.each else (*plan.before, *plan.after)
    for number, part in enumerate(plan.each):
        each = usual.get(len(plan.each))
        titles[part.name] = each[number] if each else f"part {number} of microbatch"
    for title, parts in (*around, ("part", flat)):
        for number, part in enumerate(parts):
            titles[part.name] = title if len(parts) == 1 else f"{title} {number}"
    return titles
