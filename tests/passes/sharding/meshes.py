"""Running functions on meshes of simulated ranks, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import func
from dlc.dialects.builtin import Module
from dlc.ir.core import Evaluation
from dlc.ir.passes import Context
from dlc.ir.verify import verify
from dlc.passes.sharding.partition import MESH, SPLITS, partition
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated

Array = NDArray[Any]


def partitioned(module: Module, mesh: Mesh, splits: Sequence[str]) -> Context:
    """Partition the one function of a module; `splits` are those of arguments, then of results."""
    (function,) = [op for op in module.body if isinstance(op, func.Func)]
    function.attributes[MESH] = tuple(f"{name} = {size}" for name, size in mesh.axes.items())
    function.attributes[SPLITS] = tuple(splits)
    context = Context()
    partition.run(module, context)
    verify(module)
    return context


def evaluated(
    module: Module, mesh: Mesh, splits: Sequence[str], inputs: Sequence[Array]
) -> list[Array]:
    """The results of a partitioned module on whole inputs, put together again."""
    (function,) = [op for op in module.body if isinstance(op, func.Func)]
    count = len(inputs)

    def work(ranks: SimulatedRanks) -> tuple[Array, ...]:
        own = [
            part_of(value, split, mesh, ranks.rank)
            for value, split in zip(inputs, splits[:count], strict=True)
        ]
        return Evaluation({}, None, None, ranks).run(function.body, own)

    by_rank = run_simulated(mesh, work)
    return [
        joined([results[k] for results in by_rank], split, mesh)
        for k, split in enumerate(splits[count:])
    ]


def parts_of(split: str) -> list[tuple[str, int]]:
    """The axes of the mesh and of the value that a text like `data 0, model 1` says."""
    return [(each.split()[0], int(each.split()[1])) for each in split.split(", ") if each]


def part_of(array: Array, split: str, mesh: Mesh, rank: int) -> Array:
    """What a rank has of an array."""
    coordinates = mesh.coordinates(rank)
    for name, axis in parts_of(split):
        array = np.split(array, mesh.axes[name], axis)[coordinates[name]]
    return array


def joined(parts: Sequence[Array], split: str, mesh: Mesh) -> Array:
    """The array whose parts the ranks have; what several have must be the same to the bit."""
    axes = parts_of(split)
    shape = list(parts[0].shape)
    for name, axis in axes:
        shape[axis] *= mesh.axes[name]
    whole = np.zeros(shape, parts[0].dtype)
    written = np.zeros(shape, bool)
    for rank, part in enumerate(parts):
        coordinates = mesh.coordinates(rank)
        place = [slice(None)] * len(shape)
        for name, axis in axes:
            size = part.shape[axis]
            place[axis] = slice(coordinates[name] * size, (coordinates[name] + 1) * size)
        at = tuple(place)
        if written[at].any():
            np.testing.assert_array_equal(whole[at], part)
        whole[at], written[at] = part, True
    return whole
