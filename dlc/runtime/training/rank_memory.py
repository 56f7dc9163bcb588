"""The memory that a training needs on a rank: weights and states, perhaps parts of them, and a step."""

from __future__ import annotations

from typing import NamedTuple

from dlc.runtime.artifact.manifest import Training
from dlc.runtime.calling.dim_binding import DimBinder
from dlc.runtime.data import Dataset
from dlc.runtime.training.step_call import StepCall
from dlc.runtime.training.trained_weights import TrainedWeights


class RankMemory(NamedTuple):
    """Bytes: of the arrays that a rank has, of the whole arrays, and of the working memory of a step.

    `kept_whole` names the arrays of more than one element that the ranks do not split.
    """

    arrays: int
    whole: int
    step: int
    kept_whole: tuple[str, ...]

    @property
    def total(self) -> int:
        """Bytes of arrays and a step together."""
        return self.arrays + self.step


def rank_memory(
    weights: TrainedWeights, step: StepCall, facts: Training, data: Dataset
) -> RankMemory:
    """The memory of a training with batches of this data."""
    entry, first = step.of_rank(facts.examples)
    examples = data.example_shapes()
    batch = [item for item in entry.inputs if item.name in facts.inputs]
    shapes = [(*first, *examples[item.name]) for item in batch]
    alone = entry.entry._replace(inputs=tuple(batch), outputs=())
    sizes = DimBinder(alone).bind(shapes, {})
    return RankMemory(
        sum(row.bytes for row in weights.table),
        sum(row.bytes for row in weights.declared.values()),
        entry.working_memory(**sizes),
        tuple(
            [
                name
                for name, row in weights.declared.items()
                if weights.parts.is_common(name) and any(size > 1 for size in row.shape)
            ]
        ),
    )
