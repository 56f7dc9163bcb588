"""Entry points made from another one: its weights as arguments, its gradient."""

from __future__ import annotations

from pathlib import Path

from dlc.dialects import func
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.entries import find_function, keep_entry
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_artifact
from dlc.driver.source.source_model import SourceModel
from dlc.errors import UsageError
from dlc.passes.graph.gradient_functions import copied, gradient_function, weights_as_arguments
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.model import Model


def with_weight_arguments(entry: EntryPoint) -> EntryPoint:
    """The entry point with the weights that it reads as further inputs, under their paths.

    Raises UsageError (D0905) for a model that was compiled from IR below the graph.
    """
    source, function = _graph_of(entry)
    changed = copied(function, entry.name)
    weights_as_arguments(changed)
    return _compiled(source, function, changed, entry.threads)


def gradient(entry: EntryPoint) -> EntryPoint:
    """The vector-Jacobian product of an entry point, as `gradient_function` defines it.

    Raises UsageError (D0905) for a model that was compiled from IR below the graph, ModelError and
    Unsupported for an operation without derivative.
    """
    source, function = _graph_of(entry)
    name = f"gradient of {entry.name}"
    return _compiled(source, function, gradient_function(function, name), entry.threads)


def _graph_of(entry: EntryPoint) -> tuple[SourceModel, func.Func]:
    source = open_artifact(entry.artifact, entry.artifact.manifest.model, Path.cwd())
    if source.stage != "graph":
        raise UsageError(
            f"{source.name} was compiled from {source.stage} IR, where no derivative can be taken",
            code="D0905",
            help="compile the model's text or its graph",
        )
    return source, find_function(source.module, entry.name)


def _compiled(source: SourceModel, old: func.Func, new: func.Func, threads: int) -> EntryPoint:
    """The new function, compiled in place of the old one and all others."""
    old.erase()
    source.module.body.append(new)
    keep_entry(source.module, new.sym_name)
    with source.quoting():
        model = Model(compile_model(source, Settings()), threads=threads)
    return model.entry_points[new.sym_name]
