"""Opening datasets: the checked examples of a `train` block, or those that the user passes instead."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np

from dlc.errors import UsageError
from dlc.runtime.artifact.manifest import DataKind, DataSource, Dim, Input
from dlc.runtime.data.arrays import array_table
from dlc.runtime.data.dataset import Dataset, Examples
from dlc.runtime.data.fields import Table
from dlc.runtime.data.fitting import Fitting, refusal
from dlc.runtime.data.given import NAME, given_table
from dlc.runtime.data.order import SPLIT, Rows, order
from dlc.runtime.data.pictures import picture_table
from dlc.runtime.data.place import DataLocation
from dlc.runtime.data.source import LATER, check_source
from dlc.runtime.data.stream import Stream
from dlc.runtime.data.tables import csv_table
from dlc.runtime.data.windows import text_table

Given: TypeAlias = "str | os.PathLike[str] | Mapping[str, object] | Iterable[object]"
"""A file or folder, an array for each input, or batches."""

_BY_ENDING: dict[str, DataKind] = {
    ".npz": "npz",
    ".npy": "npy",
    ".safetensors": "safetensors",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
}


def open_data(
    source: DataSource | None,
    wanted: Sequence[Input],
    folder: str | os.PathLike[str] = ".",
    override: Given | None = None,
    *,
    seed: int = 0,
    dims: Sequence[Dim] = (),
) -> Dataset:
    """The examples of a source, or those of `override`, checked against the inputs of the loss.

    `wanted` are the inputs of the loss, with the axis of the examples first; `dims` may bound their
    sizes. Paths of the source are relative to `folder` and stay in it; a path in `override` may be
    anywhere, and its ending determines the kind of source. If the examples are shuffled, the seed selects
    those for the test and those within `limit`; otherwise the test has the last examples and `limit`
    keeps the first. The selection is the same in every run with this seed.

    Raises UsageError (D0501, D0506) for files that cannot be read, ArtifactError (D0503) for damaged
    ones, and ModelError (D0541 to D0547) for examples that do not fit.
    """
    fitting = Fitting(wanted, dims)
    if override is not None and not isinstance(override, str | os.PathLike):
        return _given(override, source, fitting, seed)
    source = source or LATER
    if not source.path and override is None:
        raise UsageError(
            "there is no data to train on, since the train block leaves it to be given",
            code="D0501",
            help="give a file, arrays or batches, or name a file in the train block",
        )
    home = os.fspath(folder)
    check_source(source)
    place = DataLocation(source.path, home)
    if override is not None:
        place = DataLocation(os.fspath(override))
        source = source._replace(kind=_kind(place, source))
    table = _table(place, source, fitting, {})
    test = _test_part(source, home, fitting, table)
    return _split(str(place), source, fitting, table, seed, test)


def _given(override: object, source: DataSource | None, fitting: Fitting, seed: int) -> Dataset:
    if isinstance(override, Mapping):
        table = given_table(cast("Mapping[str, object]", override), fitting)
        options = source or LATER
        check_source(options)
        return _split(NAME, options._replace(test_path=""), fitting, table, seed, None)
    if isinstance(override, Iterable):
        return Stream(cast("Iterable[object]", override), fitting)
    raise UsageError(
        f"examples cannot come from a {type(override).__name__}",
        help="give a path, an array for each input by name, or batches",
    )


def _kind(place: DataLocation, source: DataSource) -> DataKind:
    """The kind of source by the ending of a path; for other endings, that of the source it replaces."""
    if place.is_folder:
        holds_arrays = any(name.endswith(".npy") for name in place.names())
        return "npy" if holds_arrays else "pictures"
    return _BY_ENDING.get(Path(place.path).suffix.lower(), source.kind)


def _table(
    place: DataLocation, source: DataSource, fitting: Fitting, known: Mapping[str, tuple[str, ...]]
) -> Table:
    match source.kind:
        case "npz" | "npy" | "safetensors":
            return array_table(place, source, fitting)
        case "csv":
            return csv_table(place, source, fitting, known)
        case "text":
            return text_table(place, source, fitting)
        case "pictures":
            return picture_table(place, source, fitting, known)


def _test_part(source: DataSource, folder: str, fitting: Fitting, table: Table) -> Dataset | None:
    """The test examples, if the source names another file with them."""
    if not source.test_path:
        return None
    place = DataLocation(source.test_path, folder)
    test = _table(place, source._replace(limit=None), fitting, table.classes)
    rows = np.arange(test.count, dtype=np.int64)
    return Examples(str(place), fitting.wanted, test, rows, shuffled=False)


def _split(
    name: str, source: DataSource, fitting: Fitting, table: Table, seed: int, test: Dataset | None
) -> Dataset:
    train, kept = _parts(name, source, table, seed)
    if len(kept):
        test = Examples(name, fitting.wanted, table, kept, shuffled=False)
    return Examples(name, fitting.wanted, table, train, shuffled=source.shuffle, test=test)


def _parts(name: str, source: DataSource, table: Table, seed: int) -> tuple[Rows, Rows]:
    """The rows for training and those for the test, each in the order of the source."""
    rows = np.arange(table.count, dtype=np.int64)
    if table.cut is not None:
        return rows[: table.cut], rows[table.cut :]
    if source.shuffle and (source.test_part or source.limit):
        rows = order(table.count, seed, SPLIT)
    rows = rows[: source.limit]
    kept = round(len(rows) * Fraction(source.test_part)) if source.test_part else 0
    if kept == len(rows) or (source.test_part and not kept):
        raise refusal(
            name,
            "D0544",
            f"of {len(rows)} examples test={source.test_part} keeps {kept}",
            "both parts need an example: take another part, or more examples",
        )
    return np.sort(rows[: len(rows) - kept]), np.sort(rows[len(rows) - kept :])
