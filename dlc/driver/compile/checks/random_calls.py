"""Random weights and inputs with which functions of a module are evaluated, or run, to be compared."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dlc.dialects import weight
from dlc.dialects.builtin import Module
from dlc.driver.compile.build_artifact import EntryPoint
from dlc.driver.source.weight_sources import Array, derive
from dlc.ir.attributes import encode
from dlc.ir.core import Evaluation, Op
from dlc.ir.dims import Bounds
from dlc.ir.ranks import Ranks
from dlc.ir.types import TensorType

USUAL_SIZE = 3


@dataclass(slots=True)
class RandomArrays:
    """Random arrays by name and type, each made once: making them took longer than a network's passes."""

    _made: dict[tuple[str, str, tuple[int, ...]], Array] = field(
        default_factory=dict[tuple[str, str, tuple[int, ...]], Array]
    )

    def call(
        self,
        function: EntryPoint,
        module: Op,
        size: int = USUAL_SIZE,
        ranks: Ranks | None = None,
    ) -> tuple[Evaluation, list[Array]]:
        """Weights and inputs for a function, whose named sizes are `size` as far as bounds allow."""
        weights = self.weights(module, ranks)
        at = Evaluation(usual_sizes(function.bounds, size), weights, None, ranks)
        return at, self.inputs(function, at)

    def inputs(self, function: EntryPoint, at: Evaluation) -> list[Array]:
        """An array for each input of a function."""
        return [
            self._array(f"{function.sym_name}/{index}", type, at)
            for index, type in enumerate(function.function_type.inputs)
        ]

    def weights(self, module: Op, ranks: Ranks | None = None) -> dict[str, Array]:
        """Random source weights, and the derived ones computed from them."""
        assert isinstance(module, Module)
        sources = [op for op in module.body if isinstance(op, weight.Source)]
        at = Evaluation()
        stored: Mapping[str, Array] = {
            op.sym_name: self._array(op.sym_name, op.type, at) for op in sources
        }
        return derive(module, stored, ranks)

    def _array(self, name: str, type: object, at: Evaluation) -> Array:
        """Small numbers that depend on the name alone; integers are 0 or 1, to serve as indices."""
        assert isinstance(type, TensorType)
        key = name, type.dtype.name, at.shape(type.shape)
        if key not in self._made:
            self._made[key] = _random(name, type, at)
            self._made[key].flags.writeable = False  # the next evaluation reads the same
        return self._made[key]


def usual_sizes(bounds: Bounds, size: int) -> dict[str, int]:
    """`size` for each name, as far as its bounds allow."""
    return {
        name: max(low, size if high is None else min(size, high))
        for name, (low, high) in bounds.items()
    }


def _random(name: str, type: TensorType, at: Evaluation) -> Array:
    stream = np.random.Generator(np.random.Philox(key=zlib.crc32(name.encode())))
    shape = at.shape(type.shape)
    if type.dtype.is_float:
        return encode(np.asarray(stream.standard_normal(shape)), type.dtype)
    return np.asarray(stream.integers(0, 2, shape)).astype(type.dtype.numpy)
