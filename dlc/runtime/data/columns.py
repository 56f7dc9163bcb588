"""Columns of a table as text: numbers of a dtype, or names of classes; what is wrong is found by cell.

NumPy's `loadtxt` reads two million cells a second and says of a bad one not enough; then the cells are
read again one by one, until the bad one is found.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlc.errors import ModelError
from dlc.runtime.data.fields import Array
from dlc.runtime.data.fitting import refusal
from dlc.runtime.dtypes import BF16, DType, bf16_bits, bf16_values

_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")


@dataclass(frozen=True, slots=True)
class Cells:
    """The rows of a table as text; `first` is the number of the first one's line, from 1."""

    name: str
    lines: Sequence[str]
    first: int
    separator: str
    names: Sequence[str]
    """What the columns are called, or nothing."""

    def column(self, number: int) -> str:
        """A column as messages call it."""
        named = number < len(self.names)
        return f"column {number} ({self.names[number]})" if named else f"column {number}"

    def rows(self) -> Generator[tuple[int, list[str]]]:
        """The cells of each row that is not empty, with the number of its line."""
        reader = csv.reader(self.lines, delimiter=self.separator, strict=True)
        line = self.first
        try:
            for row in reader:
                if row:
                    yield line, row
                line = self.first + reader.line_num
        except csv.Error as error:
            raise unreadable(self.name, f"line {line} is no row of cells: {error}") from None


def numbers(cells: Cells, columns: Sequence[int], want: DType) -> Array:
    """The columns as an array [rows, columns], stored in the wanted dtype: floats rounded to nearest.

    Raises ModelError (D0545) for a cell that is no finite number of that dtype, or a row without it.
    """
    try:
        found = _floats(cells, columns) if want.kind == "f" else _whole(cells, columns, want)
        stored = _stored(found, want)
    except (ValueError, OverflowError) as error:
        raise _found_by_cell(cells, columns, want, str(error)) from None
    return stored


def is_number(cell: str) -> bool:
    """Whether a cell holds a finite decimal number."""
    return _NUMBER.fullmatch(cell) is not None


def texts(cells: Cells, column: int) -> list[str]:
    """One column as text, without blanks at the ends. Raises ModelError (D0545) for an empty cell."""
    found: list[str] = []
    for line, row in cells.rows():
        if column >= len(row) or not row[column].strip():
            where = f"line {line}, {cells.column(column)}"
            raise unreadable(cells.name, f"{where} holds nothing, where a class is expected")
        found.append(row[column].strip())
    return found


def unreadable(name: str, message: str) -> ModelError:
    """The error for a table with something in it that cannot be read."""
    return refusal(name, "D0545", message, "correct the file, or leave the row out")


def _loaded(cells: Cells, columns: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
    return np.loadtxt(
        cells.lines,
        dtype,
        comments=None,
        delimiter=cells.separator,
        usecols=list(columns),
        ndmin=2,
        quotechar='"',
    )


def _floats(cells: Cells, columns: Sequence[int]) -> NDArray[np.float64]:
    return np.asarray(_loaded(cells, columns, np.dtype(np.float64)), np.float64)


def _whole(cells: Cells, columns: Sequence[int], want: DType) -> Array:
    """Integers; those that are written with a point, as in 1.0, come through floats."""
    widest = np.dtype(np.uint64 if want.name == "u64" else np.int64)
    try:
        return _loaded(cells, columns, widest)
    except ValueError:
        found = _floats(cells, columns)
    # Beyond 2**53 a float no longer says which whole number was written.
    if not bool(np.all((found == np.floor(found)) & (np.abs(found) <= 1 << 53))):
        raise ValueError("not whole")
    return found.astype(np.int64)


def _stored(found: Array, want: DType) -> Array:
    """The same numbers in the wanted dtype; raises ValueError if one does not fit."""
    if want.kind == "f":
        with np.errstate(over="ignore"):
            stored = bf16_bits(found) if want is BF16 else found.astype(want.numpy)
        values = bf16_values(stored.view(np.uint16)) if want is BF16 else stored
        fits = np.isfinite(values.astype(np.float64))
    else:
        with np.errstate(invalid="ignore"):
            stored = found.astype(want.numpy)
        fits = np.asarray(stored == found)
    if not bool(fits.all()):
        raise ValueError("out of range")
    return stored


def _found_by_cell(cells: Cells, columns: Sequence[int], want: DType, told: str) -> ModelError:
    """The error for the first cell that is wrong."""
    for line, row in cells.rows():
        if len(row) <= max(columns):
            return unreadable(
                cells.name,
                f"line {line} has {len(row)} cells, where column {max(columns)} is expected",
            )
        for column in columns:
            if why := _objection(row[column], want):
                where = f"line {line}, {cells.column(column)}"
                return unreadable(
                    cells.name, f"{where} holds {_shown(row[column])}, which is {why}"
                )
    return unreadable(cells.name, f"it is no table of numbers: {told}")


def _objection(cell: str, want: DType) -> str:
    """What is wrong with a cell, or nothing."""
    if not is_number(cell):
        return "no finite number"
    if want.kind == "f":
        found = np.array([[float(cell)]])
    else:
        value = float(cell)
        if value != np.floor(value):
            return f"no whole number, as {want} needs"
        if abs(value) > 2.0**64:
            return f"no number that {want} holds"
        whole = int(cell) if cell.strip().lstrip("+-").isdecimal() else int(value)
        found = np.array([[whole]], object)
    try:
        _stored(found if want.kind == "f" else _as_integers(found), want)
    except (ValueError, OverflowError):
        return f"no number that {want} holds"
    return ""


def _as_integers(found: NDArray[np.object_]) -> Array:
    value = int(found[0, 0])
    return np.array([[value]], np.uint64 if value > np.iinfo(np.int64).max else np.int64)


def _shown(cell: str) -> str:
    return "nothing" if not cell.strip() else repr(cell[:40])
