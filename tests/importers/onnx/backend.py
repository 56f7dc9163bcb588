"""dlc as a backend of ONNX's own test suite, which compares what it computes with stored results."""

from __future__ import annotations

import re
import unittest
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto
from onnx.backend.base import Backend, BackendRep

from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.source_model import SourceModel
from dlc.errors import Unsupported
from dlc.importers.onnx import OnnxModel, import_graph
from dlc.importers.onnx.facts import Graph
from dlc.importers.onnx.importing import IMPORTERS
from dlc.importers.onnx.reading import graph_of
from dlc.ir.passes import Context
from dlc.runtime.model import Model

Array = NDArray[Any]
Given = Array | list[Array] | None
"""A tensor, a sequence of tensors, or an optional value that is not there."""


class NotImported(unittest.SkipTest):
    """dlc says that it does not import something: no mistake."""


class DlcBackend(Backend):
    """Models are imported, compiled and run as machine code on the CPU."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: object) -> Prepared:
        """The model, compiled. Raises NotImported for what dlc lacks."""
        try:
            return Prepared(graph_of(model, "model.onnx", Path(), IMPORTERS))
        except Unsupported as error:
            raise NotImported(reason(error)) from None

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """There is code for CPUs only."""
        return device == "CPU"


class Prepared(BackendRep):
    """A model that runs; what its inputs decide while compiling is compiled at the first call."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def run(self, inputs: Sequence[Given], **kwargs: object) -> tuple[Array | list[Array], ...]:
        """The results for inputs in the order of the file."""
        given = dict(zip([one.name for one in self._graph.inputs], inputs, strict=False))
        try:
            made = Compiled.of(self._graph, given)
        except Unsupported as error:
            raise NotImported(reason(error)) from None
        found = made.model.entry_points[made.entry](*made.inputs)
        results = cast("tuple[Array, ...]", found if isinstance(found, tuple) else (found,))
        return made.as_declared([np.asarray(result) for result in results])


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled graph and what its only entry point is called with."""

    model: Model
    entry: str
    inputs: tuple[Array, ...]
    lengths: tuple[int | None, ...]
    """The number of elements of each result that is a sequence."""

    @classmethod
    def of(cls, graph: Graph, given: Mapping[str, Given]) -> Compiled:
        made, fixed = _imported(graph, given)
        texts = {graph.file: made.listing}
        opened = SourceModel(made.module, Context(), graph.file, texts, Path(), arrays=made.arrays)
        model = Model(compile_model(opened, Settings()))
        (entry,) = model.entry_points
        kept = _tensors({one.name: given[one.name] for one in graph.inputs})
        inputs = [array for name, array in kept.items() if name not in fixed]
        lengths = tuple([made.lengths.get(name) for name in graph.outputs])
        return cls(model, entry, tuple(inputs), lengths)

    def as_declared(self, results: Sequence[Array]) -> tuple[Array | list[Array], ...]:
        """The results, with those that are elements of sequences in lists."""
        rest = iter(results)
        return tuple(
            [next(rest) if n is None else [next(rest) for _ in range(n)] for n in self.lengths]
        )


def _tensors(given: Mapping[str, Given]) -> dict[str, Array]:
    """All tensors; the elements of a sequence have numbers behind its name."""
    found: dict[str, Array] = {}
    for name, value in given.items():
        if isinstance(value, list):
            found |= {f"{name}_{k}": np.asarray(array) for k, array in enumerate(value)}
        elif value is not None:
            found[name] = value
    return found


def _imported(graph: Graph, given: Mapping[str, Given]) -> tuple[OnnxModel, Mapping[str, Array]]:
    """The import, with values for those inputs that decide shapes, as the refusals name them."""
    tensors = _tensors(given)
    has_lists = any(isinstance(value, list) for value in given.values())
    shapes = {name: array.shape for name, array in tensors.items() if has_lists}
    missing = [name for name, value in given.items() if not _tensors({name: value})]
    fixed: dict[str, Array] = {name: np.zeros(0, np.float32) for name in missing}
    while True:
        try:
            return import_graph(graph, fixed=fixed, shapes=shapes), fixed
        except Unsupported as error:
            ways_out = " ".join([one.help or "" for one in error.diagnostics])
            named = re.findall(r"--fix (\S+)=VALUE", ways_out)
            more = {name: _plain(tensors[name]) for name in named}
            if not more.keys() - fixed.keys():
                raise
            fixed |= more


def _plain(array: Array) -> Array:
    """Numbers of a dtype that NumPy lacks as f32."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def reason(error: Unsupported) -> str:
    """Why something is not imported, in one line."""
    return "; ".join(diagnostic.message for diagnostic in error.diagnostics)
