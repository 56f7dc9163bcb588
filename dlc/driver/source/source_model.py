"""A source model: what was read from a file, before it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlc.dialects.builtin import Module
from dlc.driver.source.weight_sources import Array
from dlc.errors import Diagnostic, DlcError, SourceLocation, render
from dlc.errors.warn import warn
from dlc.frontend.training.blocks import BlockName
from dlc.ir.passes import Context
from dlc.runtime.artifact import manifest


@dataclass(slots=True)
class SourceModel:
    """A model that was read: its module at `stage`, and what is known about where it came from."""

    module: Module
    context: Context
    name: str
    texts: Mapping[str, str]
    """Its source texts that an artifact keeps, by file name."""
    folder: Path
    stage: str = "graph"
    layers: tuple[manifest.Layer, ...] = ()
    read_at: str = "graph"
    """The stage at which it was read."""
    stages: tuple[str, ...] = ("graph",)
    """The stages at which it may be taken to be."""
    reopen: Callable[[], SourceModel] | None = None
    """Reads it once more."""
    warnings: tuple[Diagnostic, ...] = ()
    unkept: tuple[Diagnostic, ...] = ()
    """Limits and devices that its text demands and compiled code would not respect."""
    arrays: Mapping[str, Array] | None = None
    """The numbers of its weights, where the file itself has them."""
    is_compiled_once: bool = False
    """Whether nothing asks for these numbers after the first compilation, which drops what it copies."""
    training: manifest.Training | None = None
    """Its training, if its functions are those that train it."""
    staged: tuple[manifest.Staged, ...] = ()
    """Its functions that the stages of a pipeline run, once they are divided."""
    listings: Mapping[str, str] = field(default_factory=dict[str, str])
    """Texts that nobody wrote and messages refer to: the graph of an artifact, by what it is called."""
    settled: frozenset[str] = frozenset()
    """Sizes that keep already to the bounds that were asked for."""
    can_train: bool = False
    """Whether its text says how it trains."""
    blocks: tuple[BlockName, ...] = ()
    """The `train` blocks of its text."""
    frozen: frozenset[str] = frozenset()
    """The weights that its training leaves as they are."""
    entry_places: Mapping[str, SourceLocation] = field(default_factory=dict[str, SourceLocation])
    """Where its `train` block says what, by the names of the entries; "" for the block itself."""
    made_with: tuple[str, ...] | None = None
    """The flags that an artifact was compiled with; None for what was no artifact."""
    trust_ir: bool = False
    """Whether IR below the graph, which may use any memory, is compiled."""

    def change(self, change: Callable[[SourceModel], None]) -> None:
        """Change the model, and what is read in its place for another attempt to compile it."""
        change(self)
        reopen = self.reopen
        if reopen is not None:
            self.reopen = lambda: reopen()._changed(change)

    def _changed(self, change: Callable[[SourceModel], None]) -> SourceModel:
        self.change(change)
        return self

    def open_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes of a call, but for those that the import has settled."""
        return {name: size for name, size in sizes.items() if name not in self.settled}

    @contextmanager
    def quoting(self) -> Generator[None]:
        """Errors that are raised meanwhile show the lines that they are about."""
        try:
            yield
        except DlcError as error:
            error.sources.update({**self.listings, **self.texts})
            raise

    @contextmanager
    def blaming(self, *entries: str) -> Generator[None]:
        """Errors without a place that are raised meanwhile are told at the first of these entries of the
        `train` block that it has, or else at the block."""
        try:
            with self.quoting():
                yield
        except DlcError as error:
            place = next((p for e in (*entries, "") if (p := self.entry_places.get(e))), None)
            placed = [d if d.place else replace(d, place=place) for d in error.diagnostics]
            raise type(error)(placed, sources=error.sources) from None

    @property
    def remarks(self) -> tuple[str, ...]:
        """The warnings and notes about its text, as they are shown."""
        return tuple(render(warning, self.texts) for warning in self.warnings)

    def warn(self) -> tuple[str, ...]:
        """Warn of what is probably a mistake in its text; gives the mere notes about it."""
        for each in self.warnings:
            if each.severity == "warning":
                warn(render(each, self.texts))
        return tuple(render(each, self.texts) for each in self.warnings if each.severity == "note")
