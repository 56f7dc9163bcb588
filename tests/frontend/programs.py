"""Runs model texts in the evaluator and as machine code, and compares the two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

import numpy as np
import pytest
from _pytest.mark import ParameterSet
from numpy.typing import NDArray

import dlc
from dlc.dialects import func
from dlc.driver.compile.build_artifact import interface_of
from dlc.driver.source.open import open_model
from dlc.driver.source.source_model import SourceModel
from dlc.driver.source.weight_sources import WeightsArgument, gather
from dlc.ir.core import Array, Evaluation
from dlc.ir.passes import Manager, parse_passes
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.calling.call_arguments import ArgumentReader
from dlc.runtime.calling.dim_binding import DimBinder

Numbers: TypeAlias = "NDArray[np.float64 | np.float32 | np.int64 | np.int32 | np.uint8 | np.bool_]"
"""A result, of whatever dtype."""
LEVELS = (0, 2)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Program:
    """A model text, in a file or as it is, and the weights to run it with."""

    text: str | None = None
    path: Path | None = None
    weights: WeightsArgument = None
    settings: Mapping[str, int | float | str] | None = None
    levels: Sequence[int] = LEVELS
    _models: dict[int, dlc.Model] = field(default_factory=dict[int, dlc.Model], init=False)
    """By level, once they are compiled."""

    def opened(self) -> SourceModel:
        """The model as graph IR."""
        where = self.path or Path("model.dlm")
        return open_model(where, text=self.text, settings=self.settings)

    def model(self, level: int) -> dlc.Model:
        """The compiled model."""
        if level not in self._models:
            self._models[level] = self._compiled(level)
        return self._models[level]

    def _compiled(self, level: int) -> dlc.Model:
        given = self.weights
        if self.text is not None:
            return dlc.compile(text=self.text, weights=given, settings=self.settings, level=level)
        return dlc.compile(self.path, weights=given, settings=self.settings, level=level)

    def evaluated(self, entry: str, *inputs: object, **named: object) -> list[Array]:
        """The results of an entry point in the evaluator, with bf16 as bits."""
        opened = self.opened()
        Manager(opened.context).run(opened.module, parse_passes("autodiff"))
        function = opened.module.symbol(entry)
        assert isinstance(function, func.Func)
        about = interface_of(function)
        binder = DimBinder(about)
        arrays, given = ArgumentReader(about, binder.free).read(inputs, named)
        dims = binder.bind([array.shape for array in arrays], given)
        weights = gather(opened.module, self.weights, opened.folder, opened.arrays)
        stored: dict[str, Array] = {}
        for row in weights.table:
            data = np.frombuffer(weights.data, np.uint8)[row.offset : row.offset + row.bytes]
            stored[row.name] = data.view(Tensor([0], row.dtype).bits.dtype).reshape(row.shape)
        with np.errstate(all="ignore"):
            return list(Evaluation(dims, stored).run(function.body, arrays))

    def run(
        self, entry: str, *inputs: object, rtol: float = 1e-5, **named: object
    ) -> list[Numbers]:
        """The results of an entry point as machine code, which agree with those of the evaluator.

        Floats may differ by `rtol` of the largest element, everything else not at all.
        """
        wanted = self.evaluated(entry, *inputs, **named)
        found = as_list(tuple(wanted))
        for level in self.levels:
            found = as_list(self.model(level).entry_points[entry](*inputs, **named))  # pyright: ignore[reportArgumentType]
            assert len(found) == len(wanted)
            for one, other in zip(found, wanted, strict=True):
                _assert_close(one, other, rtol, f"{entry} at -O{level}")
        return found

    def result(self, entry: str, *inputs: object, rtol: float = 1e-5, **named: object) -> Numbers:
        """The only result."""
        (found,) = self.run(entry, *inputs, rtol=rtol, **named)
        return found


def with_levels(cases: Iterable[T], name: Callable[[T], str]) -> list[ParameterSet]:
    """Cases, each with the levels at which its machine code runs beside the evaluator.

    The quick suite evaluates all of them, and has machine code of every second one.
    """
    made: list[ParameterSet] = []
    for index, case in enumerate(cases):
        quick: tuple[int, ...] = (2,) if index % 2 == 0 else ()
        made.append(pytest.param(case, quick, id=f"{name(case)}-{quick}"))
        made += [
            pytest.param(case, (level,), marks=pytest.mark.long, id=f"{name(case)}-{level}")
            for level in LEVELS
            if level not in quick
        ]
    return made


def as_list(given: object) -> list[Numbers]:
    """What a call of a compiled entry point gave, as arrays; bf16 as bits."""
    every = cast("tuple[object, ...]", given) if isinstance(given, tuple) else (given,)
    arrays = [item.bits if isinstance(item, Tensor) else np.asarray(item) for item in every]
    return cast("list[Numbers]", arrays)


def _assert_close(found: Array, wanted: Array, rtol: float, when: str) -> None:
    assert found.shape == wanted.shape, when
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted.view(found.dtype), err_msg=when)
        return
    one, other = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.abs(other[np.isfinite(other)])
    scale = float(np.max(finite, initial=1.0))
    np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * scale, err_msg=when)
