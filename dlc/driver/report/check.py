"""`dlc check` and `dlc fmt`: is a model right, and is its text laid out as it should be."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dlc.driver.compile.entries import interfaces, settle_interfaces
from dlc.driver.compile.job import CompileJob, check_kept
from dlc.driver.compile.settings import Settings
from dlc.driver.report.interface import entry_data
from dlc.driver.source.open import open_model
from dlc.errors import Diagnostic, ModelError, UsageError, diagnostic_data
from dlc.frontend.elaboration.values import Datum
from dlc.ir.verify import verify
from dlc.lowering.graph_to_kernel.negative_sizes import check_least
from dlc.runtime.artifact.manifest import Entry
from dlc.runtime.calling.signature import signature_text
from dlc.runtime.system.atomic_write import write_file
from dlc.runtime.system.mapped_files import map_file
from dlc.text.model.fmt import format_source
from dlc.text.source import Source


@dataclass(frozen=True, slots=True)
class Checked:
    """A model that is right: its entry points, and what the compiler remarks."""

    path: str
    entries: tuple[Entry, ...]
    warnings: tuple[Diagnostic, ...] = ()
    remarks: tuple[str, ...] = ()
    """The warnings as they are shown."""

    @property
    def heads(self) -> list[str]:
        """The entry points as the language writes them."""
        return [signature_text(entry) for entry in self.entries]

    def data(self) -> dict[str, object]:
        """All of it, for programs."""
        return {
            "path": self.path,
            "entries": [entry_data(entry) for entry in self.entries],
            "warnings": [diagnostic_data(warning) for warning in self.warnings],
        }


def check_model(
    path: str, *, module: str | None = None, parameters: Mapping[str, Datum] | None = None
) -> Checked:
    """Read a model completely.

    Raises ModelError with everything that is wrong, and Unsupported for what its text demands and no
    compilation would keep.
    """
    opened = open_model(Path(path), module=module, settings=parameters or {})
    verify(opened.module)
    check_kept(opened)
    CompileJob.of(opened, Settings())
    with opened.quoting():
        check_least(opened.module)
        settle_interfaces(opened.module)
    entries = interfaces(opened.module)
    return Checked(path, tuple(entries), opened.warnings, opened.remarks)


def format_path(path: str, *, check: bool) -> Iterator[tuple[Path, bool]]:
    """Lay out a file, or every `.dlm` file in a folder: each with whether its text changes.

    With `check` nothing is written. Raises UsageError for a path that leads to no model text and, when
    all others have been laid out, ModelError for texts with syntax errors.
    """
    given = Path(path)
    wrong: list[ModelError] = []
    for file in _texts(given):
        map_file(file)
        name = str(file.relative_to(given if os.path.isdir(given) else given.parent))
        try:
            text = Source.read(file, name).text
            formatted = format_source(text, name)
        except ModelError as error:
            wrong.append(error)
            continue
        changed = formatted != text
        if changed and not check:
            write_file(file, [formatted.encode()])
        yield file, changed
    if wrong:
        sources = {name: text for error in wrong for name, text in error.sources.items()}
        raise ModelError([d for error in wrong for d in error.diagnostics], sources=sources)


def _texts(path: Path) -> list[Path]:
    if os.path.isdir(path):  # of a name that is too long, too, it is none
        return sorted(path.rglob("*.dlm"))
    if path.suffix != ".dlm":
        raise UsageError(f"{path} is no model text", code="D0903", help="model texts end in .dlm")
    return [path]
