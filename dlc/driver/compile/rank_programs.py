"""Training by ranks: the functions that train become programs for the ranks of a mesh.

Beside `train_step` and `evaluate` stand the programs of a rank that takes its part of the examples of a
batch. The two themselves are for batches that the ranks cannot share equally: each computes all of such a
batch, from parts of the weights where these are split.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlc.dialects import array, func
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.builtin import Module
from dlc.dialects.text_mesh import STAGES, read_text_mesh
from dlc.driver.compile.shard import shard
from dlc.driver.compile.stage_programs import divide_stages
from dlc.driver.source.source_model import SourceModel
from dlc.errors import Diagnostic, ModelError
from dlc.ir.clone import clone_block
from dlc.ir.core import Builder, Value
from dlc.ir.dims import floor_divide
from dlc.passes.sharding.infer_splits import infer_splits
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
    """Let a model that trains be compiled for the ranks of a mesh, which split weights and states so.

    The stages of a pipeline divide the programs of the ranks along the other axes.
    """
    others = {name: ranks for name, ranks in mesh.items() if name != STAGES}

    def change(model: SourceModel) -> None:
        infer_splits(model.module, others, model.context)
        model.training = facts._replace(splits=shard(model.module, others, split))
        add_rank_programs(model.module, model.training, others)
        if STAGES in mesh:
            divide_stages(model, mesh)

    model.change(change)


def add_rank_programs(module: Module, facts: Training, mesh: Mapping[str, int]) -> None:
    """Make the functions that train programs for a mesh, with the splits of weights that the facts have.

    Batches are divided along the axis `data` of the mesh, if it has one, and of a step with microbatches
    each of these: then a rank takes a row of examples for each microbatch.
    """
    for name in (STEP, EVALUATE):
        function = module.symbol(name)
        assert isinstance(function, func.Func)
        if DATA in mesh:
            copy = program_of_rank(module, function)
            examples = {
                name: value
                for name, value in zip(copy.input_names, copy.body.arguments, strict=True)
                if name in facts.inputs and tensor_type(value).rank
            }
            axis = 0
            if name == STEP and facts.accumulate > 1:
                axis = 1
                for value in examples.values():
                    _by_microbatch(value, facts.accumulate)
                copy.retype()
            _split(copy, mesh, {**facts.splits, **{each: {DATA: axis} for each in examples}})
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


def _by_microbatch(value: Value, count: int) -> None:
    """Let an argument with the examples of a step have a row for each microbatch."""
    whole, *rest = tensor_type(value).shape
    value.type = tensor_type(value).with_shape((count, floor_divide(whole, count), *rest))
    for op in list(value.uses):
        assert isinstance(op, array.Reshape), op  # `accumulated` takes rows first of all
        assert op.result.type == value.type, op
        op.result.replace_by(value)
        op.erase()


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
