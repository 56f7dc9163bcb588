"""The point at which a derivative is checked: a value for every argument and weight of a function.

For a model with a `train` block, these are the first examples of its data, if they can be read: random
labels and pictures are often invalid for the model, or lie on a kink.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import func
from dlc.driver.compile.build_artifact import interface_of
from dlc.driver.compile.entries import interfaces
from dlc.driver.run.calls import CallRequest
from dlc.driver.source.source_model import SourceModel
from dlc.driver.source.weight_sources import WeightsArgument, gather
from dlc.errors import DlcError
from dlc.ir.attributes import decode
from dlc.ir.core import Array
from dlc.ir.types import DType
from dlc.runtime.artifact.manifest import Entry, Training
from dlc.runtime.calling.call_arguments import ArgumentReader
from dlc.runtime.calling.dim_binding import DimBinder
from dlc.runtime.data import open_data
from dlc.runtime.weights.model_weights import WeightViews


@dataclass(frozen=True, slots=True)
class Values:
    """The values by name, floats as f64, the sizes, and in words where they are from."""

    named: Mapping[str, Array]
    dims: Mapping[str, int]
    source: str


def values_of(
    model: SourceModel, function: func.Func, call_request: CallRequest, weights: WeightsArgument
) -> Values:
    """A value for every argument of a function and every weight of its model.

    Raises as `Request.arguments` and `gather` do.
    """
    entry = interface_of(function)
    drawn, free = _requested(model, entry, call_request)
    source = f"random numbers of seed {call_request.seed or 0}"
    if model.training is not None and call_request.seed is None and not call_request.inputs:
        read, source = _examples(model.training, model, entry, drawn)
        drawn |= read
    dims = DimBinder(entry).bind([drawn[item.name].shape for item in entry.inputs], free)
    seed = 0 if model.training is None else model.training.seed
    gathered = gather(model.module, weights, model.folder, model.arrays, seed)
    views = WeightViews(gathered.table, np.frombuffer(gathered.data, np.uint8))
    drawn |= {row.name: views.tensor(row.name).bits for row in gathered.table}
    dtypes = {item.name: item.dtype for item in (*entry.inputs, *gathered.table)}
    named = {name: _widened(value, dtypes[name]) for name, value in drawn.items()}
    return Values(named, dims, source)


def _requested(
    model: SourceModel, entry: Entry, call_request: CallRequest
) -> tuple[dict[str, Array], Mapping[str, int]]:
    """The inputs that the user named, random numbers for the rest, and the sizes that no input shows."""
    call_request = replace(call_request, entry=entry.name, seed=call_request.seed or 0)
    named = call_request.arguments(interfaces(model.module)).named
    arrays, free = ArgumentReader(entry, DimBinder(entry).free).read((), named)
    values = {item.name: array for item, array in zip(entry.inputs, arrays, strict=True)}
    for item in entry.inputs:
        if item.default is None and item.name not in call_request.inputs:
            values[item.name] = _small(values[item.name])
    return values, free


def _examples(
    training: Training, model: SourceModel, entry: Entry, drawn: Mapping[str, Array]
) -> tuple[Mapping[str, Array], str]:
    """The first examples of the data, as many as were drawn; nothing, and why, if there are none."""
    inputs = [item for item in entry.inputs if item.name in training.inputs]
    count = drawn[inputs[0].name].shape[0]
    try:
        data = open_data(training.data, inputs, model.folder, seed=training.seed, dims=entry.dims)
    except DlcError as error:
        return {}, f"random numbers of seed 0, since {error.diagnostics[0].message}"
    batch = next(data.batches(0, count, training.seed))
    return batch, f"the first {count} examples of {data.name}"


def _small(value: Array) -> Array:
    """Random integers as 0 and 1, to serve as labels and indices."""
    if value.dtype.kind not in "iu":
        return value
    return np.asarray(cast("NDArray[np.int64]", value) & 1, value.dtype)


def _widened(value: Array, dtype: str) -> Array:
    known = DType.named[dtype]
    return decode(value, known).astype(np.float64) if known.is_float else value
