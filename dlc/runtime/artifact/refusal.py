"""Errors of the artifact reader: each names the file, the section and the byte offset of the fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlc.errors import ArtifactError


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """The artifact that is being checked: its file name, and the offset of each section in the file."""

    file: str
    starts: Mapping[str, int] = field(default_factory=dict[str, int])

    def error(
        self,
        code: str,
        message: str,
        *,
        section: str = "",
        at: int | None = None,
        inside: int = 0,
        help: str | None = None,
    ) -> ArtifactError:
        """The error to raise; `at` is an offset in the file, `inside` one in the section."""
        if at is None and section in self.starts:
            at = self.starts[section] + inside
        parts = [self.file]
        if section:
            parts.append(f"section {section}" + ("" if at is None else f" at byte {at}"))
        elif at is not None:
            parts.append(f"byte {at}")
        return ArtifactError(": ".join([*parts, message]), code=code, help=help)
