"""An imported graph of PyTorch as a compiled model."""

from __future__ import annotations

from pathlib import Path

from dlc.driver.compile.compile import Report, compile_model
from dlc.driver.compile.host_target import placed_here, to_run_here
from dlc.driver.compile.settings import Settings
from dlc.driver.source.imported import source_of
from dlc.importers.torch.facts import Graph
from dlc.importers.torch.importing import TorchModel, import_graph
from dlc.planning.capacity import check_interface
from dlc.runtime.model import Model


def compiled(
    graph: Graph, settings: Settings, threads: int | None = None, backward: Graph | None = None
) -> tuple[Model, TorchModel]:
    """A graph, with its backward pass if there is one, compiled for this machine.

    Raises Unsupported with every operator that is not imported.
    """
    imported = import_graph(graph, backward)
    model = source_of(imported, graph.file, Path.cwd())
    model.reopen = lambda: source_of(import_graph(graph, backward), graph.file, Path.cwd())
    with model.quoting():
        check_interface(model.module)
        here = placed_here(to_run_here(settings, None), model.module, None)
        artifact = compile_model(model, here, None, report=Report())
    return Model(artifact, threads=threads), imported
