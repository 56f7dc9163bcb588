"""Partitioning small programs, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import func
from dlc.dialects.builtin import Module
from dlc.ir.passes import Context
from dlc.ir.verify import verify
from dlc.passes.sharding.partition import Splits, partition, set_mesh
from dlc.runtime.ranks.mesh import Mesh


def partitioned(module: Module, mesh: Mesh, splits: Sequence[Splits]) -> Context:
    """Partition the one function of a module; `splits` are those of arguments, then of results."""
    (function,) = [op for op in module.body if isinstance(op, func.Func)]
    set_mesh(function, mesh.axes, splits)
    context = Context()
    partition.run(module, context)
    verify(module)
    return context
