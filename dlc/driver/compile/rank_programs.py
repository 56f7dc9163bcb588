"""Training by ranks: the functions that train become programs for the ranks of a mesh.

Beside `train_step` and `evaluate` stand the programs of a rank that takes its part of the examples of a
batch. The two themselves are for batches that the ranks cannot share equally: each computes all of such a
batch, from parts of the weights where these are split.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from dlc.dialects import func
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.builtin import Module
from dlc.dialects.text_mesh import STAGES, read_text_mesh
from dlc.driver.compile.shard import shard
from dlc.driver.compile.stage_programs import divide_stages
from dlc.driver.source.source_model import SourceModel
from dlc.errors import Diagnostic, ModelError
from dlc.ir.clone import clone_block
from dlc.ir.core import Builder
from dlc.passes.sharding.partition import Splits, set_mesh
from dlc.runtime.artifact.manifest import DATA, EVALUATE, OF_RANK, STEP, Training
from dlc.runtime.ranks.parts import Shard


def mesh_of_ranks(model: SourceModel, ranks: int) -> Mapping[str, int]:
    """The mesh that the text declares; without one the ranks divide batches.

    Raises ModelError (D0936) where that has another number of ranks.
    """
    declared = read_text_mesh(model.module)
    if declared is None:
        return {DATA: ranks}
    if declared.size != ranks:
        shape = ", ".join(f"{name} = {size}" for name, size in declared.axes.items())
        diagnostic = Diagnostic(
            "D0936",
            f"the mesh {shape} has {declared.size} ranks, and {ranks} run",
            declared.place,
            help=f"write --ranks {declared.size}, or change the mesh",
        )
        raise ModelError([diagnostic], sources=model.texts)
    return declared.axes


def compile_for_mesh(
    model: SourceModel, facts: Training, mesh: Mapping[str, int], split: Shard | None = None
) -> None:
    """Let a model that trains be compiled for the ranks of a mesh, which split weights and states so."""
    if STAGES in mesh:
        model.training = facts
        divide_stages(model, prod(mesh.values()))
        return
    facts = facts._replace(splits=shard(model.module, mesh, split))
    model.training = facts
    add_rank_programs(model.module, facts, mesh)


def add_rank_programs(module: Module, facts: Training, mesh: Mapping[str, int]) -> None:
    """Make the functions that train programs for a mesh, with the splits of weights that the facts have.

    Batches are divided along the axis `data` of the mesh, if it has one.
    """
    for name in (STEP, EVALUATE):
        function = module.symbol(name)
        assert isinstance(function, func.Func)
        if DATA in mesh:
            copy = program_of_rank(module, function)
            batch = {
                name: {DATA: 0}
                for name, value in zip(copy.input_names, copy.body.arguments, strict=True)
                if name in facts.inputs and tensor_type(value).rank
            }
            _split(copy, mesh, {**facts.splits, **batch})
        if facts.splits:
            _split(function, mesh, facts.splits)


def program_of_rank(module: Module, function: func.Func) -> func.Func:
    """A copy of a function that a rank runs, which stands behind it and has a name of its own."""
    name = function.sym_name + OF_RANK
    copy = func.Func(clone_block(function.body), name, function.function_type, "public")
    copy.attributes |= {
        key: value for key, value in function.attributes.items() if key.startswith("dlc.")
    }
    Builder(module.body, function.location, function.next).place(copy)
    return copy


def _split(function: func.Func, mesh: Mapping[str, int], of: Mapping[str, Splits]) -> None:
    """Make a function a program for the mesh, whose arguments, and what updates them, are split so."""
    whole: Splits = {}
    arguments = [of.get(name, whole) for name in function.input_names]
    updates = function.updates
    results = [
        arguments[updates[k]] if k in updates else whole
        for k in range(len(function.results_returned))
    ]
    set_mesh(function, mesh, [*arguments, *results])
