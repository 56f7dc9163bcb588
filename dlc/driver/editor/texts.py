"""The texts that an editor has open: each is read when it is asked about, elaborated in the background."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dlc.driver.editor.meanings import Reading
from dlc.driver.editor.observed import Observed, observe
from dlc.frontend.sources.files import File
from dlc.text.model import ast
from dlc.text.source import Source

__all__ = ["OpenText", "OpenTexts", "path_of_uri"]


@dataclass(eq=False)
class OpenText:
    """One version of an open text; a change makes another."""

    uri: str
    version: int
    source: Source
    path: Path | None
    unsaved: Mapping[Path, str]
    observed: Observed | None = None

    @cached_property
    def reading(self) -> Reading:
        """What its names mean."""
        return Reading(self.source, self.path, self.uri, self.unsaved, self._module_of)

    def observe(self) -> Observed:
        """Elaborate it, with what it imports."""
        if self.observed is None:
            self.observed = observe(self.reading.loader, self.source)
        return self.observed

    def _module_of(self, node: ast.Expr) -> tuple[File, ast.Module] | None:
        return None if self.observed is None else self.observed.module_of(node)


@dataclass(eq=False)
class OpenTexts:
    """All open texts by the address that the editor calls them by."""

    by_uri: dict[str, OpenText] = field(default_factory=dict[str, OpenText])

    def put(self, uri: str, version: int, text: str) -> OpenText:
        """Take a new version of a text; others that import it will be read again."""
        path = path_of_uri(uri)
        name = "text.dlm" if path is None else path.name
        unsaved = {
            other.path.resolve(): other.source.text
            for other in self.by_uri.values()
            if other.path is not None and other.uri != uri
        }
        opened = OpenText(uri, version, Source(name, text), path, unsaved)
        self.by_uri[uri] = opened
        return opened

    def importers(self, opened: OpenText) -> list[OpenText]:
        """The other open texts that import this one, taken anew with its present words."""
        found: list[OpenText] = []
        for other in list(self.by_uri.values()):
            if other is opened or other.path is None or opened.path is None:
                continue
            paths = [other.reading.path_of(name) for name in other.reading.loader.files]
            if opened.path in paths:
                found.append(self.put(other.uri, other.version, other.source.text))
        return found

    def close(self, uri: str) -> None:
        """Forget a text that the editor closed."""
        self.by_uri.pop(uri, None)

    def readings(self) -> list[Reading]:
        """What the names of all open texts mean."""
        return [opened.reading for opened in self.by_uri.values()]


def path_of_uri(uri: str) -> Path | None:
    """The file behind an address; None where there is none, as for a text that was never saved.

    >>> path_of_uri("file:///a%20b/net.dlm"), path_of_uri("untitled:1")
    (PosixPath('/a b/net.dlm'), None)
    """
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
