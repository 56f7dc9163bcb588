"""The memory plan of an entry point at one tuple of sizes, as the artifact records it.

All of it is read from the certificate, the table of steps and the list of values, after the checks that
loading makes; nothing is believed that a loader would not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dlc.driver.call_memory.needs import Need, need_of
from dlc.runtime.artifact import manifest
from dlc.runtime.artifact.arena_values import (
    ArenaValues,
    ValueRecord,
    read_arena_values,
    values_section,
)
from dlc.runtime.artifact.certificate import RootRecord
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.plan import Span
from dlc.runtime.calling.sized_program import CompiledProgram
from dlc.runtime.calling.specialization import Specializations
from dlc.runtime.loaded_code import Loaded


@dataclass(frozen=True, slots=True)
class Work:
    """An op of the program: its id, the wave that it runs in, what it computes, and where it stands."""

    op: int
    wave: int
    what: str
    place: str

    def __str__(self) -> str:
        return f"{self.what} {self.place}".strip()


@dataclass(frozen=True, slots=True)
class Value:
    """A value in the arena, and why it is where it is: see `dlc.runtime.artifact.arena_values`."""

    name: str
    type: str
    how: str
    place: str
    made_by: tuple[Work, ...] = ()
    read_by: tuple[Work, ...] = ()

    @property
    def title(self) -> str:
        """Its name and its type, as far as it has them."""
        return f"{self.name}: {self.type}" if self.name else self.type


@dataclass(frozen=True, slots=True)
class Root:
    """A root in the arena: live from the `first` to the `last` wave, with all of its values."""

    number: int
    device: str
    offset: int
    bytes: int
    first: int
    last: int
    place: str
    values: tuple[Value, ...] = ()

    @property
    def end(self) -> int:
        return self.offset + self.bytes

    @property
    def main(self) -> Value:
        """The value that it is called by: what is joined there, or one with a name and the most axes."""

        def worth(value: Value) -> tuple[bool, bool, bool, int]:
            own = value.how == "own"
            return value.how == "joined", bool(value.name), own, value.type.count(",")

        return max(self.values, key=worth, default=Value("", "", "own", self.place))

    @property
    def title(self) -> str:
        """Its name in the text, if it has one, and its type."""
        return self.main.title or f"root {self.number}"

    @property
    def maker(self) -> Work | None:
        """The first op that writes it."""
        return min(_works(value.made_by for value in self.values), key=_turn, default=None)

    @property
    def last_reader(self) -> Work | None:
        """The last op that reads it; None for what only a loop or the end of the call needs."""
        return max(_works(value.read_by for value in self.values), key=_turn, default=None)

    @property
    def sharing(self) -> tuple[Value, ...]:
        """The other values that were computed into it: its alias class without the views."""
        main = self.main
        return tuple(value for value in self.values if value is not main and value.made_by)


@dataclass(frozen=True)
class EntryMemory:
    """The memory plan of an entry point at these sizes; all amounts are bytes.

    `order_bound` is what no placement for this order of the work does with less than, `any_order_bound`
    what no order does with less than. `need` is what a call takes besides.
    """

    name: str
    dims: Mapping[str, int]
    arena: int
    order_bound: int
    any_order_bound: int
    need: Need
    roots: tuple[Root, ...]
    work: tuple[Work, ...]

    @cached_property
    def waves(self) -> int:
        """The number of waves."""
        last = [root.last for root in self.roots] + [work.wave for work in self.work]
        return max(last, default=-1) + 1

    @cached_property
    def alive(self) -> tuple[int, ...]:
        """The bytes in use in each wave."""
        changes = [0] * (self.waves + 1)
        for root in self.roots:
            changes[root.first] += root.bytes
            changes[root.last + 1] -= root.bytes
        totals: list[int] = []
        for change in changes[:-1]:
            totals.append((totals[-1] if totals else 0) + change)
        return tuple(totals)

    @cached_property
    def peak(self) -> int:
        """The first wave in which as much is in use as in any."""
        return max(range(self.waves), key=lambda wave: (self.alive[wave], -wave), default=0)

    @property
    def at_peak(self) -> list[Root]:
        """The roots that are in use then, the largest first."""
        alive = [root for root in self.roots if root.first <= self.peak <= root.last]
        return sorted(alive, key=lambda root: (-root.bytes, root.offset))

    @property
    def work_at_peak(self) -> list[Work]:
        """The ops that run then."""
        return [work for work in self.work if work.wave == self.peak]

    @property
    def order_gap(self) -> float:
        """The excess over the lower bound for this order; 0 if it is met."""
        return _gap(self.arena, self.order_bound)

    @property
    def any_order_gap(self) -> float:
        """The same for the lower bound over all orders."""
        return _gap(self.arena, self.any_order_bound)


def sizes_text(dims: Mapping[str, object]) -> str:
    """` at B = 8, T = 16`, or nothing.

    >>> sizes_text({"B": 8}), sizes_text({})
    (' at B = 8', '')
    """
    sizes = ", ".join(f"{name} = {size}" for name, size in dims.items())
    return f" at {sizes}" if sizes else ""


def entry_memory(
    artifact: Artifact, loaded: Loaded, entry: manifest.Entry, dims: Mapping[str, int]
) -> EntryMemory:
    """The plan of an entry point; `dims` are all sizes but those that the call measures.

    Raises CallError (D0804) for sizes that are not possible, ArtifactError for a plan that is wrong.
    """
    program = loaded.programs[entry.name]
    binding = Specializations(entry, program).at_dims(dims)
    certificate, plan = program.evidence(dims)
    noted = _noted(artifact, loaded, entry.name)
    work = _work(program, noted)
    values = _values(noted, work)
    return EntryMemory(
        entry.name,
        dims,
        plan.arena,
        plan.order_bound,
        plan.any_order_bound,
        need_of(artifact, loaded, entry, binding),
        tuple(
            _root(number, record, span, values.get(number, []))
            for number, (record, span) in enumerate(zip(certificate.roots, plan.roots, strict=True))
        ),
        tuple(work.values()),
    )


def _noted(artifact: Artifact, loaded: Loaded, entry: str) -> ArenaValues:
    """The artifact's records of the values of an entry point; none without such a section."""
    name = values_section(loaded.target.name, entry)
    if name not in artifact.sections:
        return ArenaValues()
    try:
        return read_arena_values(bytes(artifact.section(name)))
    except ValueError as error:
        raise artifact.error_context.error("D0610", str(error), section=name) from None


def _work(program: CompiledProgram, noted: ArenaValues) -> dict[int, Work]:
    """Every op that runs, by its id."""
    ops = program.program.ops
    labels = noted.ops if len(noted.ops) == len(ops) else ("",) * len(ops)
    return {
        op: Work(op, wave, labels[op] or ops[op].name, ops[op].place) for wave, op in program.work()
    }


def _values(noted: ArenaValues, work: Mapping[int, Work]) -> dict[int, list[Value]]:
    """The values by root, in the order in which they are made."""
    values: dict[int, list[Value]] = {}
    for record in noted.values:
        values.setdefault(record.root, []).append(_value(record, work))
    return values


def _value(record: ValueRecord, work: Mapping[int, Work]) -> Value:
    made_by, read_by = (
        tuple(work[op] for op in ops if op in work) for ops in (record.made_by, record.read_by)
    )
    return Value(record.name, record.type, record.how, record.place, made_by, read_by)


def _root(number: int, record: RootRecord, span: Span, values: Sequence[Value]) -> Root:
    return Root(
        number,
        record.device,
        span.offset,
        span.bytes,
        span.first,
        span.last,
        record.place,
        tuple(values),
    )


def _works(groups: Iterable[Sequence[Work]]) -> Iterable[Work]:
    return [work for group in groups for work in group]


def _turn(work: Work) -> tuple[int, int]:
    return work.wave, work.op


def _gap(used: int, bound: int) -> float:
    return used / bound - 1 if bound else 0.0
