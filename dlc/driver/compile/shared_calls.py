"""Inference by ranks: each entry point once more as the program of a rank, which takes its part of a batch.

The batch is the first named size of the inputs, where that is nothing but the first axis of inputs. A rank
is given its part of these and computes whole results, so that what the function says about the batch as a
whole holds. The entry points stay as they are, for batches without equal parts.
"""

from __future__ import annotations

from dlc.dialects import func
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.builtin import Module
from dlc.driver.compile.entries import entry_functions
from dlc.driver.compile.rank_programs import program_of_rank
from dlc.ir.dims import names
from dlc.passes.sharding.partition import MESH, Splits, set_mesh
from dlc.runtime.artifact.manifest import DATA


def share_calls(module: Module, ranks: int) -> None:
    """Add the programs of `ranks` ranks that each take a part of a call."""
    module.attributes[MESH] = (f"{DATA} = {ranks}",)
    for function in entry_functions(module):
        batch = _batch(function)
        if batch is None or function.updates:
            continue
        copy = program_of_rank(module, function)
        splits: list[Splits] = [
            {DATA: 0} if batch in map(str, tensor_type(value).shape[:1]) else {}
            for value in copy.body.arguments
        ]
        set_mesh(copy, {DATA: ranks}, [*splits, *[{} for _ in copy.results_returned]])


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
