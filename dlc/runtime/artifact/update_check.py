"""The checker of updates in place: a call overwrites an argument only after the last read of what it was.

For each argument that a call updates the certificate lists the calls that read its value from before, and
those that write the new one. The checker finds the accesses in the step table by itself and verifies that

- the calls that write the argument are the listed ones;
- a listed read comes in a wave before that of every write; or it is the writing call itself, at the same
  bytes; or read and write move along with one loop, and in each round the read comes first; or the two
  are in different branches;
- a call that reads the argument and is not listed comes after a write: it reads the new value.

Like `plan_check` it shares no code with the planner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from dlc.runtime.abi import ArgKind, ArgWord, Opcode, Root, StepWord
from dlc.runtime.artifact.certificate import UpdateRecord
from dlc.runtime.artifact.plan_check import BadPlan
from dlc.runtime.artifact.program_check import ProgramTable

__all__ = ["UpdateCheck"]

_Place: TypeAlias = tuple[int, int, int]
"""Where an argument points: the index of its offset, the counter that moves it, the index of its step."""
_FIXED = -1
"""The counter of a place that no loop moves."""


class _Access(NamedTuple):
    """The places of an argument of the entry point that one call reads or writes."""

    call: int
    wave: int
    places: frozenset[_Place]


class UpdateCheck:
    """Checks the updates of one program; `updated` has the names of the inputs that outputs update."""

    def __init__(self, table: ProgramTable, inputs: int, updated: Mapping[int, str]) -> None:
        self._table = table
        self._inputs = inputs
        self._updated = updated
        self._loops = _ranges(table, Opcode.LOOP, StepWord.C) + _backward_jumps(table)
        self._choices = _choices(table)
        self._steps: list[int] = table.calls.tolist()

    def check(self, records: Sequence[UpdateRecord]) -> None:
        """Check the records of a certificate. Raises BadPlan."""
        reads, writes = self._accesses()
        found = {record.input: record for record in records}
        if len(found) < len(records) or set(found) != set(self._updated):
            raise BadPlan("it does not list each input that an output updates once")
        for number, record in found.items():
            self._check_one(record, reads.get(number, []), writes.get(number, []))

    def _accesses(self) -> tuple[dict[int, list[_Access]], dict[int, list[_Access]]]:
        """What calls read and write of each input, by its number."""
        reads: dict[int, list[_Access]] = {}
        writes: dict[int, list[_Access]] = {}
        rows = self._table.arguments.tolist()
        for call, step in enumerate(self._steps):
            words = self._table.steps[step].tolist()
            wave = int(self._table.waves[step])
            first, count, read = (words[word] for word in (StepWord.B, StepWord.C, StepWord.G))
            for found, part in (
                (reads, rows[first : first + read]),
                (writes, rows[first + read : first + count]),
            ):
                for number, places in self._inputs_in(part):
                    found.setdefault(number, []).append(_Access(call, wave, places))
        return reads, writes

    def _inputs_in(self, rows: Sequence[Sequence[int]]) -> Iterator[tuple[int, frozenset[_Place]]]:
        """The inputs that some arguments of a call point to, with the places."""
        places: dict[int, set[_Place]] = {}
        for row in rows:
            number = row[ArgWord.ROOT] - Root.INPUTS
            points = row[ArgWord.KIND] in (ArgKind.POINTER, ArgKind.LOADED)
            if points and 0 <= number < self._inputs:
                place = row[ArgWord.OFFSET], row[ArgWord.COUNTER], row[ArgWord.STRIDE]
                places.setdefault(number, set()).add(place)
        return iter([(number, frozenset(own)) for number, own in places.items()])

    def _check_one(
        self, record: UpdateRecord, reads: Sequence[_Access], writes: Sequence[_Access]
    ) -> None:
        name = self._updated[record.input]
        if tuple([write.call for write in writes]) != record.writes:
            raise BadPlan(f"the calls that write {name} are not those that it lists")
        known = {read.call: read for read in reads}
        for call in record.reads:
            if call not in known:
                raise BadPlan(f"call {call} does not read {name}")
            for write in writes:
                if not self._is_before(known[call], write):
                    raise BadPlan(
                        f"{name} is overwritten in wave {write.wave}, and its value from before is "
                        f"read in wave {known[call].wave}"
                    )
        for read in reads:
            if read.call not in record.reads and not self._is_after_a_write(read, writes):
                raise BadPlan(f"call {read.call} reads {name} before it is written")

    def _is_before(self, read: _Access, write: _Access) -> bool:
        """Whether a write comes after a read of the same bytes, whatever runs."""
        if read.call == write.call:
            return read.places == write.places
        if self._exclude(read.call, write.call):
            return True
        if read.wave >= write.wave:
            return False
        return not self._share_a_loop(read.call, write.call) or (
            read.places == write.places and all(moves != _FIXED for _, moves, _ in read.places)
        )

    def _is_after_a_write(self, read: _Access, writes: Sequence[_Access]) -> bool:
        """Whether a call reads what another has written, perhaps in the round of a loop before."""
        return any(
            write.wave < read.wave or self._share_a_loop(read.call, write.call) for write in writes
        )

    def _share_a_loop(self, one: int, other: int) -> bool:
        return any(self._in(one, loop) and self._in(other, loop) for loop in self._loops)

    def _exclude(self, one: int, other: int) -> bool:
        """Whether two calls are in the two branches of a choice."""
        return any(
            (self._in(one, yes) and self._in(other, no))
            or (self._in(other, yes) and self._in(one, no))
            for yes, no in self._choices
        )

    def _in(self, call: int, steps: range) -> bool:
        return self._steps[call] in steps


def _ranges(table: ProgramTable, opcode: Opcode, end: StepWord) -> list[range]:
    """The steps from each one with an opcode up to where its word points."""
    at = np.flatnonzero(table.steps[:, StepWord.OPCODE] == opcode).tolist()
    return [range(step, int(table.steps[step, end])) for step in at]


def _backward_jumps(table: ProgramTable) -> list[range]:
    """The steps of each `while`."""
    at = np.flatnonzero(table.steps[:, StepWord.OPCODE] == Opcode.JUMP).tolist()
    starts = [(int(table.steps[step, StepWord.A]), step) for step in at]
    return [range(start, step + 1) for start, step in starts if start <= step]


def _choices(table: ProgramTable) -> list[tuple[range, range]]:
    """The steps of the two branches of each choice: a jump ends the first one, over the second."""
    found: list[tuple[range, range]] = []
    for step in np.flatnonzero(table.steps[:, StepWord.OPCODE] == Opcode.BRANCH).tolist():
        middle = int(table.steps[step, StepWord.B])
        last = middle - 1
        if last > step and table.steps[last, StepWord.OPCODE] == Opcode.JUMP:
            end = int(table.steps[last, StepWord.A])
            if end >= middle:
                found.append((range(step, middle), range(middle, end)))
    return found
