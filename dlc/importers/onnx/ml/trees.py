"""Ensembles of decision trees of ai.onnx.ml.

All trees are walked at once: a loop of as many steps as the deepest tree has moves a state [rows, trees],
the node that each row has reached in each tree; a row that has reached a leaf stays there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dlc.dialects import array, flow
from dlc.dialects.array.pieces import slice_axis
from dlc.dialects.array.shape import reshape
from dlc.dialects.nn.rows import in_dtype, numbers, total
from dlc.frontend.elaboration.trace import capture
from dlc.importers.onnx.facts import Array
from dlc.importers.onnx.ml.attributes import labels, matrix_of, table
from dlc.importers.onnx.ml.ensemble import (
    LEAF,
    MEMBER,
    Ensemble,
    Floats,
    checked,
    floats,
    listed,
    separate,
)
from dlc.importers.onnx.ml.scores import (
    TRANSFORMS,
    classified,
    classified_by_one,
    transform_of,
    transformed,
)
from dlc.importers.onnx.node_context import Importer, NodeContext, NodeResults
from dlc.ir.core import Block, Builder, Value
from dlc.ir.types import F32, I32, TensorType

PREDICATES = ("le", "lt", "ge", "gt", "eq", "ne")
"""What the first modes of nodes compare by."""
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""The names of what is made of the trees, in the order of their numbers in TreeEnsemble."""


@dataclass(frozen=True, slots=True)
class _Tables:
    """The arrays of an ensemble as values; a mode or a set only where nodes differ."""

    features: Value
    thresholds: Value
    yes: Value
    no: Value
    modes: Value | None
    missing: Value | None
    members: Value | None


def _scores(context: NodeContext, ensemble: Ensemble, aggregate: str) -> Value:
    """What the trees give together, [rows, targets], in the dtype of the weights."""
    x = matrix_of(context, context.value(0))
    ensemble = checked(context, ensemble, array.tensor_type(x).shape[1])
    leaves = _walked(context, ensemble, x)
    emit, trees = context.emit, len(ensemble.roots)
    if aggregate in ("MIN", "MAX"):
        neutral = np.inf if aggregate == "MIN" else -np.inf
        weights = np.where(ensemble.given, ensemble.weights, neutral).astype(ensemble.weights.dtype)
    else:
        weights = ensemble.weights
    given = emit(array.Gather(table(context, weights, "leaves"), (leaves,), (0,)))
    match aggregate:
        case "SUM":
            return total(emit, given, (1,))
        case "AVERAGE":
            summed = total(emit, given, (1,))
            count = numbers(emit, trees, array.tensor_type(summed))
            return emit(array.Divide(summed, count))
        case "MIN":
            return emit(array.ReduceMin(given, (1,)))
        case "MAX":
            return emit(array.ReduceMax(given, (1,)))
        case _:
            raise context.wrong(f"has the unknown aggregate_function {aggregate!r}")


def _walked(context: NodeContext, ensemble: Ensemble, x: Value) -> Value:
    """The leaf that each row reaches in each tree, [rows, trees]."""
    emit, rows = context.emit, array.tensor_type(x).shape[0]
    state = TensorType(I32, (rows, len(ensemble.roots)))
    roots = emit(array.Broadcast(table(context, ensemble.roots, "roots"), state.shape, (1,)))
    if not ensemble.depth:
        return roots
    tables = _tables(context, ensemble, x)
    block = Block([flow.COUNTER, state], ["step", "node"])
    at = Builder(block, emit.location)
    at.place(flow.Yield((_step(at, ensemble, tables, x, block.arguments[1]),)))
    used = tuple(capture([block]))
    (leaves,) = emit.all(flow.Scan((roots,), (), used, block, ensemble.depth, (), ()))
    return leaves


def _tables(context: NodeContext, ensemble: Ensemble, x: Value) -> _Tables:
    dtype = array.tensor_type(x).dtype

    def of(numbers: Array, name: str) -> Value:
        return table(context, numbers, name)

    modes = {*ensemble.modes.tolist()} - {LEAF}
    thresholds = in_dtype(context.emit, of(ensemble.thresholds, "thresholds"), dtype)
    members = in_dtype(context.emit, of(ensemble.members, "members"), dtype)
    return _Tables(
        of(ensemble.features, "features"),
        thresholds,
        of(ensemble.following[:, 1], "yes"),
        of(ensemble.following[:, 0], "no"),
        of(ensemble.modes, "modes") if len(modes) > 1 else None,
        of(ensemble.missing, "missing") if ensemble.missing.any() else None,
        members if MEMBER in modes else None,
    )


def _step(emit: Builder, ensemble: Ensemble, tables: _Tables, x: Value, node: Value) -> Value:
    """The nodes that follow."""

    def taken(source: Value) -> Value:
        return emit(array.Gather(source, (node,), (0,)))

    row = array.iota(emit, array.tensor_type(node), 0, I32)
    feature = emit(array.Gather(x, (row, taken(tables.features)), (0, 1)))
    holds = _holds(emit, ensemble, tables, feature, taken)
    if tables.missing is not None:
        absent = emit(array.Compare(feature, feature, "ne"))
        holds = emit(array.Or(holds, emit(array.And(absent, taken(tables.missing)))))
    return emit(array.Select(holds, taken(tables.yes), taken(tables.no)))


def _holds(
    emit: Builder,
    ensemble: Ensemble,
    tables: _Tables,
    feature: Value,
    taken: Callable[[Value], Value],
) -> Value:
    """Whether the comparison of each node holds: each of the modes is tried if there are several."""
    threshold = taken(tables.thresholds)
    modes = sorted({*ensemble.modes.tolist()} - {LEAF})

    def compared(mode: int) -> Value:
        if mode != MEMBER:
            return emit(array.Compare(feature, threshold, PREDICATES[mode]))
        assert tables.members is not None
        members = taken(tables.members)
        wide = emit(array.Broadcast(feature, array.tensor_type(members).shape, (0, 1)))
        return emit(array.ReduceOr(emit(array.Compare(wide, members, "eq")), (2,)))

    holds = compared(modes[0])
    for mode in modes[1:]:
        assert tables.modes is not None
        chosen = taken(tables.modes)
        is_mode = emit(array.Compare(chosen, array.constant_like(emit, mode, chosen), "eq"))
        holds = emit(array.Select(is_mode, compared(mode), holds))
    return holds


def _with_base(context: NodeContext, scores: Value, base: Floats) -> Value:
    """Scores and the base values of the targets, or one for all."""
    if not base.size:
        return scores
    emit, type = context.emit, array.tensor_type(scores)
    if base.size not in (1, type.shape[1]):
        raise context.wrong(f"has {base.size} base values for {type.text}")
    row = in_dtype(emit, table(context, base, "base"), type.dtype)
    if base.size == 1:
        row = emit(array.Broadcast(reshape(emit, row, ()), type.shape, ()))
    else:
        row = emit(array.Broadcast(row, type.shape, (1,)))
    return emit(array.Add(scores, row))


def _regressor(context: NodeContext) -> NodeResults:
    ensemble = listed(context, "target", context.integer("n_targets", 1))
    scores = _scores(context, ensemble, context.text("aggregate_function", "SUM"))
    scores = _with_base(context, scores, floats(context, "base_values"))
    return in_dtype(context.emit, transformed(context, scores, transform_of(context)), F32)


def _ensemble(context: NodeContext) -> NodeResults:
    ensemble = separate(context, context.integer("n_targets", 1))
    aggregate, transform = (
        names[context.integer(attribute, default)]
        for names, attribute, default in (
            (AGGREGATES, "aggregate_function", 1),
            (TRANSFORMS, "post_transform", 0),
        )
    )
    scores = transformed(context, _scores(context, ensemble, aggregate), transform)
    return in_dtype(context.emit, scores, array.tensor_type(context.value(0)).dtype)


def _classifier(context: NodeContext) -> NodeResults:
    """Two classes of which the leaves know one have one score."""
    names, transform = labels(context, "classlabels_int64s"), transform_of(context)
    base = floats(context, "base_values")
    ensemble = listed(context, "class", len(names))
    known = np.flatnonzero(ensemble.given.any(0))
    scores = _scores(context, ensemble, "SUM")
    if len(names) != 2 or len(known) != 1:
        label, scores = classified(context, _with_base(context, scores, base), names, transform)
        return [label, in_dtype(context.emit, scores, F32)]
    which = int(known[0])
    score = slice_axis(context.emit, scores, 1, which, which + 1)
    score = _with_base(context, score, base[-1:])
    is_probability = bool((ensemble.weights >= 0).all())
    label, scores = classified_by_one(
        context, score, names, transform, is_probability=is_probability
    )
    return [label, in_dtype(context.emit, scores, F32)]


IMPORTERS: dict[str, Importer] = {
    "TreeEnsemble": _ensemble,
    "TreeEnsembleClassifier": _classifier,
    "TreeEnsembleRegressor": _regressor,
}
