"""Examples in a table of comma-separated values: a row for each, UTF-8, RFC 4180.

A field is the name of a column, its number (counted from 0), or `columns(0, 30)`, which gives the columns
0 to 29 as one axis. Unless the source states it, the first row is taken for a header if a field has the
name of one of its cells, or if none of its cells is a number. If an input is an integer and its column
has no numbers, the column holds classes, which are numbered in alphabetical order.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence

import numpy as np

from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.artifact.manifest import DataSource, Input
from dlc.runtime.data.columns import Cells, check_widths, is_number, numbers, texts, unreadable
from dlc.runtime.data.fields import Array, ArrayField, Field, Table
from dlc.runtime.data.fitting import Fitting, label_of, missing, refusal
from dlc.runtime.data.place import DataLocation
from dlc.runtime.system.counts import whole_number

_COLUMNS = re.compile(r"columns\(\s*([0-9]{1,9})\s*(?:,\s*([0-9]{1,9})\s*)?\)")

Classes = Mapping[str, tuple[str, ...]]


def csv_table(place: DataLocation, source: DataSource, fitting: Fitting, known: Classes) -> Table:
    """The columns of a table; for the test, `known` has the classes of the training examples."""
    name = str(place)
    called = {item.name: source.fields.get(item.name, item.name) for item in fitting.wanted}
    cells, width = _cells(place, source, list(called.values()))
    fields: dict[str, Field] = {}
    classes: dict[str, tuple[str, ...]] = {}
    labels: dict[str, str] = {}
    for item in fitting.wanted:
        field = called[item.name]
        labels[item.name] = label_of(item, field)
        columns, single = _chosen(cells, width, field, item)
        want = DTYPES[item.dtype]
        if single and want.kind in "iu" and _is_text(cells, columns[0]):
            stored, classes[item.name] = _classes(cells, columns[0], item, known)
        else:
            stored = numbers(cells, columns, want)
        fields[item.name] = ArrayField(stored[:, 0] if single else stored, want, want)
    return Table(fields, fitting.check(name, fields, labels), classes)


def _cells(place: DataLocation, source: DataSource, called: Sequence[str]) -> tuple[Cells, int]:
    """The rows below the header, and the number of cells of the first row."""
    name = str(place)
    try:
        text = bytes(place.bytes()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise unreadable(name, f"byte {error.start} is not UTF-8") from None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    start = next((number for number, line in enumerate(lines) if line.strip()), len(lines))
    separator = source.separator or ("\t" if place.path.lower().endswith(".tsv") else ",")
    first = next(csv.reader(lines[start : start + 1], delimiter=separator), list[str]())
    header = source.header
    if header is None:
        named = {cell.strip() for cell in first if not is_number(cell)}
        header = not any(map(is_number, first)) or not named.isdisjoint(called)
    names = [cell.strip() for cell in first] if header else []
    rows = lines[start + header :]
    if not any(line.strip() for line in rows):
        raise refusal(name, "D0544", "it holds no examples", "give at least one row of numbers")
    cells = Cells(name, rows, start + header + 1, separator, names)
    check_widths(cells, len(first))
    return cells, len(first)


def _chosen(cells: Cells, width: int, field: str, item: Input) -> tuple[Sequence[int], bool]:
    """The numbers of the columns of a field, and whether it is a single column without an axis."""
    if cells.names.count(field) > 1:
        numbers = [k for k, name in enumerate(cells.names) if name == field]
        raise refusal(
            cells.name,
            "D0541",
            f"{len(numbers)} columns are called {field}",
            f"name it by its number: {' or '.join(map(str, numbers))}",
        )
    if field in cells.names:
        return [cells.names.index(field)], True
    found = _COLUMNS.fullmatch(field)
    if found is None:
        number = whole_number(field)
        if number is not None and number < width:
            return [number], True
        way = f"0 to {width - 1}" if not cells.names else ""
        raise missing(cells.name, item, field, [*cells.names, *([way] if way else [])])
    first, end = (0, int(found[1])) if found[2] is None else (int(found[1]), int(found[2]))
    if not first < end <= width:
        hint = (
            "" if width > 1 else '; if another character separates the cells, write separator=";"'
        )
        raise refusal(
            cells.name,
            "D0541",
            f"{item.name} is {field}, but the first row has {width} cells",
            f"write columns(FIRST, END) with 0 <= FIRST < END <= {width}{hint}",
        )
    return range(first, end), False


def _is_text(cells: Cells, column: int) -> bool:
    """Whether no cell of a column is a number."""
    return not any(is_number(row[column]) for _, row in cells.rows())


def _classes(
    cells: Cells, column: int, item: Input, known: Classes
) -> tuple[Array, tuple[str, ...]]:
    """A column of text as class numbers, [rows, 1], and the names of the classes."""
    labels = texts(cells, column)
    names = known.get(item.name, tuple(sorted(set(labels))))
    if strange := sorted(set(labels) - set(names)):
        raise refusal(
            cells.name,
            "D0541",
            f"{cells.column(column)} holds {strange[0][:40]!r}, which no example to train on has",
            f"there are {', '.join(names[:8])}",
        )
    want = DTYPES[item.dtype]
    if len(names) > 1 << 8 * want.bytes - (want.kind == "i"):
        raise refusal(
            cells.name,
            "D0542",
            f"{cells.column(column)} has {len(names)} classes, more than {item.dtype} can number",
            f"declare {item.name} as i32",
        )
    number = {name: number for number, name in enumerate(names)}
    return np.array([[number[label]] for label in labels], want.numpy), names
