"""Parsing columns of a table: numbers of a dtype, or names of classes. Errors name the cell.

NumPy's `loadtxt` reads two million cells a second, but its errors do not name a bad cell; after an error
the cells are therefore parsed one by one, up to the bad one.
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
    """The rows of a table as text; `first` is the line number of the first row, from 1."""

    name: str
    lines: Sequence[str]
    first: int
    separator: str
    names: Sequence[str]
    """The names of the columns; empty without a header."""

    def column(self, number: int) -> str:
        """A column in messages: its number, and its name if it has one."""
        has_name = number < len(self.names)
        return f"column {number} ({self.names[number]})" if has_name else f"column {number}"

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
            raise unreadable(self.name, f"line {line} is not a row of cells: {error}") from None


def check_widths(cells: Cells, width: int) -> None:
    """Refuse a row with more or fewer cells than the first: ModelError (D0545).

    A number with a comma in it would shift the following cells to the wrong columns.
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

    Raises ModelError (D0545) for a cell that is not a finite number of that dtype.
    """
    try:
        values = _loaded(cells, columns, np.dtype(np.float64))
        if want.kind != "f":
            values = _integers(values, cells, columns, want)
        return _stored(values, want)
    except (ValueError, OverflowError) as error:
        raise _bad_cell(cells, columns, want, str(error)) from None


def is_number(cell: str) -> bool:
    """Whether a cell holds a finite decimal number."""
    return _NUMBER.fullmatch(cell) is not None


def texts(cells: Cells, column: int) -> list[str]:
    """A column as text, without surrounding blanks. Raises ModelError (D0545) for an empty cell."""
    labels: list[str] = []
    for line, row in cells.rows():
        if not row[column].strip():
            where = f"line {line}, {cells.column(column)}"
            raise unreadable(cells.name, f"{where} holds nothing, where a class is expected")
        labels.append(row[column].strip())
    return labels


def unreadable(name: str, message: str) -> ModelError:
    """The error for a table that cannot be read."""
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


def _integers(numbers: Array, cells: Cells, columns: Sequence[int], want: DType) -> Array:
    """The exact integers of the cells; raises ValueError if a number is not an integer."""
    values = np.asarray(numbers, np.float64)
    if not bool(np.all(values == np.floor(values))):
        raise ValueError("not whole")
    # From 2**53 on floats cannot represent every integer: the text is parsed again.
    if not bool(np.all(np.abs(values) < 1 << 53)):
        return _loaded(cells, columns, np.dtype(np.uint64 if want.name == "u64" else np.int64))
    return values.astype(np.int64)


def _stored(numbers: Array, want: DType) -> Array:
    """Numbers converted to a dtype; raises ValueError if one is out of its range."""
    if want.kind == "f":
        with np.errstate(over="ignore"):
            stored = bf16_bits(numbers) if want is BF16 else numbers.astype(want.numpy)
        values = bf16_values(stored.view(np.uint16)) if want is BF16 else stored
        fits = np.isfinite(values.astype(np.float64))
    else:
        with np.errstate(invalid="ignore"):
            stored = numbers.astype(want.numpy)
        fits = np.asarray(stored == numbers)
    if not bool(fits.all()):
        raise ValueError("out of range")
    return stored


def _bad_cell(cells: Cells, columns: Sequence[int], want: DType, message: str) -> ModelError:
    """The error for the first bad cell; with the message of NumPy if none is found."""
    for line, row in cells.rows():
        for column in columns:
            if why := _objection(row[column], want):
                where = f"line {line}, {cells.column(column)}"
                return unreadable(
                    cells.name, f"{where} holds {_shown(row[column])}, which is {why}"
                )
    return unreadable(cells.name, f"it is not a table of numbers: {message}")


def _objection(cell: str, want: DType) -> str:
    """The reason why a cell is bad; empty if it is not."""
    if not is_number(cell):
        return "not a finite number"
    value = float(cell)
    if want.kind == "f":
        try:
            _stored(np.array([[value]]), want)
        except ValueError:
            return f"not a number that {want} holds"
        return ""
    if value != np.floor(value):
        return f"not a whole number, as {want} needs"
    low, high = whole_range(want)
    fits = np.isfinite(value) and low <= _exactly(cell, value) <= high
    return "" if fits else f"not a number that {want} holds"


def _exactly(cell: str, value: float) -> int:
    """The integer in a cell; `value` is the same rounded to a float, which is inexact from 2**53 on."""
    try:
        return int(cell)
    except ValueError:  # written with a point, or with thousands of zeros before it
        return int(value)


def _shown(cell: str) -> str:
    return "nothing" if not cell.strip() else repr(cell[:40])
