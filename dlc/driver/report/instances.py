"""Tables of buffers to place, as research on memory planning publishes them, and their placement.

A table has a row `id,lower,upper,size` for each buffer: it is needed from moment `lower` until just
before moment `upper`. It is the format of the instances that come with MiniMalloc (Moffitt, "MiniMalloc:
A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass

from dlc.driver.compile.native_planner import machine_code
from dlc.errors import DlcError, ModelError, SourceLocation
from dlc.planning import arena
from dlc.planning.arena import Buffer
from dlc.runtime.system.mapped_files import map_file

COLUMNS = ("id", "lower", "upper", "size")
STEPS = 1_000_000_000
"""Steps of searches in machine code: some seconds."""
LARGEST = 1 << 53
"""Sizes and moments are less than this; so sums of them are exact everywhere."""


@dataclass(frozen=True, slots=True)
class PlacedBuffer:
    """A buffer of the table with the offset found for it."""

    id: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class PlacedInstance:
    """A placement of all buffers of a table: its height, and the least that any placement has."""

    height: int
    lower_bound: int
    buffers: tuple[PlacedBuffer, ...]


def place_instance(path: str, effort: int = 1) -> PlacedInstance:
    """Place the buffers of the table in a file; a larger `effort` searches longer.

    Raises UsageError (D0501) for a file that cannot be read and ModelError (D0551) for a table that is
    none, with the line.
    """
    table = read_instance(path)
    buffers = list(table.values())
    placed = arena.place(buffers, effort=effort, steps=STEPS, compiler=machine_code)
    rows = zip(table.items(), placed.offsets, strict=True)
    return PlacedInstance(
        placed.height,
        arena.lower_bound(buffers),
        tuple(PlacedBuffer(name, offset, buffer.size) for (name, buffer), offset in rows),
    )


# The table.


def read_instance(path: str) -> dict[str, Buffer]:
    """The buffers of a table by their ids, in its order. Raises as `place_instance` does."""
    data = bytes(map_file(path))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _refused(path, line, f"byte {error.start} of the file is not UTF-8") from None
    buffers: dict[str, Buffer] = {}
    rows = _rows(path, text)
    line, head = next(rows, (1, list[str]()))
    missing = [name for name in COLUMNS if name not in head]
    if missing:
        raise _refused(path, line, f"the first row names no column {' and no '.join(missing)}")
    for line, row in rows:
        if len(row) != len(head):
            raise _refused(path, line, f"there are {len(row)} cells, the first row has {len(head)}")
        cells = dict(zip(head, row, strict=True))
        if cells["id"] in buffers:
            raise _refused(path, line, f"the id {cells['id']} is already on an earlier line")
        buffers[cells["id"]] = _buffer(path, line, cells)
    if not buffers:
        raise _refused(path, line, "there is no buffer below the first row")
    return buffers


def _rows(path: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """The rows with their lines, counted from 1; empty lines are none."""
    reader = csv.reader(text.splitlines(), strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise _refused(path, reader.line_num, str(error)) from None


def _buffer(path: str, line: int, cells: dict[str, str]) -> Buffer:
    numbers: dict[str, int] = {}
    for name in COLUMNS[1:]:
        text = cells[name]
        if not (text.isascii() and text.isdecimal() and len(text) < 17 and int(text) < LARGEST):
            message = f"the {name} of {cells['id']} is {text!r}, not an integer from 0 to 2**53 - 1"
            raise _refused(path, line, message)
        numbers[name] = int(text)
    if numbers["lower"] >= numbers["upper"]:
        message = f"{cells['id']} ends at {numbers['upper']}, and begins no earlier"
        raise _refused(path, line, message)
    return Buffer(numbers["size"], numbers["lower"], numbers["upper"] - 1)


def _refused(path: str, line: int, message: str) -> DlcError:
    return ModelError(
        message,
        code="D0551",
        place=SourceLocation(path, line, 1),
        help="write a row id,lower,upper,size for each buffer, as dlc explain D0551 shows",
    )
