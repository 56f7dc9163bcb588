"""Running an entry point without compiling it: each operation says in NumPy what it computes.

So every value of the user's text can be seen (`dlc.driver.run.watch`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from dlc.dialects import mem
from dlc.dialects.loop.memory import BadAccess
from dlc.driver.compile.build_artifact import EntryPoint, interface_of
from dlc.driver.compile.entries import find_entry, interfaces, settle_interfaces
from dlc.driver.run.calls import Arguments, CallRequest
from dlc.driver.run.index_limits import limits_of
from dlc.driver.run.results import Results, outputs_of
from dlc.driver.run.watch import Watch, observing, renamed_values
from dlc.driver.source.source_model import SourceModel
from dlc.driver.source.weight_sources import Weights, WeightsArgument, derive, gather
from dlc.errors import ModelError, UsageError
from dlc.evaluation.plan import evaluate_plan
from dlc.ir.core import Array, Evaluation, Op
from dlc.ir.passes import Manager
from dlc.passes.graph.autodiff import autodiff
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Entry
from dlc.runtime.calling.call_arguments import ArgumentReader
from dlc.runtime.calling.dim_binding import DimBinder
from dlc.runtime.calling.status import called
from dlc.runtime.weights.model_weights import WeightViews

Known: TypeAlias = Callable[[Op], "tuple[Array, ...] | None"]
"""Gives the results of an operation that are known, or None."""


def evaluate_entry(
    model: SourceModel,
    request: CallRequest,
    weights: WeightsArgument = None,
    watch: Watch | None = None,
) -> tuple[Results, tuple[str, ...]]:
    """Evaluate an entry point of a model at any level: its results, and notes about weights and inputs.

    A plan is evaluated in the memory that it lays out. Raises UsageError (D0905) where values of a plan
    are to be watched, CallError as a compiled entry point would, and (D0912) where `watch` checks that
    there are numbers.
    """
    watch = watch or Watch()
    check_watched(model, watch)
    with model.quoting():
        settle_interfaces(model.module)
    limits = limits_of(model.module, request.entry)
    arguments = request.arguments(interfaces(model.module), limits)
    if model.stage == "graph":
        Manager(model.context).run(model.module, (autodiff,))
    gathered = gather(model.module, weights, model.folder, model.arrays)
    results = evaluate_arguments(model, arguments, gathered, watch)
    watch.check_found()
    return results, (*gathered.notes, *watch.remarks)


def check_watched(model: SourceModel, watch: Watch) -> None:
    """Raises UsageError (D0905) where values of a plan are to be watched."""
    if watch.watches and model.stage in ("plan", "loop"):
        raise UsageError(
            f"{model.name} is at {model.stage} level, where memory has no values of its own to watch",
            code="D0905",
            help="watch the graph or the kernels; --interpret alone evaluates a plan",
        )


def evaluate_arguments(
    model: SourceModel, arguments: Arguments, weights: Weights, watch: Watch
) -> Results:
    """Evaluate an entry point, without derivatives any more, on arguments that were read."""
    bound = bind(model, arguments, weights)
    function, entry, arrays = bound.function, bound.entry, bound.arrays
    with np.errstate(all="ignore"), model.quoting(), _told(model), called(entry.name):
        if isinstance(function, mem.Program):
            results = evaluate_plan(function, arrays, bound.dims, bound.weights)
        else:
            results = evaluate_observed(model, bound, watch)
    shown = [
        array for output, array in zip(entry.outputs, results, strict=True) if not output.hidden
    ]
    updates = zip(entry.outputs, results, strict=True)
    changed = {output.updates: array for output, array in updates if output.hidden}
    values = [*shown, *[changed[name] for name in entry.inouts]]
    pairs = zip(outputs_of(entry), values, strict=True)
    found = [(output, Tensor.from_bits(array, output.dtype)) for output, array in pairs]
    told = Results(entry.name, tuple(found))
    watch.add_results(told.named, "evaluated")
    return told


@dataclass(frozen=True, slots=True)
class Bound:
    """A call of an entry point with all that its evaluation takes: bits of arrays, and sizes."""

    function: EntryPoint
    entry: Entry
    arrays: Sequence[Array]
    dims: Mapping[str, int]
    weights: Mapping[str, Array]


def bind(model: SourceModel, arguments: Arguments, weights: Weights) -> Bound:
    """The call that arguments and weights make. Raises CallError as a compiled entry point would."""
    function = find_entry(model.module, arguments.entry)
    entry = interface_of(function)
    binder = DimBinder(entry, lambda: model.texts)
    arrays, sizes = ArgumentReader(entry, binder.free).read((), arguments.named)
    dims = binder.bind([array.shape for array in arrays], sizes)
    views = WeightViews(weights.table, np.frombuffer(weights.data, np.uint8))
    stored = derive(model.module, {row.name: _bits(views[row.name]) for row in weights.table})
    return Bound(function, entry, arrays, dims, stored)


def evaluate_observed(
    model: SourceModel, bound: Bound, watch: Watch, known: Known | None = None
) -> tuple[Array, ...]:
    """The results of a graph or of kernels, watched. `known` has results that are not to be computed."""
    body = bound.function.body
    evaluation = Evaluation(bound.dims, bound.weights)
    inputs = dict(zip(body.arguments, bound.entry.inputs, strict=True))
    renamed = renamed_values(bound.function, model.texts.values()) if watch.watches else {}
    observer = observing(model.context.values, watch, evaluation, inputs, renamed)
    return Evaluation(bound.dims, bound.weights, observer, known=known).run(body, bound.arrays)


@contextmanager
def _told(model: SourceModel) -> Generator[None]:
    """Raises ModelError (D0164) for what IR below the graph does wrong meanwhile: it is read unchecked."""
    try:
        yield
    except (
        ArithmeticError,
        AssertionError,
        BadAccess,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        if model.read_at == "graph":
            raise
        raise ModelError(
            f"{model.name} does what its level has no meaning for: {type(error).__name__}: {error}",
            code="D0164",
            help="IR below the graph is not checked when it is read: make it again with dlc show",
        ) from error


def _bits(value: object) -> Array:
    return value.bits if isinstance(value, Tensor) else np.asarray(value)
