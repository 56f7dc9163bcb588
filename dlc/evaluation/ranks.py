"""Evaluating a program of the ranks of a mesh: each rank a thread, on its parts of whole arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dlc.ir.core import Array, Block, Evaluation
from dlc.passes.sharding.partition import Splits
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated


def evaluate_ranks(
    body: Block,
    mesh: Mesh,
    splits: Sequence[Splits],
    inputs: Sequence[Array],
    dims: Mapping[str, int] | None = None,
    weights: Mapping[str, tuple[Array, Splits]] | None = None,
) -> list[Array]:
    """The whole results of a partitioned function for whole inputs.

    `splits` are those of the arguments, then of the results; `dims` are the sizes that a rank has, and
    `weights` whole arrays with their splits. Raises AssertionError where two ranks have other numbers for
    the same part of a result.
    """
    count = len(inputs)

    def work(ranks: SimulatedRanks) -> tuple[Array, ...]:
        own = [
            part_of(value, split, mesh, ranks.rank)
            for value, split in zip(inputs, splits[:count], strict=True)
        ]
        parts = {
            name: part_of(whole, split, mesh, ranks.rank)
            for name, (whole, split) in (weights or {}).items()
        }
        with np.errstate(all="ignore"):
            return Evaluation(dims, parts, None, ranks).run(body, own)

    by_rank = run_simulated(mesh, work)
    return [
        joined([results[k] for results in by_rank], split, mesh)
        for k, split in enumerate(splits[count:])
    ]


def part_of(array: Array, splits: Splits, mesh: Mesh, rank: int) -> Array:
    """What a rank has of an array."""
    coordinates = mesh.coordinates(rank)
    for name, axis in splits.items():
        array = np.split(array, mesh.axes[name], axis)[coordinates[name]]
    return array


def joined(parts: Sequence[Array], splits: Splits, mesh: Mesh) -> Array:
    """The array whose parts the ranks have; what several have must be the same to the bit."""
    shape = list(parts[0].shape)
    for name, axis in splits.items():
        shape[axis] *= mesh.axes[name]
    whole = np.zeros(shape, parts[0].dtype)
    written = np.zeros(shape, bool)
    for rank, part in enumerate(parts):
        coordinates = mesh.coordinates(rank)
        place = [slice(None)] * len(shape)
        for name, axis in splits.items():
            size = part.shape[axis]
            place[axis] = slice(coordinates[name] * size, (coordinates[name] + 1) * size)
        at = tuple(place)
        if written[at].any():
            np.testing.assert_array_equal(whole[at], part)
        whole[at], written[at] = part, True
    return whole
