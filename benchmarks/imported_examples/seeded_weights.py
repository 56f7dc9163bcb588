"""Weights that follow from their names: the same numbers in PyTorch and in a model text, without a file."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Table: TypeAlias = Mapping[str, Mapping[str, Any]]
"""For each weight of a text `from`, the paths in PyTorch of which it is stacked or which it is, their
`shape`, and whether the last two axes are `transposed`."""


def seeded(path: str, shape: Sequence[int]) -> Array:
    """The weight of that path in a module of PyTorch, in f32.

    Products have rows of about unit length, scales are about 1, variances positive.
    """
    stream = np.random.default_rng(zlib.crc32(path.encode()))
    if path.endswith("running_var"):
        drawn = stream.uniform(0.5, 1.5, shape)
    elif len(shape) > 1:
        drawn = stream.standard_normal(shape) / math.sqrt(math.prod(shape[1:]))
    else:
        drawn = 0.1 * stream.standard_normal(shape) + ("norm" in path or "bn" in path) * (
            path.endswith("weight")
        )
    return drawn.astype(np.float32)


def weights_of(table: Table) -> dict[str, Array]:
    """The weights of a text by their paths."""
    found: dict[str, Array] = {}
    for name, row in table.items():
        parts = [seeded(path, row["shape"]) for path in row["from"]]
        if row["transposed"]:
            parts = [np.ascontiguousarray(part.T) for part in parts]
        found[name] = np.stack(parts) if row["stacked"] else parts[0]
    return found
