"""A compiled model as data: its manifest and its sections, in memory or in a mapped `.dlc` file."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from dlc.runtime.artifact import container, manifest_checks
from dlc.runtime.artifact.container import Data
from dlc.runtime.artifact.manifest import Manifest, Weight
from dlc.runtime.artifact.refusal import ErrorContext
from dlc.runtime.system import hashing
from dlc.runtime.system.atomic_write import write_file
from dlc.runtime.system.buffers import aligned_copy
from dlc.runtime.system.mapped_files import map_file

SUFFIX = ".dlc"
IN_MEMORY = "<memory>"


class Timings(NamedTuple):
    """The duration of reading in milliseconds; hashing is separate, because it grows with the weights."""

    read_ms: float = 0.0
    hash_ms: float = 0.0


_NOT_READ = Timings()


@dataclass(frozen=True, slots=True, eq=False)
class Artifact:
    """A compiled model: a `manifest`, and the bytes of `sections` by name (`docs/artifact.md`).

    It is made from a manifest and sections (`Artifact.of`), a file (`read`) or the bytes of one
    (`from_bytes`), and is immutable; `dlc.runtime.model.Model` runs it.
    """

    manifest: Manifest
    sections: Mapping[str, memoryview]
    name: str = IN_MEMORY
    starts: Mapping[str, int] = field(default_factory=dict[str, int])
    """The offset of each section in the file, for messages."""
    timings: Timings = _NOT_READ

    @classmethod
    def of(cls, manifest: Manifest, sections: Mapping[str, Data], name: str = IN_MEMORY) -> Self:
        """An artifact from its parts. Its tables are checked as if it were read from a file."""
        views = {key: memoryview(data).cast("B").toreadonly() for key, data in sections.items()}
        artifact = cls(manifest._replace(sections=()), views, name)
        manifest_checks.check_tables(artifact.manifest, artifact.sections, artifact.error_context)
        return artifact

    @classmethod
    def read(
        cls, path: str | os.PathLike[str], *, sha256: str | None = None, copy: bool = False
    ) -> Self:
        """Map a `.dlc` file, or `copy` it, and check its form, its hashes and its tables.

        `sha256` is the digest that the file must have. Raises ArtifactError with section and offset, or
        UsageError (D0501) if the file cannot be read.
        """
        return cls._read(map_file(path, copy=copy), os.fspath(path), sha256)

    @classmethod
    def from_bytes(cls, data: Data, name: str = IN_MEMORY, *, sha256: str | None = None) -> Self:
        """The same from the bytes of a file; they are copied."""
        block = aligned_copy(data)
        block.flags.writeable = False
        return cls._read(block.data, name, sha256)

    @classmethod
    def _read(cls, file: memoryview, name: str, sha256: str | None) -> Self:
        began = time.perf_counter()
        context = ErrorContext(name)
        pin_ms = _check_pin(file, sha256, context)
        contents = container.read(file, context)
        artifact = cls(contents.manifest, contents.sections, name, contents.starts)
        manifest_checks.check_tables(contents.manifest, contents.sections, artifact.error_context)
        weights_ms = _check_weights(artifact)
        total_ms = (time.perf_counter() - began) * 1e3
        hash_ms = contents.hash_ms + pin_ms + weights_ms
        return replace(artifact, timings=Timings(total_ms - hash_ms, hash_ms))

    @property
    def error_context(self) -> ErrorContext:
        """The start of every message about this artifact."""
        return ErrorContext(self.name, self.starts)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the `.dlc` file atomically; equal contents give equal bytes.

        Raises UsageError (D0502) if the file cannot be written.
        """
        write_file(path, container.pieces(self._sealed(), self.sections))

    def to_bytes(self) -> bytes:
        """The bytes of the `.dlc` file."""
        return b"".join(container.pieces(self._sealed(), self.sections))

    def _sealed(self) -> Manifest:
        """The manifest with all hashes; those of weights are computed here."""
        data = self.section("weights")
        weights = tuple(
            weight if weight.sha256 else weight._replace(sha256=_digest(data, weight))
            for weight in self.manifest.weights
        )
        return container.sealed(self.manifest._replace(weights=weights), self.sections)

    def with_weights(self, data: Data) -> Artifact:
        """The same artifact with another section `weights` of the same layout."""
        cached = {t.prepare.cached for t in self.manifest.targets if t.prepare is not None}
        targets = tuple(
            target._replace(prepare=target.prepare._replace(cached=""))
            if target.prepare
            else target
            for target in self.manifest.targets
        )
        weights = tuple(weight._replace(sha256="") for weight in self.manifest.weights)
        manifest = self.manifest._replace(weights=weights, targets=targets)
        kept = {name: data for name, data in self.sections.items() if name not in cached}
        return Artifact.of(manifest, {**kept, "weights": data}, self.name)

    def section(self, name: str) -> memoryview:
        """The bytes of a section; empty if there is none of that name."""
        return self.sections.get(name, memoryview(b""))

    def texts(self) -> dict[str, str]:
        """The model's text by file name, the root file first."""
        found = {
            name.removeprefix("text/"): str(data, "utf-8", "replace")
            for name, data in self.sections.items()
            if name.startswith("text/")
        }
        return dict(sorted(found.items(), key=lambda item: item[0] != self.manifest.model))


def _digest(data: memoryview, weight: Weight) -> str:
    return hashlib.sha256(data[weight.offset : weight.offset + weight.bytes]).hexdigest()


def _check_weights(artifact: Artifact) -> float:
    """Check the SHA-256 of each weight that has one, and return the duration in milliseconds."""
    began = time.perf_counter()
    data = artifact.section("weights")
    rows = [row for row in artifact.manifest.weights if row.sha256]
    found = hashing.whole_digests([data[row.offset : row.offset + row.bytes] for row in rows])
    for row, digest in zip(rows, found, strict=True):
        if row.sha256 != digest:
            message = f"the SHA-256 of {row.name} is not the one in the manifest"
            way_out = "the file was made wrongly: compile the model again"
            raise artifact.error_context.error(
                "D0606", message, section="weights", inside=row.offset, help=way_out
            )
    return (time.perf_counter() - began) * 1e3


def _check_pin(file: memoryview, sha256: str | None, context: ErrorContext) -> float:
    """Compare the SHA-256 of the file with the given one, and return the duration in milliseconds."""
    if sha256 is None:
        return 0.0
    began = time.perf_counter()
    found = container.file_digest(file)
    if found != sha256.lower():
        way_out = (
            "it is not the file you pinned; get the right one, or pin this one if you trust it"
        )
        raise context.error("D0612", f"its SHA-256 is {found}, pinned is {sha256}", help=way_out)
    return (time.perf_counter() - began) * 1e3
