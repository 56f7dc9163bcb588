"""The training part of an artifact: the `train` block, its examples, and the progress."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from dlc.errors import ArtifactError, UsageError
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import STEP, Dim, Entry, Input, Training
from dlc.runtime.data import Dataset, open_data
from dlc.runtime.data.opening import Given
from dlc.runtime.training.checkpoint import Facts, progress_of_text, progress_text

WEIGHTS = "weights"
"""The section of an artifact with the numbers of its weights."""
PROGRESS = "progress"
"""The section of an artifact with the progress of its training."""


def training_of(artifact: Artifact) -> Training:
    """The description of an artifact's training. Raises UsageError (D0814) if it does not train."""
    facts = artifact.manifest.training
    if facts is None:
        raise UsageError(
            f"{artifact.manifest.model} does not train: it was compiled to be called",
            code="D0814",
            help="train the text of the model, which has a `train` block",
        )
    return facts


def open_examples(
    facts: Training,
    entries: Iterable[Entry],
    folder: str | os.PathLike[str],
    given: Given | None = None,
    *,
    seed: int,
    function: str = STEP,
) -> Dataset:
    """The checked examples for `train_step` and `evaluate`: `given`, or else those that the model names.

    Batches that are given have the sizes of `function`, one of the two.
    """
    batch = set(facts.inputs)
    wanted: dict[str, Input] = {}
    dims: dict[str, Dim] = {}
    for entry in sorted(entries, key=lambda entry: entry.name == function):  # its own sizes count
        wanted.update({item.name: item for item in entry.inputs if item.name in batch})
        dims.update({dim.name: dim for dim in entry.dims})
    inputs, sizes = tuple(wanted.values()), tuple(dims.values())
    return open_data(facts.data, inputs, folder, given, seed=seed, dims=sizes)


def with_progress(artifact: Artifact, weights: memoryview, facts: Facts | None) -> Artifact:
    """The artifact with other weights and this progress; without any for a training that has not begun."""
    new = artifact.with_weights(weights)
    sections = {name: data for name, data in new.sections.items() if name != PROGRESS}
    if facts is not None:
        text = progress_text({training_of(artifact).block: facts})
        sections[PROGRESS] = memoryview(text.encode())
    return Artifact.of(new.manifest, sections, new.name)


def without_weights(artifact: Artifact) -> Artifact:
    """The same code without the numbers of weights, which then need no memory."""
    kept = {
        name: memoryview(bytes(data)) for name, data in artifact.sections.items() if name != WEIGHTS
    }
    manifest = artifact.manifest._replace(weights=())
    return replace(artifact, manifest=manifest, sections=kept)


def progress_of(artifact: Artifact) -> Facts:
    """The progress of a trainer that was saved as an artifact; in other artifacts, that of a new training.

    Raises ArtifactError (D0503) or UsageError (D0548) if the section cannot be read.
    """
    text, training = artifact.section(PROGRESS), training_of(artifact)
    if not text:
        return Facts(0, 0, 0, training.seed)
    progress = progress_of_text(str(text, "utf-8", "replace"), artifact.name)
    if training.block not in progress:
        raise ArtifactError(
            f"{artifact.name}: its progress is of another train block",
            code="D0503",
            help="take an earlier copy of the file",
        )
    return progress[training.block]
