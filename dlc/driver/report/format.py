"""`dlc fmt`: lay out model text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from dlc.errors import ModelError, UsageError
from dlc.runtime.system.atomic_write import write_file
from dlc.runtime.system.mapped_files import map_file
from dlc.text.model.fmt import format_source
from dlc.text.source import Source


def format_path(path: str, *, check: bool) -> Iterator[tuple[Path, bool]]:
    """Format a file, or every `.dlm` file in a folder: yields each with whether its text changes.

    With `check` nothing is written. Raises UsageError for a file that is not model text and, after all
    others are formatted, ModelError for texts with syntax errors.
    """
    root = Path(path)
    errors: list[ModelError] = []
    for file in _texts(root):
        map_file(file)
        name = str(file.relative_to(root if os.path.isdir(root) else root.parent))
        try:
            text = Source.read(file, name).text
            formatted = format_source(text, name)
        except ModelError as error:
            errors.append(error)
            continue
        changed = formatted != text
        if changed and not check:
            write_file(file, [formatted.encode()])
        yield file, changed
    if errors:
        sources = {name: text for error in errors for name, text in error.sources.items()}
        raise ModelError([d for error in errors for d in error.diagnostics], sources=sources)


def _texts(path: Path) -> list[Path]:
    if os.path.isdir(path):  # False, not an OSError, for a name that is too long
        return sorted(path.rglob("*.dlm"))
    if path.suffix != ".dlm":
        raise UsageError(f"{path} is not model text", code="D0903", help="model texts end in .dlm")
    return [path]
