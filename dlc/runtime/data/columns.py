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

from dlc.errors import ModelError
from dlc.runtime.arrays.dtypes import BF16, DType, bf16_bits, bf16_values
from dlc.runtime.data.fields import Array
from dlc.runtime.data.fitting import refusal, whole_range

_NUMBER = re.compile(r"[ \t]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*")


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


def check_widths(cells: Cells, width: int) -> None:
    """Refuse a row with more or fewer cells than the first: ModelError (D0545).

    It could be a number with a comma in it, which would move all others to the wrong column.
    """
    lines, separators = [line for line in cells.lines if line], width - 1
    plain = not any('"' in line for line in lines)
    if plain and all(line.count(cells.separator) == separators for line in lines):
        return
    for line, row in cells.rows():
        if len(row) != width:
            raise unreadable(
                cells.name, f"line {line} has {len(row)} cells, where the first row has {width}"
            )


def numbers(cells: Cells, columns: Sequence[int], want: DType) -> Array:
    """The columns as an array [rows, columns], stored in the wanted dtype: floats rounded to nearest.

    Raises ModelError (D0545) for a cell that is no finite number of that dtype.
    """
    try:
        found = _loaded(cells, columns, np.dtype(np.float64))
        if want.kind != "f":
            found = _whole(found, cells, columns, want)
        return _stored(found, want)
    except (ValueError, OverflowError) as error:
        raise _found_by_cell(cells, columns, want, str(error)) from None


def is_number(cell: str) -> bool:
    """Whether a cell holds a finite decimal number."""
    return _NUMBER.fullmatch(cell) is not None


def texts(cells: Cells, column: int) -> list[str]:
    """One column as text, without blanks at the ends. Raises ModelError (D0545) for an empty cell."""
    found: list[str] = []
    for line, row in cells.rows():
        if not row[column].strip():
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


def _whole(found: Array, cells: Cells, columns: Sequence[int], want: DType) -> Array:
    """The same as integers, exactly; raises ValueError if they are none."""
    values = np.asarray(found, np.float64)
    if not bool(np.all(values == np.floor(values))):
        raise ValueError("not whole")
    # From 2**53 on a float does not say which whole number was written.
    if not bool(np.all(np.abs(values) < 1 << 53)):
        return _loaded(cells, columns, np.dtype(np.uint64 if want.name == "u64" else np.int64))
    return values.astype(np.int64)


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
    value = float(cell)
    if want.kind == "f":
        try:
            _stored(np.array([[value]]), want)
        except ValueError:
            return f"no number that {want} holds"
        return ""
    if value != np.floor(value):
        return f"no whole number, as {want} needs"
    low, high = whole_range(want)
    fits = np.isfinite(value) and low <= _exactly(cell, value) <= high
    return "" if fits else f"no number that {want} holds"


def _exactly(cell: str, value: float) -> int:
    """The whole number that is written, which `value` only comes near to if it is large."""
    try:
        return int(cell)
    except ValueError:  # written with a point, or with thousands of zeros before it
        return int(value)


def _shown(cell: str) -> str:
    return "nothing" if not cell.strip() else repr(cell[:40])
