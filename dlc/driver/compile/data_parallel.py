"""Data parallel training: the functions that train, once more as programs for the ranks of a mesh.

`train_step` and `evaluate` stay as they are, for batches that the ranks cannot share equally. Beside them
stand the programs of a rank, which take its part of the examples of a batch.
"""

from __future__ import annotations

from dlc.dialects import func
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.builtin import Module
from dlc.ir.clone import clone_block
from dlc.ir.core import Builder
from dlc.passes.sharding.partition import Splits, set_mesh
from dlc.runtime.artifact.manifest import EVALUATE, OF_RANK, STEP, Training

AXIS = "data"
"""The axis of the mesh along which batches are divided."""


def divide_batches(module: Module, facts: Training, ranks: int) -> None:
    """Add the programs of `ranks` ranks that each take a part of every batch."""
    for name in (STEP, EVALUATE):
        function = module.symbol(name)
        assert isinstance(function, func.Func)
        copy = func.Func(
            clone_block(function.body), name + OF_RANK, function.function_type, "public"
        )
        copy.attributes |= {
            key: value for key, value in function.attributes.items() if key.startswith("dlc.")
        }
        splits: list[Splits] = [
            {AXIS: 0} if value.name in facts.inputs and tensor_type(value).rank else {}
            for value in copy.body.arguments
        ]
        splits += [{} for _ in copy.results_returned]
        set_mesh(copy, {AXIS: ranks}, splits)
        Builder(module.body, function.location, function.next).place(copy)
