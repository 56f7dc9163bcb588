"""`dlc.plan(model.predict, B=8)`: the memory plan of an entry point, which shows itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from dlc.driver.call_memory.facts import EntryMemory
from dlc.driver.memory.asked import ModelMemory, entry_plans
from dlc.driver.memory.picture import svg_file
from dlc.driver.memory.report import memory_text
from dlc.errors import CallError, UsageError
from dlc.errors.boundary import without_frames
from dlc.runtime.calling.entry import EntryPoint


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Which value lies where in memory, and in which waves of a call.

    `print` shows it as `dlc memory` does; a notebook shows the picture of `dlc memory --svg`.
    """

    memory: ModelMemory

    @property
    def entry(self) -> EntryMemory:
        """The buffers, the peak and what is alive there."""
        return self.memory.entries[0]

    def __str__(self) -> str:
        return memory_text(self.memory)

    def __repr__(self) -> str:
        return f"<memory plan of {self.entry.name}: {self.entry.arena:,} bytes>"

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{svg_file(self.memory)}</div>'


@without_frames
def plan(entry_point: EntryPoint, /, **sizes: int) -> MemoryPlan:
    """The memory plan of an entry point of a model at these named sizes, `dlc.plan(model.predict, B=8)`.

    A size that is not given is the largest, or in training the batch of the text. Raises UsageError: D0902
    for what is not an entry point, D0906 for a size without a largest; CallError: D0801 for one that does
    not exist, D0804 for one that calls do not take.
    """
    given = cast("object", entry_point)
    if not isinstance(given, EntryPoint):
        raise UsageError(
            f"a plan is of an entry point, found {type(given).__name__}",
            code="D0902",
            help="write dlc.plan(model.predict)",
        )
    artifact, name = entry_point.artifact, entry_point.name
    planned = next(each for each in entry_plans(artifact) if each.entry.name == name)
    for size in sizes:
        if size not in planned.usual:
            raise CallError(
                f"{name}: the size {size} does not exist",
                code="D0801",
                help=f"its sizes are {', '.join(planned.usual) or 'all numbers'}",
            )
    memory = planned.at(planned.dims(sizes))
    return MemoryPlan(ModelMemory(artifact.manifest.model, (memory,), artifact.texts()))
