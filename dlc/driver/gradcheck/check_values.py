"""At which place a derivative is checked: a value for every argument and weight of a function.

Of a model with a `train` block these are the first examples of its data, if they can be read: random
labels and pictures are often nothing that the model can take, or lie on a kink.
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
from dlc.driver.run.calls import Request
from dlc.driver.source.source_model import SourceModel
from dlc.driver.source.weight_sources import Given, gather
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


def values_of(opened: SourceModel, function: func.Func, request: Request, weights: Given) -> Values:
    """A value for every argument of a function and every weight of its model.

    Raises as `Request.arguments` and `gather` do.
    """
    entry = interface_of(function)
    drawn, free = _requested(opened, entry, request)
    source = f"random numbers of seed {request.seed or 0}"
    if opened.training is not None and request.seed is None and not request.inputs:
        read, source = _examples(opened.training, opened, entry, drawn)
        drawn |= read
    dims = DimBinder(entry).bind([drawn[item.name].shape for item in entry.inputs], free)
    seed = 0 if opened.training is None else opened.training.seed
    gathered = gather(opened.module, weights, opened.folder, opened.arrays, seed)
    views = WeightViews(gathered.table, np.frombuffer(gathered.data, np.uint8))
    drawn |= {row.name: views.tensor(row.name).bits for row in gathered.table}
    dtypes = {item.name: item.dtype for item in (*entry.inputs, *gathered.table)}
    named = {name: _widened(value, dtypes[name]) for name, value in drawn.items()}
    return Values(named, dims, source)


def _requested(
    opened: SourceModel, entry: Entry, request: Request
) -> tuple[dict[str, Array], Mapping[str, int]]:
    """What the user asks for, random numbers for the rest, and the sizes that no input shows."""
    request = replace(request, entry=entry.name, seed=request.seed or 0)
    named = request.arguments(interfaces(opened.module)).named
    arrays, free = ArgumentReader(entry, DimBinder(entry).free).read((), named)
    values = {item.name: array for item, array in zip(entry.inputs, arrays, strict=True)}
    for item in entry.inputs:
        if item.default is None and item.name not in request.inputs:
            values[item.name] = _small(values[item.name])
    return values, free


def _examples(
    training: Training, opened: SourceModel, entry: Entry, drawn: Mapping[str, Array]
) -> tuple[Mapping[str, Array], str]:
    """The first examples of the data, as many as were drawn; nothing, and why, if there are none."""
    wanted = [item for item in entry.inputs if item.name in training.inputs]
    count = drawn[wanted[0].name].shape[0]
    try:
        data = open_data(training.data, wanted, opened.folder, seed=training.seed, dims=entry.dims)
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
