"""An ONNX file as a model: imported repeatedly, until all that it implies for its input sizes is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dlc.errors import DlcError, ModelError, Unsupported
from dlc.errors.options import option
from dlc.importers.onnx.facts import Array, Graph
from dlc.importers.onnx.importing import IMPORTERS, GraphImport, OnnxModel
from dlc.importers.onnx.interface import AskedSizes, Sizes, check_names, with_fixed
from dlc.importers.onnx.reading import read_graph
from dlc.importers.onnx.sequence_inputs import SplitInputs, split_inputs
from dlc.importers.onnx.versions import check_opsets
from dlc.importers.solved_sizes import SolvedSizes
from dlc.ir.dims import Bounds, Shape

MAX_ROUNDS = 32
"""So often a graph is imported, each time with more known of its sizes."""
EXAMPLES = (8, 64, 224, 1)
"""Numbers of which one is proposed for all sizes where a file can only be imported with numbers."""


def read_onnx(
    path: str | Path,
    *,
    shapes: Mapping[str, Shape] | None = None,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Array] | None = None,
    bounds: Bounds | None = None,
) -> OnnxModel:
    """The model in an ONNX file.

    `shapes` replaces the declared shapes of inputs, by their names in the file, `dims` gives numbers to
    sizes that have names, `fixed` values to inputs, which are inputs no longer. `bounds` decide what
    follows from sizes, of names that the file has. Raises Unsupported with every operator that is not
    imported, UsageError for names that the file does not have and for values that do not fit.
    """
    graph = read_graph(path, IMPORTERS)
    return import_graph(graph, shapes=shapes, dims=dims, fixed=fixed, bounds=bounds)


def import_graph(
    graph: Graph,
    *,
    shapes: Mapping[str, Shape] | None = None,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Array] | None = None,
    bounds: Bounds | None = None,
) -> OnnxModel:
    """The same from a graph that was read.

    Sizes that the graph takes to be equal and that decide a dim of the inputs, such as `H == 2*(H//2)` or
    `N == 80`, are put into the shapes of the inputs, and the graph is imported again.
    """
    check_opsets(graph)
    split = split_inputs(graph, shapes or {}, fixed or {})
    fixed = {name: value for name, value in (fixed or {}).items() if name not in split.elements}
    inputs = [declared.name for declared in split.graph.inputs]
    check_names(split.graph, "input", [*(shapes or {}), *fixed], inputs)
    split = replace(split, graph=with_fixed(split.graph, fixed))
    asked = AskedSizes(shapes or {}, dims or {}, bounds or {})
    try:
        return _solved(split, asked)
    except (ModelError, Unsupported) as error:
        way_out = _numbers_that_work(split, asked)
        if way_out is None:
            raise
        told = [replace(each, help=each.help or way_out) for each in error.diagnostics]
        raise type(error)(told, sources=error.sources) from None


def _solved(split: SplitInputs, asked: AskedSizes) -> OnnxModel:
    """The model, imported again with each size that it decides."""
    solved = SolvedSizes()
    for _ in range(MAX_ROUNDS):
        one = GraphImport(split, Sizes(split.graph, asked, solved))
        try:
            model = one.run()
        except DlcError:
            more = one.solved_sizes()
            if not more:
                raise
        else:
            more = one.solved_sizes()
            if not more:
                return replace(model, warnings=(*model.warnings, *solved.notes()))
        solved = solved.then(more)
    raise Unsupported(
        f"{split.graph.file} has sizes that depend on each other without end", code="D0710"
    )


def _numbers_that_work(split: SplitInputs, asked: AskedSizes) -> str | None:
    """Options that let a file in by giving its sizes numbers; None where none were found by trying."""
    names = Sizes(split.graph, asked, SolvedSizes()).of_inputs(split.graph)
    for number in EXAMPLES if names else ():
        try:
            _solved(split, asked.with_numbers(dict.fromkeys(names, number)))
        except DlcError:
            continue
        numbers = option("dims", dict.fromkeys(names, (number, number)))
        return f"{numbers} lets it in, as may other numbers"
    return None


__all__ = ["import_graph", "read_onnx"]
