"""A case of the benchmark on a GPU: the same arrays, precision and idea of equality for every contender.

Large inputs are drawn once and repeated along their first axis, so that files stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.generic]
Kind = Literal["kernels", "products", "convolutions", "attention", "inference", "training"]
Precision = Literal["f32", "tf32", "f16", "bf16"]

KINDS: tuple[Kind, ...] = (
    "kernels",
    "products",
    "convolutions",
    "attention",
    "inference",
    "training",
)
PRECISIONS: tuple[Precision, ...] = ("f32", "tf32", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class GpuCase:
    """One thing to measure in one precision, on the text of a model of ours.

    `function` is what peers call it; several cases of different shapes have the same. `amount` is the bytes
    that a kernel moves at least, or the operations of the others; `limit` is how far results may be from
    ours, by their norm; `repeats` says how often an array is repeated along its first axis, of those that
    are. The gradients that are compared are those of weights whose names begin with `gradients`.
    """

    kind: Kind
    name: str
    precision: Precision
    text: str
    entry: str
    arrays: Callable[[], Mapping[str, Array]]
    limit: float
    amount: float = 0
    repeats: Mapping[str, int] = field(default_factory=dict[str, int])
    settings: Mapping[str, int] = field(default_factory=dict[str, int])
    optimizer: str = ""
    gradients: str = ""
    function: str = ""

    @property
    def title(self) -> str:
        return f"{self.name} {self.precision}"

    def spec(self) -> dict[str, object]:
        """What a contender is told, besides the arrays."""
        return {
            "kind": self.kind,
            "name": self.function or self.name,
            "precision": self.precision,
            "entry": self.entry,
            "repeats": dict(self.repeats),
            "settings": dict(self.settings),
            "optimizer": self.optimizer,
        }
