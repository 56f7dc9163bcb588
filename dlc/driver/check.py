"""`dlc check` and `dlc fmt`: is a model right, and is its text laid out as it should be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dlc.driver.build import interface_of
from dlc.driver.entries import entry_functions
from dlc.driver.open import open_model
from dlc.errors import UsageError
from dlc.frontend.values import Datum
from dlc.ir.verify import verify
from dlc.runtime.atomic import write_file
from dlc.runtime.files import map_file
from dlc.runtime.signature import signature_text
from dlc.text.fmt import format_source
from dlc.text.source import Source


@dataclass(frozen=True, slots=True)
class Checked:
    """A model that is right: the heads of its entry points, and what the compiler remarks."""

    path: str
    entries: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def check_model(
    path: str, *, module: str | None = None, parameters: Mapping[str, Datum] | None = None
) -> Checked:
    """Read a model completely. Raises ModelError with everything that is wrong."""
    opened = open_model(Path(path), module=module, settings=parameters or {})
    verify(opened.module)
    heads = [signature_text(interface_of(op)) for op in entry_functions(opened.module)]
    return Checked(path, tuple(heads), opened.remarks)


def format_path(path: str, *, check: bool) -> Iterator[tuple[Path, bool]]:
    """Lay out a file, or every `.dlm` file in a folder: each with whether its text changes.

    With `check` nothing is written. Raises ModelError for a text with syntax errors, UsageError for a
    path that leads to no model text.
    """
    for file in _texts(Path(path)):
        map_file(file)
        text = Source.read(file).text
        formatted = format_source(text, str(file))
        changed = formatted != text
        if changed and not check:
            write_file(file, [formatted.encode()])
        yield file, changed


def _texts(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.rglob("*.dlm"))
    if path.suffix != ".dlm":
        raise UsageError(f"{path} is no model text", code="D0903", help="model texts end in .dlm")
    return [path]
