"""The parts of a function that the stages of a pipeline run, once its edges are cut and differentiated.

A function is flat, or goes through microbatches in a loop. What stands before the loop, in its body,
and behind it are three *phases*. In each of them an operation is on the stage of its operands, and its
*level* is how often what it is computed from has changed the stage: of three stages, the forward pass
has the levels 0, 1 and 2, the backward pass 2, 3 and 4. The operations of a stage and a phase that have
one level are a *part*, a function of its own: of microbatches, the first stage has a forward and a
backward part, and the last stage one for both. A part computes what others wait for; whatever else can
be done later is left to the last part of its stage and phase.

What depends on no stage, such as the examples of a batch and random numbers, each part computes for itself.
Weights and states are at home where they are updated. Values go from part to part by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal, TypeAlias

from dlc.dialects import array, flow, func
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.comm import STAGED, Recv, Send, is_everywhere, stage_of_device
from dlc.dialects.interface import bounds_attribute
from dlc.dialects.measured import dims_of, measuring
from dlc.errors import ModelError
from dlc.ir.clone import clone, clone_block
from dlc.ir.core import Block, Builder, Op, Value
from dlc.runtime.artifact.manifest import MICROBATCH

Phase: TypeAlias = Literal["before", "each", "after"]

__all__ = ["PHASES", "Part", "Split", "split"]

PHASES: tuple[Phase, Phase, Phase] = ("before", "each", "after")
"""When a part runs: before the microbatches, for each of them, behind them. A flat function has the
first."""
_USUAL = 64
"""What a named size counts for where values are compared by size."""


@dataclass(eq=False)
class Part:
    """A function that a stage runs, in the making."""

    stage: int
    phase: int
    ops: list[Op] = field(default_factory=list[Op])
    gives: dict[str, Value] = field(default_factory=dict[str, Value])
    """What other parts need, by name."""
    writes: dict[str, Value] = field(default_factory=dict[str, Value])
    """What arguments become: weights and states, and what goes from microbatch to microbatch."""


@dataclass(frozen=True, slots=True)
class Split:
    """The parts of a function with their stages and phases, in an order in which they can run.

    `results` are the names of the values that the function returns and that update nothing, `homes` the
    stages of weights and states, `rows` says for names of values of which other value each microbatch
    has a row. `in_order` says that a stage ends with one microbatch before it begins with the next.
    """

    parts: Sequence[tuple[func.Func, int, Phase]]
    results: tuple[str, ...]
    homes: Mapping[str, int]
    microbatches: int
    rows: Mapping[str, str]
    carried: tuple[str, ...]
    in_order: bool


def split(
    function: func.Func, inputs: Iterable[str], stages: int, homes: Mapping[str, int]
) -> Split:
    """Divide a function among stages.

    `inputs` are the names of the arguments that every rank has, `homes` stages of weights that are
    settled. Raises ModelError (D0383) for what cannot be divided.
    """
    if measuring(function):
        raise function.fail(
            "a size that a call counts itself cannot go from stage to stage",
            code="D0383",
            help="compute it on the last stage alone, or leave out --ranks",
        )
    return _Splitter(function, set(inputs), stages, homes).run()


class _Splitter:
    def __init__(
        self, function: func.Func, inputs: set[str], stages: int, homes: Mapping[str, int]
    ) -> None:
        self.function, self.last = function, stages - 1
        arguments = function.body.arguments
        self.names = dict(zip(arguments, function.input_names, strict=True))
        self.weights = {value for value, name in self.names.items() if name not in inputs}
        self.given_homes = homes
        self.loop = next((op for op in function.body if _is_staged_loop(op)), None)
        self.phases: dict[Op, int] = {}
        self.same: dict[Value, Value] = {}
        """What a value is, of those that a loop is passed or a transfer moves."""
        self.carries: dict[Value, Value] = {}
        """What the body of the loop carries, and what that becomes."""
        self.rows: dict[Value, Value] = {}
        self.places: dict[Value, int] = {}
        self.levels: dict[Op, int] = {}
        self.parts: list[Part] = []
        self.part_of: dict[Op, Part] = {}

    def run(self) -> Split:
        """Place operations, find the parts, and make their functions."""
        self._lay_out()
        self._place()
        arguments = self.function.body.arguments
        self.homes = {value: self._home(value) for value in arguments if value in self.weights}
        self._find_levels()
        self._find_parts()
        self._connect()
        return self._made()

    # Order.

    def _lay_out(self) -> None:
        """Find the phase of each operation, and what the body of the loop knows by other names."""
        phase = 0
        for op in self.function.body:
            if op is self.loop:
                phase = 2
            elif not op.terminator:
                self.phases[op] = phase
        loop = self.loop
        if loop is not None:
            assert isinstance(loop, flow.Scan)
            self._enter(loop)
        for op in self.phases:
            if isinstance(op, Recv):
                sent = op.sent.op
                assert isinstance(sent, Send)
                self.same[op.result] = sent.inputs[0]

    def _enter(self, loop: flow.Scan) -> None:
        body, carried, rows = loop.body, len(loop.initial), len(loop.xs)
        if len(loop.results) > carried or any(loop.x_axes) or not isinstance(loop.length, int):
            raise loop.fail("the loop over microbatches has the form that training gives it")
        self.phases.update({op: 1 for op in body if not op.terminator})
        counter, *arguments = body.arguments
        self.names[counter] = MICROBATCH
        self.carries = dict(zip(arguments[:carried], body.terminator.operands, strict=False))
        self.rows = dict(zip(arguments[carried : carried + rows], loop.xs, strict=True))
        self.same.update(zip(arguments[carried + rows :], loop.constants, strict=True))
        self.same.update(zip(loop.results, arguments[:carried], strict=True))

    def source_of(self, value: Value) -> Value:
        """What a value is where it is computed."""
        while value in self.same:
            value = self.same[value]
        return value

    @property
    def ops(self) -> list[Op]:
        """All operations in an order in which they can run."""
        return sorted(self.phases, key=lambda op: self.phases[op])  # stable

    # Stages.

    def _place(self) -> None:
        for op in self.ops:
            if isinstance(op, Recv):
                stage = stage_of_device(op.target)
                assert stage is not None
                self.places[op.result] = stage
        self._as_cut()
        self._by_operands((0, 1))
        for carried, following in self.carries.items():
            following = self.source_of(following)
            if following not in self.places and following.op in self.phases:
                self._settle(following.op, self.last)
            self.places[carried] = self.places.get(following, self.last)
        self._by_operands((1, 2))
        for value in self.function.results_returned:
            value = self.source_of(value)
            if value not in self.places and value.op in self.phases:
                self._settle(value.op, self.last)
        self._by_operands((0, 1, 2))

    def _as_cut(self) -> None:
        """Put operations of examples on the stage that they were put on, or that of their first user.

        What is computed of weights alone, as their casts, each part computes for itself.
        """
        of_weights = set(self.weights)
        mixed: list[Op] = []
        for op in self.ops:
            operands = [self.source_of(value) for value in op.operands]
            known = [value in of_weights for value in operands]
            stage = op.attributes.get(STAGED)
            if any(known) and all(
                is_weight or is_everywhere(value.op)
                for is_weight, value in zip(known, operands, strict=True)
            ):
                of_weights.update(op.results)
            elif isinstance(stage, int) and not isinstance(op, Send | Recv):
                self._settle(op, stage)
            elif any(known):
                mixed.append(op)
        for op in reversed(mixed):
            users = [user for value in op.results for user in value.uses]
            found = [place for user in users if (place := self._stage_of(user)) is not None]
            if found:
                self._settle(op, min(found))

    def _stage_of(self, op: Op) -> int | None:
        """The stage of an operation that is on one."""
        if isinstance(op, Send):
            return stage_of_device(op.source)
        return self.places.get(op.results[0]) if op.results else None

    def _settle(self, op: Op | None, stage: int) -> None:
        assert op is not None
        self.places.update(dict.fromkeys(op.results, stage))

    def _by_operands(self, phases: Sequence[int]) -> None:
        """Put operations on the stage of the largest value that they are computed from, of equal ones the
        last."""
        for op in self.ops:
            is_open = not self.is_placed(op) and not isinstance(op, Send | Recv | array.Broadcast)
            if self.phases[op] in phases and is_open:
                found = [(_elements(value), self.places[value]) for value in self._needs(op)]
                if found:
                    self._settle(op, max(found)[1])

    def _needs(self, op: Op) -> list[Value]:
        """The values on stages that an operation is computed from, as its stage sees them."""
        found: dict[Value, None] = {}
        pending = list(op.operands)
        seen = set(pending)
        while pending:
            value = pending.pop()
            if value in self.places:
                found[value] = None
                continue
            source = self.source_of(value)
            if source in self.places:
                found[source] = None
            elif source.op in self.phases:
                assert source.op is not None
                new = [each for each in source.op.operands if each not in seen]
                seen.update(new)
                pending += new
        return list(found)

    def _sources(self, op: Op) -> list[Value]:
        """The same where they are computed."""
        return [self.source_of(value) for value in self._needs(op)]

    def _place_of(self, value: Value) -> int | None:
        """The stage that a value is on, as its users see it; None for what every stage has or computes."""
        return (
            self.places[value] if value in self.places else self.places.get(self.source_of(value))
        )

    def is_placed(self, op: Op) -> bool:
        """Whether an operation is on a stage, rather than on all that need it."""
        return op.results[0] in self.places and not isinstance(op, Send | Recv)

    def _home(self, value: Value) -> int:
        """The stage of a weight: where it is updated, or else where it is used first."""
        name = self.names[value]
        if name in self.given_homes:
            return self.given_homes[name]
        function = self.function
        for result, argument in function.updates.items():
            if function.body.arguments[argument] is value:
                place = self._place_of(function.results_returned[result])
                if place is not None:
                    return place
        users = set[Op]()
        aliases = [inner for inner, outer in self.same.items() if outer is value]
        pending = [user for each in (value, *aliases) for user in each.uses]
        while pending:
            user = pending.pop()
            if user not in users and user in self.phases:
                users.add(user)
                if not self.is_placed(user):
                    pending += [other for result in user.results for other in result.uses]
        return min([self.places[op.results[0]] for op in users if self.is_placed(op)], default=0)

    # Parts.

    def _find_levels(self) -> None:
        for op in self.ops:
            if not self.is_placed(op):
                continue
            level = 0
            for value in self._sources(op):
                before = value.op
                if before in self.levels and self.phases[before] == self.phases[op]:
                    moves = self.places[value] != self.places[op.results[0]]
                    level = max(level, self.levels[before] + moves)
            self.levels[op] = level

    def _find_parts(self) -> None:
        """Find the parts, in an order in which they can run."""
        found: list[tuple[int, int, int, Part]] = []
        awaited = self._awaited()
        for phase in range(3):
            for stage in range(self.last + 1):
                own = [op for op in self.levels if self._is_of(op, phase, stage)]
                levels = sorted({self.levels[op] for op in own})
                for level in levels[:-1]:
                    ready = [op for op in own if self.levels[op] <= level]
                    ops = self._needed(ready, awaited.intersection(ready))
                    if ops:
                        found.append((phase, level, stage, self._part(stage, phase, ops)))
                rest = [op for op in own if op not in self.part_of]
                if rest:
                    found.append((phase, levels[-1], stage, self._part(stage, phase, rest)))
        self.parts = [part for *_, part in sorted(found, key=lambda each: each[:3])]

    def _is_of(self, op: Op, phase: int, stage: int) -> bool:
        return self.phases[op] == phase and self.places[op.results[0]] == stage

    def _part(self, stage: int, phase: int, ops: list[Op]) -> Part:
        part = Part(stage, phase, ops)
        self.part_of.update(dict.fromkeys(ops, part))
        return part

    def _needed(self, ops: Sequence[Op], wanted: Iterable[Op]) -> list[Op]:
        """Of operations those that compute what is wanted, without those that a part has already."""
        needed = {op for op in wanted if op not in self.part_of}
        for op in reversed(ops):
            if op in needed:
                needed.update([v.op for v in self._sources(op) if v.op is not None])
        return [op for op in ops if op in needed and op not in self.part_of]

    def _awaited(self) -> set[Op]:
        """Operations for a result of which another stage, or the next microbatch, waits."""
        values = {self.source_of(value) for value in self.carries.values()}
        for op in self.levels:
            stage = self.places[op.results[0]]
            values.update(
                [v for v in map(self.source_of, op.operands) if self.places.get(v) != stage]
            )
        return {value.op for value in values if value.op is not None}

    def _last_part(self, stage: int, phase: int) -> Part:
        """The last part of a stage in a phase, made if there is none."""
        own = [part for part in self.parts if (part.stage, part.phase) == (stage, phase)]
        if own:
            return own[-1]
        part = Part(stage, phase)
        later = [k for k, each in enumerate(self.parts) if each.phase > phase]
        self.parts.insert(later[0] if later else len(self.parts), part)
        return part

    # What goes from part to part.

    def _connect(self) -> None:
        """Say what each part gives to others, and what arguments become."""
        for part in self.parts:
            for value in [value for op in part.ops for value in self._sources(op)]:
                source = None if value.op is None else self.part_of.get(value.op)
                if source is not None and source is not part:
                    source.gives[self.name_of(value)] = value
        end = 0 if self.loop is None else 2
        for carried, following in self.carries.items():
            value, stage = self.source_of(following), self.places[carried]
            if value is not carried:
                part = None if value.op is None else self.part_of.get(value.op)
                (part or self._last_part(stage, 1)).writes[self.name_of(carried)] = value
        self.results: list[str] = []
        function = self.function
        for number, value in enumerate(map(self.source_of, function.results_returned)):
            argument = function.updates.get(number)
            if argument is not None:
                written = function.body.arguments[argument]
                if value is not written:
                    part = self._last_part(self.homes[written], end)
                    part.writes[self.name_of(written)] = value
                    self._bring(value, part)
                continue
            part = self._last_part(self.places.get(value, self.last), end)
            self._bring(value, part)
            name = f"%result{len(self.results)}"
            part.gives[name] = value
            self.results.append(name)

    def _bring(self, value: Value, part: Part) -> None:
        """Let a part have a value that another one computes."""
        source = None if value.op is None else self.part_of.get(value.op)
        if source is not None and source is not part:
            source.gives[self.name_of(value)] = value

    def name_of(self, value: Value) -> str:
        """The name by which a value goes from part to part."""
        return self.names.setdefault(value, f"%{len(self.names)}")

    def argument(self, name: str) -> Value:
        """The argument of the function, or what the loop carries, that has a name."""
        return next(value for value, own in self.names.items() if own == name)

    # Functions.

    def _made(self) -> Split:
        made = {part: _Maker(self, part) for part in self.parts if part.phase}
        rows: dict[str, str] = {}
        for part, maker in made.items():
            for row in [value for value in maker.taken if value in self.rows]:
                name = self.name_of(row)
                rows[name] = f"{name} of all"
                self._last_part(part.stage, 0).gives[rows[name]] = self.rows[row]
        if self.loop is not None:
            assert isinstance(self.loop, flow.Scan)
            for carried, first in zip(self.carries, self.loop.initial, strict=True):
                self._last_part(self.places[carried], 0).gives[self.name_of(carried)] = first
        made |= {part: _Maker(self, part) for part in self.parts if not part.phase}
        parts = [(made[part].function, part) for part in self.parts if part.gives or part.writes]
        return Split(
            [(function, part.stage, PHASES[part.phase]) for function, part in parts],
            tuple(self.results),
            {self.names[value]: stage for value, stage in self.homes.items()},
            1 if self.loop is None else int(str(self.loop.attributes["length"])),
            rows,
            tuple([self.name_of(value) for value in self.carries]),
            self._is_in_order({part: set(maker.taken) for part, maker in made.items()}),
        )

    def _is_in_order(self, taken: Mapping[Part, set[Value]]) -> bool:
        """Whether microbatches must not overlap: what one sets another part of the stage reads first."""
        own = [part for part in self.parts if part.phase == 1]
        for carried in self.carries:
            name, stage = self.name_of(carried), self.places[carried]
            for part in own:
                if carried not in taken[part]:
                    continue
                if part.stage != stage:
                    raise self._shared_state(carried, part.stage, stage)
                if name not in part.writes:
                    return True
        return any(sum(part.stage == s for part in own) > 2 for s in range(self.last + 1))

    def _shared_state(self, carried: Value, reader: int, writer: int) -> ModelError:
        assert self.loop is not None
        return self.loop.fail(
            f"stage {reader} reads a state that stage {writer} sets in each microbatch",
            code="D0383",
            help="put both on one stage",
        )


class _Maker:
    """Makes the function of a part."""

    def __init__(self, splitter: _Splitter, part: Part) -> None:
        self.splitter, self.part = splitter, part
        self.block = Block()
        self.emit = Builder(self.block, splitter.function.location)
        self.local: dict[Value, Value] = {}
        self.taken: dict[Value, Value] = {}
        """The arguments, by what they stand for."""
        for op in part.ops:
            self._copy(op)
        given = [self._value(value) for value in part.gives.values()]
        for name in part.writes:
            self._take(splitter.argument(name))
        written = [self._value(value) for value in part.writes.values()]
        self.emit.place(func.Return((*given, *written)))
        self.function = self._function()

    def _take(self, value: Value) -> Value:
        if value not in self.taken:
            name = self.splitter.name_of(value)
            self.taken[value] = self.block.add_argument(value.type, name)
        return self.taken[value]

    def _value(self, value: Value) -> Value:
        """A value in this function: taken, or computed of what every stage has."""
        pending = [value]
        while pending:
            value = self.splitter.source_of(pending[-1])
            op = value.op
            if value in self.local or value in self.taken:
                pending.pop()
            elif op is None or self.splitter.is_placed(op):
                self._take(value)
            else:
                sources = [self.splitter.source_of(each) for each in op.operands]
                missing = [v for v in sources if v not in self.local and v not in self.taken]
                if missing:
                    pending += missing
                else:
                    self._copy(op)
        return self.local[value] if value in self.local else self.taken[value]

    def _copy(self, op: Op) -> None:
        operands = [self._value(value) for value in op.operands]
        copy = clone(op, operands, [clone_block(region) for region in op.regions])
        copy.location = op.location
        copy.attributes.pop(STAGED, None)
        self.block.insert(copy, None)
        self.local.update(zip(op.results, copy.results, strict=True))

    def _function(self) -> func.Func:
        splitter, part = self.splitter, self.part
        number = splitter.parts.index(part)
        results = self.block.terminator.operands
        name = f"{splitter.function.sym_name}_stage{part.stage}_{PHASES[part.phase]}{number}"
        function = func.Func(self.block, name, func.signature(self.block, results), "public")
        function.location = splitter.function.location
        function.attributes["dlc.inputs"] = tuple([splitter.name_of(v) for v in self.taken])
        function.attributes["dlc.results"] = (*part.gives, *[f"{n} next" for n in part.writes])
        function.attributes["dlc.updates"] = (*[""] * len(part.gives), *part.writes)
        mentioned = {name for op in (function, *self.block) for name in dims_of(op)}
        bounds = {name: own for name, own in splitter.function.bounds.items() if name in mentioned}
        function.attributes["dlc.dims"] = bounds_attribute(bounds)
        return function


def _is_staged_loop(op: Op) -> bool:
    """Whether an operation is the loop over microbatches, between whose parts values are sent."""
    return isinstance(op, flow.Scan) and any(isinstance(inner, Send) for inner in op.body)


def _elements(value: Value) -> int:
    """About how many elements a value has."""
    sizes = [size if isinstance(size, int) else 0 for size in tensor_type(value).shape]
    return prod(size or _USUAL for size in sizes)
