"""Inference by ranks: each entry point once more as the program of a rank, which takes its part of a batch.

The batch is the first named size of the inputs, where that is nothing but the first axis of inputs. A rank
is given its part of these and computes whole results, so that what the function says about the batch as a
whole holds. The entry points stay beside them, for batches without equal parts.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlc.dialects import func, weight
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.builtin import Module
from dlc.driver.compile.entries import entry_functions
from dlc.driver.compile.rank_programs import program_of_rank
from dlc.ir.dims import names
from dlc.ir.passes import Context
from dlc.passes.sharding.infer_splits import infer_splits
from dlc.passes.sharding.partition import MESH, Splits, set_mesh
from dlc.runtime.artifact.manifest import DATA


def share_calls(module: Module, mesh: Mapping[str, int], context: Context) -> None:
    """Add the programs of the ranks of a mesh that each take a part of a call.

    Weights that the text splits are read in parts, by the entry points themselves, too.
    """
    infer_splits(module, mesh, context)
    module.attributes[MESH] = tuple([f"{name} = {ranks}" for name, ranks in mesh.items()])
    divided = [op for op in module.body if isinstance(op, weight.Source) and op.splits]
    for source in divided:
        source.attributes["whole"] = source.type
    for function in entry_functions(module):
        batch = _batch(function)
        if batch is not None and not function.updates and DATA in mesh:
            copy = program_of_rank(module, function)
            splits: list[Splits] = [
                {DATA: 0} if batch in map(str, tensor_type(value).shape[:1]) else {}
                for value in copy.body.arguments
            ]
            set_mesh(copy, mesh, [*splits, *[{} for _ in copy.results_returned]])
        if divided:
            arguments = function.body.arguments
            set_mesh(function, mesh, [{} for _ in (*arguments, *function.results_returned)])


def _batch(function: func.Func) -> str | None:
    """The name of the size of the batch, if the function has one that can be divided."""
    shapes = [tensor_type(value).shape for value in function.body.arguments]
    named = [name for shape in shapes for size in shape for name in names(size)]
    if not named:
        return None
    batch = named[0]
    elsewhere = any(
        batch in names(size) and (place or str(size) != batch)
        for shape in shapes
        for place, size in enumerate(shape)
    )
    return None if elsewhere else batch
