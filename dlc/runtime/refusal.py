"""How the reader of an artifact says no: one typed error that names file, section and offset."""

from __future__ import annotations

from dlc.errors import ArtifactError


class Where(str):
    """The file that is being checked, for the start of every message."""

    __slots__ = ()

    def refuse(
        self, code: str, message: str, *, section: str = "", at: int | None = None, help: str = ""
    ) -> ArtifactError:
        """The error to raise; `at` counts bytes from the start of the file."""
        parts = [str(self)]
        if section:
            parts.append(f"section {section}" + ("" if at is None else f" at byte {at}"))
        elif at is not None:
            parts.append(f"byte {at}")
        return ArtifactError(": ".join([*parts, message]), code=code, help=help or None)
