"""The interface of an entry point as plain data, for programs."""

from __future__ import annotations

from dlc.driver.run.outputs import JSON, plain
from dlc.runtime.artifact.manifest import Dim, Entry, Input, Output
from dlc.runtime.calling.signature import default_value, signature_text


def entry_data(entry: Entry) -> JSON:
    """Name, head, documentation, inputs, results, named sizes and conditions of an entry point."""
    return {
        "name": entry.name,
        "signature": signature_text(entry),
        "doc": entry.doc,
        "inputs": [_input_data(item, inout=item.name in entry.inouts) for item in entry.inputs],
        "results": [_result_data(item) for item in entry.outputs if not item.hidden],
        "dims": [_dim_data(dim) for dim in entry.dims],
        "conditions": [
            {"condition": need.condition, "place": need.place or None} for need in entry.needs
        ],
    }


def _input_data(item: Input, *, inout: bool) -> JSON:
    value = default_value(item)
    return {
        "name": item.name,
        "dtype": item.dtype,
        "shape": sizes_data(item.shape),
        "optional": value is not None,
        "default": None if value is None else plain(value),
        "inout": inout,
        "doc": item.doc,
    }


def _result_data(item: Output) -> JSON:
    return {
        "name": item.name,
        "dtype": item.dtype,
        "shape": sizes_data(item.shape),
        "doc": item.doc,
    }


def sizes_data(shape: tuple[str | int, ...]) -> list[int | str]:
    """Sizes as numbers where they are; expressions of named sizes as texts."""
    return [int(size) if str(size).isdecimal() else str(size) for size in shape]


def _dim_data(dim: Dim) -> JSON:
    measured = dim.measured
    return {
        "name": dim.name,
        "low": dim.lower,
        "high": dim.upper,
        "at_most": None if measured is None else measured.limit,
    }
