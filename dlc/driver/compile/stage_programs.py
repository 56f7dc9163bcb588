"""Stages: the functions of a model become the parts that the stages of a pipeline of ranks run.

The functions themselves go. What remains of each in the artifact is its interface, with the parts and what
goes from one to another (`manifest.Staged`).
"""

from __future__ import annotations

from collections.abc import Mapping

from dlc.dialects import func, weight
from dlc.dialects.builtin import Module
from dlc.dialects.text_mesh import STAGES, read_text_mesh
from dlc.driver.compile.build_artifact import interface_of
from dlc.driver.compile.entries import entry_functions
from dlc.driver.source.source_model import SourceModel
from dlc.errors import Diagnostic, ModelError
from dlc.ir.core import Builder
from dlc.ir.passes import Manager
from dlc.lowering.graph_to_kernel.call_conditions import note_needs
from dlc.passes.graph.autodiff import autodiff
from dlc.passes.graph.dce import dce
from dlc.passes.graph.mixed_precision import mixed_precision
from dlc.passes.sharding.partition import MESH, partition
from dlc.passes.stages.cut import cut
from dlc.passes.stages.split import split
from dlc.runtime.artifact import manifest


def divide_stages(model: SourceModel, mesh: Mapping[str, int]) -> None:
    """Let a model be compiled for the stages of a mesh.

    An entry point that changes what it is given stays as it is, and every rank computes it. Raises
    ModelError (D0383) for what cannot be divided.
    """
    try:
        _check(model)
        model.staged = _divided(model, mesh)
    except ModelError as error:
        error.sources.update(model.texts)
        raise


def has_stages(module: Module) -> bool:
    """Whether the text of a module has a mesh with stages."""
    mesh = read_text_mesh(module)
    return mesh is not None and STAGES in mesh.axes


def _check(model: SourceModel) -> None:
    names = [op.sym_name for op in model.module.body if isinstance(op, weight.Source)]
    if any(name.startswith(weight.SCALE) for name in names):
        message = "a dynamic scale of the loss looks at the gradients of all stages in each step"
        help = "write a number for loss_scale, or precision = bf16"
        place = model.entry_places.get("loss_scale")
        raise ModelError([Diagnostic("D0383", message, place, help=help)])


def _divided(model: SourceModel, mesh: Mapping[str, int]) -> tuple[manifest.Staged, ...]:
    """Divide the entry points of a model; gives what is to be known of each."""
    module, context = model.module, model.context
    weights = {op.sym_name for op in module.body if isinstance(op, weight.Source)}
    functions = [
        function
        for function in entry_functions(module)
        if model.training is not None or not function.updates
    ]
    divided = [function for function in functions if MESH in function.attributes]
    for function in functions:
        cut(function, set(function.input_names) - weights)
        if function not in divided:
            note_needs(function, {})
    Manager(context).run(module, (mixed_precision, autodiff, partition))
    for function in divided:
        note_needs(function, {})  # of the sizes that a rank has
    Manager(context).run(module, (dce,))
    homes: dict[str, int] = {}
    found: list[manifest.Staged] = []
    for function in functions:
        own = _staged(module, function, weights, mesh[STAGES], homes)
        homes |= own.homes
        found.append(own)
    module.attributes[MESH] = tuple([f"{name} = {size}" for name, size in mesh.items()])
    return tuple(found)


def _staged(
    module: Module, function: func.Func, weights: set[str], stages: int, homes: Mapping[str, int]
) -> manifest.Staged:
    """Put the parts of a function in its place."""
    interface = interface_of(function)
    made = split(function, set(function.input_names) - weights, stages, homes)
    emit = Builder(module.body, function.location, function.next)
    for part, _, _ in made.parts:
        emit.place(part)
    function.erase()
    return manifest.Staged(
        interface,
        stages,
        tuple([manifest.StagePart(part.sym_name, stage, when) for part, stage, when in made.parts]),
        made.results,
        made.homes,
        made.microbatches,
        made.rows,
        made.carried,
        made.in_order,
    )
