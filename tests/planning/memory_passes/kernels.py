"""The kernels of a program, as the passes over memory leave them."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import func
from dlc.driver.compile.pipelines import pipeline
from dlc.ir.core import Op
from dlc.ir.passes import Context, Manager
from dlc.ir.types import TensorType
from tests.lowering.everywhere import Program, function_of


def kernels(program: Program, *types: TensorType) -> Sequence[Op]:
    """The operations of a program just before its plan."""
    module, function = function_of(program, types, {"T": (1, 40), "E": (0, 40)})
    Manager(Context()).run(module, pipeline("graph", "kernel", 2))
    changed = module.symbol(function.sym_name)
    assert isinstance(changed, func.Func)
    return list(changed.walk())
