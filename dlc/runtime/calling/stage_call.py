"""A call on a stage of a pipeline: its parts in their order, and what it sends and waits for.

The schedule of microbatches is 1F1B: a stage begins with as many forward parts as there are stages
behind it, then goes on with a forward and a backward part in turns, and ends with the backward parts
that are left. So a stage never holds the activations of more microbatches than there are stages from it
on. (Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", 2019, with all
updates at the end.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.arrays.dtypes import BF16, DTYPES
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact import size_expressions
from dlc.runtime.artifact.manifest import MICROBATCH, Entry, Input, Output, Staged
from dlc.runtime.artifact.spelling import python_name
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.ranks.links import Channel
from dlc.runtime.system.buffers import aligned_array

Array = NDArray[np.generic]
Passed: TypeAlias = "Array | Tensor"
"""What parts take and give; a Tensor for bf16 where NumPy has no such dtype."""


class Own(NamedTuple):
    """A part of this rank: what it takes by name, and to which stages it sends what it gives."""

    name: str
    """Of its entry point."""
    when: str
    takes: tuple[Input, ...]
    sends: Mapping[str, tuple[int, ...]]


class Step(NamedTuple):
    """What a stage does next in a call: it runs a part, of a microbatch or none, or sends values."""

    part: Own | None
    microbatch: int | None = None
    sends: Mapping[str, tuple[int, ...]] = {}
    """The values that it sends without a part, and to which stages."""
    ends: bool = False
    """Whether the microbatch is over."""


class Message(NamedTuple):
    """A value on its way from a stage to another one, of a microbatch if that is a number."""

    name: str
    microbatch: int | None


class Plan(NamedTuple):
    """What a stage does in a call: its parts by phase, and where the values of others come from."""

    staged: Staged
    stage: int
    before: tuple[Own, ...]
    each: tuple[Own, ...]
    after: tuple[Own, ...]
    sources: Mapping[str, int]
    """The stages that values come from."""
    lent: Mapping[str, tuple[int, ...]]
    """The weights that other stages use, and which."""
    carried: Mapping[str, tuple[int, ...]]
    """What this stage carries to the end of the microbatches and others use then, and which."""
    repeated: frozenset[str]
    """The values that there is one of for each microbatch."""
    tags: Mapping[str, int]


def plan_of(staged: Staged, parts: Mapping[str, Entry], stage: int) -> Plan:
    """What a stage does in a call, of parts with these interfaces."""
    sources, targets = _routes(staged, parts)
    found: dict[str, list[Own]] = {"before": [], "each": [], "after": []}
    for part in staged.parts:
        if part.stage != stage:
            continue
        entry = parts[part.entry]
        sends = {
            output.name: targets[output.name]
            for output in entry.outputs
            if not output.updates and targets.get(output.name) and output.name not in staged.carried
        }
        found[part.when].append(Own(part.entry, part.when, entry.inputs, sends))
    lent, carried = [
        {name: targets[name] for name in names if sources.get(name) == stage and targets.get(name)}
        for names in (staged.homes, staged.carried)
    ]
    return Plan(
        staged,
        stage,
        tuple(found["before"]),
        tuple(found["each"]),
        tuple(found["after"]),
        sources,
        lent,
        carried,
        frozenset(
            output.name
            for part in staged.parts
            if part.when == "each"
            for output in parts[part.entry].outputs
            if not output.updates
        ),
        {name: number for number, name in enumerate(sorted(sources))},
    )


def _routes(
    staged: Staged, parts: Mapping[str, Entry]
) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """The stage that each value comes from, and the other stages that take it."""
    takers: dict[str, list[int]] = {name: list(range(staged.stages)) for name in staged.results}
    sources = dict(staged.homes)
    for part in staged.parts:
        entry = parts[part.entry]
        for item in entry.inputs:
            takers.setdefault(item.name, []).append(part.stage)
        sources.update({each.name: part.stage for each in entry.outputs if not each.updates})
    targets = {
        name: tuple(sorted({stage for stage in takers.get(name, ()) if stage != source}))
        for name, source in sources.items()
        if name not in staged.rows.values()  # each stage makes those that it takes
    }
    return sources, targets


def schedule(
    stage: int, stages: int, microbatches: int, parts: int, *, in_order: bool = False
) -> Iterator[tuple[int, int]]:
    """The order in which a stage runs its parts for microbatches: numbers of both, part first.

    Microbatches that are `in_order` do not overlap.

    >>> list(schedule(0, 2, 3, 2))
    [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (1, 2)]
    >>> list(schedule(1, 2, 3, 1))
    [(0, 0), (0, 1), (0, 2)]
    """
    if parts != 2 or in_order:
        yield from [(part, k) for k in range(microbatches) for part in range(parts)]
        return
    ahead = min(stages - 1 - stage, microbatches)
    yield from [(0, k) for k in range(ahead)]
    for k in range(microbatches):
        if k + ahead < microbatches:
            yield 0, k + ahead
        yield 1, k


def steps_of(plan: Plan) -> Iterator[Step]:
    """What a stage does in a call, one after the other."""
    staged, parts = plan.staged, len(plan.each)
    yield Step(None, sends=plan.lent)
    yield from [Step(part) for part in plan.before]
    for number, k in schedule(
        plan.stage, staged.stages, staged.microbatches, parts, in_order=staged.in_order
    ):
        yield Step(plan.each[number], k, ends=number == parts - 1)
    yield Step(None, sends=plan.carried)
    yield from [Step(part) for part in plan.after]


class StageCall:
    """One call, on one stage."""

    def __init__(
        self,
        plan: Plan,
        entries: Mapping[str, EntryPoint],
        channel: Channel,
        values: dict[str, Passed],
        dims: Mapping[str, int],
    ) -> None:
        """`values` are the arguments that this stage has, by name."""
        self._plan, self._entries, self._channel = plan, entries, channel
        self._values, self._dims = values, dims
        self._repeated: dict[int, dict[str, Passed]] = {}
        """The values of each microbatch that is under way."""
        self.waited = 0.0
        """How long it has waited for values of other stages, in seconds."""
        self.sent = 0
        """How many arrays it has sent to later stages."""

    def run(self) -> None:
        """Run the parts of this stage. Afterwards it has nothing but what it knows of the results."""
        for step in steps_of(self._plan):
            if step.part is not None:
                self._run(step.part, step.microbatch)
            for name, targets in step.sends.items():
                array = stored(self._values[name])
                # A weight may be updated before it has arrived.
                lent = name in self._plan.lent
                self._send(name, array.copy() if lent else array, targets, None)
            if step.ends:
                assert step.microbatch is not None
                del self._repeated[step.microbatch]
        results = self._plan.staged.results
        self._values = {name: self._values[name] for name in results if name in self._values}

    def results(self) -> dict[str, Passed]:
        """The results by name, which all ranks have; waits for those of other stages."""
        staged = self._plan.staged
        outputs = [output for output in staged.interface.outputs if not output.updates]
        return {
            name: self._result(name, output)
            for name, output in zip(staged.results, outputs, strict=True)
        }

    def _run(self, part: Own, microbatch: int | None) -> None:
        arguments = [self._taken(item, microbatch) for item in part.takes]
        entry = self._entries[part.name]
        sizes = {python_name(name): self._dims[name] for name in entry.free_dims}
        returned = self._called(part, microbatch, arguments, sizes)
        results = zip(entry.outputs, cast("Sequence[Passed]", returned), strict=True)
        given = {output.name: value for output, value in results if not output.updates}
        for name, value in given.items():
            self._kept(name, microbatch)[name] = value
            if name in part.sends:
                self._send(name, stored(value), part.sends[name], microbatch)

    def _called(
        self,
        part: Own,
        microbatch: int | None,
        arguments: Sequence[Passed],
        sizes: Mapping[str, int],
    ) -> object:
        """What a part returns for a microbatch."""
        del microbatch
        return self._entries[part.name](*arguments, **sizes)  # pyright: ignore[reportArgumentType]

    def _kept(self, name: str, microbatch: int | None) -> dict[str, Passed]:
        """Where a value is kept: with its microbatch, or for the whole call."""
        if microbatch is None or name not in self._plan.repeated:
            return self._values
        return self._repeated.setdefault(microbatch, {})

    def _taken(self, item: Input, microbatch: int | None) -> Passed:
        """A value that a part takes, received if another stage has it."""
        name = item.name
        if name == MICROBATCH:
            return np.array(microbatch, np.int64)
        if name in self._plan.staged.rows:
            assert microbatch is not None
            return row(self._values[self._plan.staged.rows[name]], microbatch)
        kept = self._kept(name, microbatch)
        if name not in kept:
            number = microbatch if name in self._plan.repeated else None
            kept[name] = self._received(name, item, number)
        return kept[name]

    def _result(self, name: str, output: Output) -> Passed:
        if name not in self._values:
            self._values[name] = self._received(name, output, None)
        return self._values[name]

    def _send(
        self, name: str, array: Array, targets: Sequence[int], microbatch: int | None
    ) -> None:
        for target in targets:
            self._send_to(target, Message(name, microbatch), array)
            self.sent += target > self._plan.stage

    def _send_to(self, target: int, message: Message, array: Array) -> None:
        self._channel.send(target, self._tag(message), array)

    def _received(self, name: str, item: Input | Output, microbatch: int | None) -> Passed:
        dtype = DTYPES[item.dtype]
        shape = tuple(size_expressions.evaluate_all(item.shape, self._dims))
        length = int(np.prod(shape)) * dtype.bytes
        array = aligned_array(shape, np.dtype(dtype.numpy), length)
        began = time.perf_counter()
        self._receive_from(self._plan.sources[name], Message(name, microbatch), array)
        self.waited += time.perf_counter() - began
        return passed(array, item.dtype)

    def _receive_from(self, source: int, message: Message, array: Array) -> None:
        self._channel.receive(source, self._tag(message), array)

    def _tag(self, message: Message) -> int:
        """The number that tells a message from others between two ranks in a call."""
        number = 0 if message.microbatch is None else message.microbatch + 1
        return self._plan.tags[message.name] * (self._plan.staged.microbatches + 1) + number


def passed(array: Array, dtype: str) -> Passed:
    """An array as a part takes it."""
    return Tensor.from_bits(array, dtype) if dtype == BF16.name else array


def stored(value: Passed) -> Array:
    """The memory of what a part takes or gives."""
    return value.bits if isinstance(value, Tensor) else value


def copied(value: Passed) -> Passed:
    """A copy, which may be changed."""
    if isinstance(value, Tensor):
        return Tensor.from_bits(value.bits.copy(), value.dtype)
    return value.copy()


def row(value: Passed, number: int) -> Passed:
    """A row of an array, which is a view of it."""
    if isinstance(value, Tensor):
        return Tensor.from_bits(np.asarray(value.bits[number]), value.dtype)
    return np.asarray(value[number])
