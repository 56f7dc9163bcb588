"""Reading a text and all that it imports: files beside it, and the library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Final

from dlc.errors import Diagnostic, ModelError
from dlc.errors.suggest import did_you_mean
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.problems import Problems
from dlc.frontend.sources.files import File
from dlc.text.model import ast
from dlc.text.model.parser import Parsed, parse
from dlc.text.source import Source

__all__ = ["LIBRARY", "Loader", "library_names"]

LIBRARY: Final = ("nn", "optimizers")
"""The library files for `import NAME` without quotes."""

MAX_FILES: Final = 256


@dataclass(slots=True)
class Loader:
    """Reads texts, each once. `folder` is that of the root file, None for a text without one.

    `unsaved` has texts that an editor holds, by the resolved path of the file that they will be.
    """

    problems: Problems
    folder: Path | None
    files: dict[str, File] = field(default_factory=dict[str, File])
    repaired: int = 0
    """How many errors are misspelt keywords, which hide nothing that comes after."""
    unsaved: Mapping[Path, str] = field(default_factory=dict[Path, str])
    _open: list[str] = field(default_factory=list[str])

    @property
    def texts(self) -> dict[str, str]:
        """Every text that was read, by the name that diagnostics call it, the root first."""
        return {name: file.source.text for name, file in self.files.items()}

    def load(self, source: Source, *, library: bool = False) -> File:
        """The file of a text, with what it imports; `library` says that it is one of the library's."""
        parsed = _parsed_library(source.name) if library else parse(source)
        self.problems.report(parsed.diagnostics)
        self.repaired += parsed.repaired
        whole = len(parsed.errors) == parsed.repaired
        errors = () if whole else parsed.errors
        faults = [source.offset(error.place) for error in errors if error.place is not None]
        source = parsed.file.source
        file = self.files[source.name] = File(parsed, self.problems, faults)
        self._open.append(source.name)
        for item in parsed.file.items:
            if isinstance(item, ast.Import):
                self._import(file, item, library)
        self._open.pop()
        return file

    def _read(self, importing: str, path: str, library: bool) -> Source:
        """The text that a file imports: beside itself or below."""
        inside = _contained(PurePosixPath(importing.strip("<>")).parent, path)
        if inside is None:
            raise ModelError(
                f"{path} leaves the folder of the file that imports it",
                code="D0205",
                help="imported files lie beside the file or below it",
            )
        if library:
            return library_source(str(inside))
        if self.folder is None:
            raise ModelError(
                "text that was not read from a file cannot import files",
                code="D0203",
                help="save it as a .dlm file",
            )
        whole = self.folder / inside
        if not whole.resolve().is_relative_to(self.folder.resolve()):
            raise ModelError(
                f"{path} is a link that leaves the folder of the file that imports it", code="D0205"
            )
        unsaved = self.unsaved.get(whole.resolve())
        return Source.read(whole, str(inside)) if unsaved is None else Source(str(inside), unsaved)

    def _import(self, file: File, item: ast.Import, library: bool) -> None:
        place = file.source.place(item.source_span)
        try:
            imported = self._imported(file.source.name, item, library)
        except ModelError as error:
            found = [
                Diagnostic(d.code, d.message, d.place or place, d.labels, d.help)
                for d in error.diagnostics
            ]
            self.problems.report(found)
            return
        if item.names is None:
            file.imported[item.called] = (imported, None)
            return
        for entry in item.names:
            file.imported[entry.alias or entry.name] = (imported, entry.name)
            if entry.name not in imported.declared and entry.name not in imported.imported:
                self.problems.report(
                    [
                        Diagnostic(
                            "D0203",
                            f"{item.source} has no {entry.name}",
                            file.source.place(entry.name_span),
                            help=did_you_mean(entry.name, imported.known()),
                        )
                    ]
                )

    def _imported(self, importing: str, item: ast.Import, library: bool) -> File:
        """The file that an import names."""
        if not item.is_file:
            return self._library(item)
        source = self._read(importing, item.source, library)
        loaded = self.files.get(source.name)
        if source.name in self._open:
            circle = " imports ".join([*self._open[self._open.index(source.name) :], source.name])
            raise ModelError(
                f"the imports go round in a circle: {circle}",
                code="D0204",
                help="move what both need into a third file",
            )
        if loaded is not None:
            return loaded
        if len(self.files) >= MAX_FILES:
            raise ModelError(f"more than {MAX_FILES} files are imported", code="D0203")
        return self.load(source, library=library)

    def library(self, name: str, ev: Evaluator) -> File:
        """A text of the library that nothing imports."""
        loaded = self.files.get(f"<{name}.dlm>")
        file = loaded or self.load(library_source(f"{name}.dlm"), library=True)
        for other in self.files.values():
            other.ev = ev
        return file

    def _library(self, item: ast.Import) -> File:
        name = f"{item.source}.dlm"
        if item.source not in LIBRARY:
            help = did_you_mean(item.source, LIBRARY) or 'a file is imported in quotes: "other.dlm"'
            raise ModelError(f"there is no library {item.source}", code="D0203", help=help)
        loaded = self.files.get(f"<{name}>")
        return loaded or self.load(library_source(name), library=True)


@cache
def library_names() -> frozenset[str]:
    """The names that `import nn` can bring in."""
    file = File(parse(library_source("nn.dlm")), Problems())
    imported = [item for item in file.tree.items if isinstance(item, ast.Import)]
    names = [entry.alias or entry.name for item in imported for entry in item.names or ()]
    return frozenset([*names, *file.declared])


@cache
def _parsed_library(name: str) -> Parsed:
    """The tree of a text of the library."""
    return parse(library_source(name.strip("<>")))


@cache
def library_source(name: str) -> Source:
    """A text of the library, called `<nn.dlm>`; none changes while dlc runs."""
    text = (
        files("dlc.frontend")
        .joinpath("library", *PurePosixPath(name).parts)
        .read_text(encoding="utf-8")
    )
    return Source(f"<{name}>", text)


def _contained(own: PurePosixPath, path: str) -> PurePosixPath | None:
    """The path from the root's folder; None if it leaves the folder of the importing file."""
    if not path or path.startswith(("/", "~")) or "\\" in path or ":" in path or "\0" in path:
        return None
    parts: list[str] = []
    for part in PurePosixPath(path).parts:
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part != ".":
            parts.append(part)
    return own.joinpath(*parts) if parts else None
