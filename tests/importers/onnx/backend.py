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

    def run(self, inputs: Sequence[Array], **kwargs: object) -> tuple[Array, ...]:
        """The results for inputs in the order of the file."""
        given = dict(zip([one.name for one in self._graph.inputs], inputs, strict=False))
        try:
            made = Compiled.of(self._graph, given)
        except Unsupported as error:
            raise NotImported(reason(error)) from None
        found = made.model.entry_points[made.entry](*made.inputs)
        results = cast("tuple[Array, ...]", found if isinstance(found, tuple) else (found,))
        return tuple([np.asarray(result) for result in results])


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled graph and what its only entry point is called with."""

    model: Model
    entry: str
    inputs: tuple[Array, ...]

    @classmethod
    def of(cls, graph: Graph, given: Mapping[str, Array]) -> Compiled:
        made, fixed = _imported(graph, given)
        texts = {graph.file: made.listing}
        opened = SourceModel(made.module, Context(), graph.file, texts, Path(), arrays=made.arrays)
        model = Model(compile_model(opened, Settings()))
        (entry,) = model.entry_points
        kept = [given[one.name] for one in graph.inputs if one.name not in fixed]
        return cls(model, entry, tuple(kept))


def _imported(graph: Graph, given: Mapping[str, Array]) -> tuple[OnnxModel, Mapping[str, Array]]:
    """The import, with values for those inputs that decide shapes, as the refusals name them."""
    fixed: dict[str, Array] = {}
    while True:
        try:
            return import_graph(graph, fixed=fixed), fixed
        except Unsupported as error:
            ways_out = " ".join([one.help or "" for one in error.diagnostics])
            named = re.findall(r"--fix (\S+)=VALUE", ways_out)
            more = {name: _plain(given[name]) for name in named}
            if not more.keys() - fixed.keys():
                raise
            fixed |= more


def _plain(array: Array) -> Array:
    """Numbers of a dtype that NumPy lacks as f32."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def reason(error: Unsupported) -> str:
    """Why something is not imported, in one line."""
    return "; ".join(diagnostic.message for diagnostic in error.diagnostics)
