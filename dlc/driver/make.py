"""From a model in a file to an artifact or a model that can be called, as the user's choices say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dlc.driver.compile import Opened, Report, Settings, compile_opened
from dlc.driver.gradient import add_gradient
from dlc.driver.open import open_model
from dlc.driver.weights import Given
from dlc.errors import UsageError
from dlc.frontend.values import Datum
from dlc.runtime.artifact import Artifact
from dlc.runtime.model import Model


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which model, and what the user chose about it.

    With `text` the model is that text, called `path`. `gradient` is `(entry, y, x)`: the entry point
    also gives the derivative of its result `y` by its input `x`.
    """

    path: str
    text: str | None = None
    module: str | None = None
    parameters: Mapping[str, Datum] = field(default_factory=dict[str, Datum])
    weights: Given = None
    settings: Settings = field(default_factory=Settings)
    gradient: tuple[str | None, str, str] | None = None

    def open(self) -> Opened:
        """The model, read."""
        opened = open_model(
            Path(self.path), text=self.text, module=self.module, settings=self.parameters
        )
        if self.gradient is not None:
            add_gradient(opened, *self.gradient)
            opened.reopen = self.open
        return opened


@dataclass(frozen=True, slots=True)
class Made:
    """An artifact, what is to be said about it, and how long its making took."""

    artifact: Artifact
    report: Report
    passes: Mapping[str, float]
    """Seconds spent in each pass."""


def make_artifact(wanted: Wanted, *, stage: str | None = None) -> Made:
    """Compile a model, which must be at `stage` where one is named.

    Raises UsageError (D0905) for a model at another stage, or at one that says too little to be made an
    artifact: only the graph says what the entry points take and give.
    """
    opened = wanted.open()
    if stage not in (None, opened.stage) or opened.stage != "graph":
        raise UsageError(
            f"{opened.name} is at {opened.stage} level, not at {stage or 'graph'}",
            code="D0905",
            help="artifacts are made from the graph, or from a model's text",
        )
    report = Report()
    artifact = compile_opened(opened, wanted.settings, wanted.weights, report=report)
    report.notes = (*opened.remarks, *report.notes)
    return Made(artifact, report, opened.context.seconds)


def make_model(wanted: Wanted, threads: int | None = None) -> tuple[Model, Made]:
    """Compile a model to be called in this process."""
    made = make_artifact(wanted)
    return Model(made.artifact, threads=threads), made
