"""An entry point with its arguments: what `dlc diff` evaluates at every level, again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dlc.dialects import func, mem
from dlc.driver.compile.build_artifact import EntryPoint, interface_of
from dlc.driver.compile.entries import find_entry, keep_entry, settle_interfaces
from dlc.driver.compile.settings import Settings
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.tracking import track_all
from dlc.driver.source.source_model import SourceModel
from dlc.driver.source.weight_sources import derive, gather
from dlc.evaluation.plan import evaluate_plan
from dlc.ir.core import Array, Evaluation, Value
from dlc.lowering.graph_to_kernel.call_conditions import check_least
from dlc.runtime.arrays.dtypes import BF16, dtype_of
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.calling.call_arguments import ArgumentReader
from dlc.runtime.calling.dim_binding import DimBinder
from dlc.runtime.weights.model_weights import WeightViews

Observe = Callable[[Value, Array], None]


@dataclass(frozen=True, slots=True)
class Case:
    """An entry point of a model and one call of it.

    `reopen` reads the model once more. `inputs` are the bits of the arguments in order, `dims` the sizes of
    the call, `weights` the bits of the source weights by symbol.
    """

    reopen: Callable[[], SourceModel]
    entry: str
    inputs: tuple[Array, ...]
    dims: Mapping[str, int]
    weights: Mapping[str, Array]
    settings: Settings

    def open(self) -> SourceModel:
        """The model with this entry point alone; all of its values are tracked."""
        model = self.reopen()
        settle_interfaces(model.module)
        keep_entry(model.module, self.entry)
        function = self.function(model)
        if isinstance(function, func.Func):
            track_all(model.context.values, function)
        return model

    def function(self, model: SourceModel) -> EntryPoint:
        """The entry point, at the level where the model is."""
        return find_entry(model.module, self.entry)

    def evaluate(self, model: SourceModel, observe: Observe | None = None) -> tuple[Array, ...]:
        """The results as the model computes them now; a plan in the memory that it lays out."""
        function = self.function(model)
        weights = derive(model.module, self.weights)
        with np.errstate(all="ignore"):
            if isinstance(function, mem.Program):
                return evaluate_plan(function, self.inputs, self.dims, weights)
            evaluation = Evaluation(self.dims, weights, observe)
            return evaluation.run(function.body, self.inputs)


def case_of(request: CompileRequest, call_request: CallRequest) -> tuple[Case, SourceModel]:
    """The call that a user asked for, and the model as it was read.

    Raises what `CallRequest.arguments` raises for arguments that do not fit, what reading weights does, and
    ModelError (D0715) for a model that is refused when it is compiled.
    """
    model = request.open()
    with model.quoting():
        settle_interfaces(model.module)
        check_least(model.module)
    arguments = request.arguments_for(model, call_request)
    entry = interface_of(find_entry(model.module, arguments.entry))
    binder = DimBinder(entry, lambda: model.texts)
    arrays, sizes = ArgumentReader(entry, binder.free).read((), arguments.named)
    dims = binder.bind([array.shape for array in arrays], sizes)
    gathered = gather(model.module, request.weights, model.folder, model.arrays)
    views = WeightViews(gathered.table, np.frombuffer(gathered.data, np.uint8))
    weights = {row.name: bits(views[row.name]) for row in gathered.table}
    case = Case(request.open, entry.name, tuple(arrays), dims, weights, request.settings)
    return case, model


def bits(value: object) -> Array:
    """The array of a tensor as it lies in memory: uint16 for bf16, `ml_dtypes.bfloat16` included."""
    if isinstance(value, Tensor):
        return value.bits
    array = np.asarray(value)
    return array.view(BF16.numpy) if dtype_of(array) is BF16 else array
