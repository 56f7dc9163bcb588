"""Random ONNX graphs: our machine code and our evaluator against ONNX Runtime.

A graph has some nodes of each kind that its version of the operators has, is valid by the way in which it
is made, and is run at two sizes where its inputs have sizes with names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, TypeAlias, cast

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator

from benchmarks.fuzz.cases import Kind, Outcome
from benchmarks.fuzz.closeness import epsilon, judge
from benchmarks.fuzz.graph import control as graph_control
from benchmarks.fuzz.graph import elementwise as graph_elementwise
from benchmarks.fuzz.graph import places as graph_places
from benchmarks.fuzz.graph import products as graph_products
from benchmarks.fuzz.graph import shapes as graph_shapes
from benchmarks.fuzz.graph.building import NAMES, OPSETS, Graph, Maker, Value
from benchmarks.fuzz.shaken import evaluated
from dlc.dialects import func
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.source_model import SourceModel
from dlc.importers.onnx import OnnxModel, import_graph
from dlc.importers.onnx.reading import graph_of
from dlc.ir.passes import Context
from dlc.runtime.model import Model
from tests.importers.onnx.models import results

Array: TypeAlias = NDArray[Any]

GROUPS: Sequence[tuple[int, Sequence[Maker]]] = (
    (4, graph_elementwise.MAKERS),
    (4, graph_shapes.MAKERS),
    (2, graph_places.MAKERS),
    (4, graph_products.MAKERS),
    (1, graph_control.MAKERS),
)
"""The makers of nodes, and how often a group is chosen."""
EPS = epsilon(np.dtype(np.float32))
MOST_STEPS, FEW_STEPS = 12, 3
LONG = 0.125
"""The part of the graphs that has up to `MOST_STEPS`: a short one takes less than half of their time, and a
second of a processor finds as much with them."""
MOST_ELEMENTS = 4_000
MOST_RESULTS = 3


def random_graph(seed: int, floats: type[np.floating[Any]] = np.float32) -> CompileResult:
    """The graph of a seed; with another dtype for floats, the same graph in that dtype."""
    random = Random(seed)
    names = dict(random.sample(sorted(NAMES.items()), random.choice((0, 1, 2))))
    graph = Graph(random, random.choice(OPSETS), np.dtype(floats), names)
    for _ in range(random.randint(1, 2)):
        graph.input()
    weights = [weight for weight, _ in GROUPS]
    for _ in range(random.randint(2, MOST_STEPS if random.random() < LONG else FEW_STEPS)):
        (_, makers), *_ = random.choices(GROUPS, weights)
        value = random.choice(makers)(graph)
        if value is not None and value.elements <= MOST_ELEMENTS and value.rank <= 6:
            graph.keep(value)
    return CompileResult(graph, seed)


class CompileResult:
    """A finished graph: its results are values that no node uses, the last first."""

    def __init__(self, graph: Graph, seed: int) -> None:
        used = {name for node in graph.nodes for name in node.input}
        made = [value for value in graph.values if value.name not in graph.inputs]
        ends = [value for value in reversed(made) if value.name not in used]
        if not ends:
            ends = [graph.make("Identity", [graph.values[0]], graph.values[0].shape)]
        self.outputs: list[Value] = ends[:MOST_RESULTS]
        self.graph, self.seed = graph, seed
        self.model: ModelProto = graph.model(self.outputs)
        self.dims: Mapping[str, tuple[int, int]] = {
            name: graph.names[name]
            for _, declared in graph.inputs.values()
            for name in declared
            if isinstance(name, str)
        }

    def arrays(self, at: int) -> dict[str, Array]:
        """Its inputs at the first or second size."""
        return self.graph.arrays(self.seed, at)

    def sizes(self, at: int) -> dict[str, int]:
        """The sizes with names at the first or second size."""
        return {name: pair[at] for name, pair in self.dims.items()}


def start() -> Callable[[int], Outcome]:
    """What tries one graph."""
    return check


def check(seed: int) -> Outcome:
    """Compare what a graph computes with what ONNX Runtime computes."""
    made = random_graph(seed)
    random = Random(~seed)
    settings = Settings(random.randrange(4), matmul=random.choice(("blas", "generated")))
    try:
        session = _session(made.model)
        wanted = [session.run(None, made.arrays(at)) for at in _ats(made)]
    except Exception as error:  # noqa: BLE001 - the exceptions of ONNX Runtime have no class in common
        return Outcome("no peer", _first_line(error))
    imported = import_graph(graph_of(made.model, "fuzz.onnx", Path()))
    # Compiling changes the module, so what it means is evaluated first.
    evaluations = [_evaluated(imported, made, at) for at in _ats(made)]
    model = _compiled(imported, settings)
    count, unstable = 0, ""
    for at in _ats(made):
        peer = [np.asarray(array) for array in wanted[at]]
        exact = _exact(seed, at)
        found = results(model, list(made.arrays(at).values()))
        for who, ours in (("evaluated", evaluations[at]), (_flags(settings), found)):
            outcome = judge(ours, peer, exact, EPS, second=partial(_by_reference, seed, at))
            count += 1
            if outcome.verdict == "wrong":
                return Outcome(
                    "wrong", f"{who} at {made.sizes(at)}: {outcome.what} [{kinds(made)}]"
                )
            unstable = unstable or outcome.what
    model.close()
    return Outcome("unstable", unstable, count) if unstable else Outcome("agreed", "", count)


def _ats(made: CompileResult) -> range:
    return range(2 if made.dims else 1)


def _flags(settings: Settings) -> str:
    return f"compiled -O{settings.level} --matmul {settings.matmul}"


def kinds(made: CompileResult) -> str:
    """The operators of a graph."""
    return " ".join(node.op_type for node in made.model.graph.node if node.op_type != "Constant")


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0]


def _session(model: ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _compiled(made: OnnxModel, settings: Settings) -> Model:
    texts = {"fuzz.onnx": made.listing}
    opened = SourceModel(made.module, Context(), "fuzz", texts, Path(), arrays=made.arrays)
    return Model(compile_model(opened, settings), threads=1)


def _exact(seed: int, at: int) -> Callable[[int], Sequence[Array]]:
    """The graph in f64 by our evaluator, with its numbers changed a little."""

    @cache
    def run(shake: int) -> Sequence[Array]:
        made = random_graph(seed, np.float64)
        imported = import_graph(graph_of(made.model, "exact.onnx", Path()))
        return _evaluated(imported, made, at, shake)

    return run


def _by_reference(seed: int, at: int) -> Sequence[Array]:
    """The results in f64 of the onnx package's own evaluator in NumPy; none where it has none."""
    made = random_graph(seed, np.float64)
    try:
        run = cast("Callable[..., Sequence[Array]]", ReferenceEvaluator(made.model).run)
        return [np.asarray(array) for array in run(None, made.arrays(at))]
    except Exception:  # noqa: BLE001 - its exceptions have no class in common
        return ()


def _evaluated(
    imported: OnnxModel, made: CompileResult, at: int, shake: int = 0
) -> Sequence[Array]:
    (function,) = [op for op in imported.module.body if isinstance(op, func.Func)]
    given = list(made.arrays(at).values())
    return evaluated(function.body, given, made.sizes(at), imported.arrays, shake, EPS)


KIND = Kind("random ONNX graphs against ONNX Runtime", start)
