"""The predicted time of a call by the stages of a pipeline: their schedule, played with the times of parts.

Each stage makes the steps of the runtime (`steps_of`), one after the other. A part begins when all that it
takes has arrived. A network beside the processors sends the values of a stage one after the other while it
goes on; between processes of one machine the stage that waits for a value copies it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple, TypeAlias

from dlc.dialects import mem
from dlc.driver.scale.timeline import Conditions, Sent, Spent, time_of
from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.artifact import size_expressions
from dlc.runtime.artifact.manifest import MICROBATCH, Entry, Input, Output, Staged
from dlc.runtime.calling.stage_call import Own, Plan, Step, plan_of, steps_of
from dlc.target.network import Sending

CALL = 20_000.0
"""Nanoseconds of a call of a part besides its compiled code: Python takes arguments, allocates results and
sends them. Measured on Zen 5 (the gaps between the kernels of parts in a trace of `dlc profile`)."""

Arrival: TypeAlias = "tuple[str, int | None]"
"""A value that comes from another stage, of a microbatch if that is a number."""


@dataclass(slots=True)
class PlayedStage:
    """What a stage does in a call, in nanoseconds."""

    end: float = 0
    waits: float = 0
    """For values of other stages, copying them included."""
    parts: list[str] = field(default_factory=list[str])
    """What it ran, in order."""
    sent: list[str] = field(default_factory=list[str])
    """What it sent, in order."""


def play(
    plans: Sequence[Plan],
    cost: Callable[[str], float],
    sending: Callable[[str], Sending],
    *,
    beside: bool,
) -> list[PlayedStage]:
    """What each stage does where parts take so long, and so the sending of values, all by name.

    `beside`: the network sends while processors compute.
    """
    players = [_Player(plan, cost, sending, beside=beside) for plan in plans]
    mail: dict[tuple[int, Arrival], float] = {}
    while not all(player.is_done for player in players):
        advances = [player.advance(mail) for player in players]
        assert any(advances), "no stage goes on: each waits for another one"
    return [player.played for player in players]


class _Player:
    """A stage that goes on until it needs what has not been sent."""

    def __init__(
        self,
        plan: Plan,
        cost: Callable[[str], float],
        sending: Callable[[str], Sending],
        *,
        beside: bool,
    ) -> None:
        self._plan, self._cost, self._sending, self._beside = plan, cost, sending, beside
        self._steps = deque(steps_of(plan))
        self._results = True
        """Whether it still waits for the results of others."""
        self._has: set[Arrival] = set()
        self._line = 0.0
        """When what it has sent will have left."""
        self.played = PlayedStage()

    @property
    def is_done(self) -> bool:
        """Whether it has come to the end."""
        return not self._steps and not self._results

    def advance(self, mail: dict[tuple[int, Arrival], float]) -> bool:
        """Go on as far as values have been sent; whether that is any further."""
        before = len(self._steps), self._results
        while self._steps and self._receive(self._needs(self._steps[0]), mail):
            self._run(self._steps.popleft(), mail)
        if not self._steps and self._results:
            self._results = not self._receive(self._awaited_results(), mail)
        return (len(self._steps), self._results) != before

    def _needs(self, step: Step) -> Iterator[Arrival]:
        """What a step needs of other stages."""
        taken = () if step.part is None else step.part.takes
        for item in taken:
            name = item.name
            if (
                name != MICROBATCH
                and self._plan.sources.get(name, self._plan.stage) != self._plan.stage
            ):
                yield name, step.microbatch if name in self._plan.repeated else None

    def _awaited_results(self) -> Iterator[Arrival]:
        for name in self._plan.staged.results:
            if self._plan.sources[name] != self._plan.stage:
                yield name, None

    def _receive(self, needs: Iterator[Arrival], mail: dict[tuple[int, Arrival], float]) -> bool:
        """Receive values; false, without having waited, where one has not been sent."""
        missing = [each for each in needs if each not in self._has]
        if not all((self._plan.stage, each) in mail for each in missing):
            return False
        played = self.played
        for each in missing:
            began = played.end
            played.end = max(began, mail.pop((self._plan.stage, each)))
            if not self._beside:
                played.end += self._sending(each[0]).transfer
            played.waits += played.end - began
            self._has.add(each)
        return True

    def _run(self, step: Step, mail: dict[tuple[int, Arrival], float]) -> None:
        if step.part is not None:
            self.played.end += self._cost(step.part.name)
            self.played.parts.append(step.part.name)
        sends = step.sends if step.part is None else step.part.sends
        for name, targets in sends.items():
            of_each = step.part is not None and name in self._plan.repeated
            for target in targets:
                mail[target, (name, step.microbatch if of_each else None)] = self._sent(name)

    def _sent(self, name: str) -> float:
        """When a value that is sent now arrives; of one that the receiver copies, when it may begin to."""
        self.played.sent.append(name)
        time = self._sending(name)
        if not self._beside:
            return self.played.end + time.latency
        self._line = max(self._line, self.played.end) + time.transfer
        return self._line + time.latency


class StagedProgram(NamedTuple):
    """The programs of the parts of all stages of a function, and what each stage does with them."""

    programs: Mapping[str, mem.Program]
    kernels: Mapping[str, Sent]
    plans: tuple[Plan, ...]
    values: Mapping[str, Input | Output]
    """What goes from stage to stage."""

    @classmethod
    def of(
        cls,
        staged: Staged,
        interfaces: Mapping[str, Entry],
        programs: Mapping[str, mem.Program],
        kernels: Mapping[str, Sent],
    ) -> StagedProgram:
        """Those of a function with parts of these interfaces."""
        plans = tuple([plan_of(staged, interfaces, stage) for stage in range(staged.stages)])
        values: dict[str, Input | Output] = {item.name: item for item in staged.interface.inputs}
        for part in staged.parts:
            entry = interfaces[part.entry]
            values.update({each.name: each for each in (*entry.outputs, *entry.inputs)})
        return cls(programs, kernels, plans, values)

    def time(self, at: Conditions) -> Spent:
        """The predicted time of a call, the mean over the stages."""
        parts = {
            name: time_of(program, self.kernels, at) for name, program in self.programs.items()
        }
        messages = {
            name: at.network.sending("MPI_Send", self._bytes(name, at), 2) for name in self._sent
        }

        def cost(name: str) -> float:
            return CALL + parts[name].total

        played = play(self.plans, cost, messages.__getitem__, beside=at.network.beside)
        at_once = play(self.plans, cost, lambda _: Sending(0, 0), beside=True)
        spent, share = Spent(), 1 / len(played)
        works: list[float] = []
        for stage in played:
            own = Spent()
            own.compute = CALL * len(stage.parts)
            for name in stage.parts:
                own.add(parts[name])
            for name in stage.sent:
                own.messages += 1
                own.bytes += self._bytes(name, at)
                own.latency += messages[name].latency
                own.transfer += messages[name].transfer
            works.append(own.compute)
            spent.add(own, share)
        busy = spent.total  # the mean of what parts take, collectives included
        spent.bubble = max(stage.end for stage in played) - busy
        spent.idle = max(stage.end for stage in at_once) - busy
        spent.exposed += spent.bubble
        spent.stages = tuple(works)
        return spent

    @property
    def _sent(self) -> Iterator[str]:
        """The names of all that a stage sends."""
        for plan in self.plans:
            own: Sequence[Own] = (*plan.before, *plan.each, *plan.after)
            yield from [name for part in own for name in part.sends]
            yield from (*plan.lent, *plan.carried)

    def _bytes(self, name: str, at: Conditions) -> int:
        value = self.values[name]
        sizes = size_expressions.evaluate_all(value.shape, at.sizes)
        return prod(sizes) * DTYPES[value.dtype].bytes
